//! Private maps of files: their bytes, writes that stay with the map, and system calls
//! on them.

mod child;
mod files;
mod twin;

use child::{dies_of, scenario};
use files::{byte_at, made_file};
use softfault::{
    Engine, FaultError, MIN_MEMORY, Mmap, MmapMut, MmapOptions, MmapRaw, OnTruncate, Swap,
    UncheckedAdvice,
};
use softfault_oracle::Random;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use twin::{MIB, PAGE, Side, engines, kernel_copy, same, write_both};

fn swap() -> Swap {
    Swap::in_dir(env!("CARGO_TARGET_TMPDIR")).bytes(64 << 20)
}

fn engine() -> Engine {
    let builder = Engine::builder()
        .allow_kernel_maps(false)
        .memory(MIN_MEMORY)
        .swap(swap());
    builder.build().unwrap()
}

fn copy(engine: &Engine, options: &MmapOptions, file: &File) -> MmapMut {
    // SAFETY: nobody writes to the file but where a test says so.
    unsafe { options.map_copy_in(engine, file) }.unwrap()
}

#[test]
fn larger_than_memory_it_shows_the_file_and_the_writes() {
    for engine in engines() {
        let bytes = 3 * MIN_MEMORY + 1234;
        let file = made_file("copy", bytes);
        let before = engine.stats().resident_bytes;
        let (mut ours, mut kernel) = (engine.map_copy(&file), kernel_copy(&file));
        let mut drawn = Random::new(1);
        for _ in 0..4 {
            same(&*ours, &*kernel);
            write_both(&mut *ours, &mut *kernel, &mut drawn, 2000);
            ours.make_read_only();
            kernel.make_read_only();
            same(&*ours, &*kernel);
            ours.make_mut();
            kernel.make_mut();
        }
        // Nothing of it has come to the file.
        let mut all = Vec::new();
        (&file).seek(std::io::SeekFrom::Start(0)).unwrap();
        (&file).read_to_end(&mut all).unwrap();
        assert!((0..bytes).all(|at| all[at] == byte_at(at)));
        let swap = engine.stats().swap.unwrap();
        assert!(swap.pages_out > 0 && swap.clean_drops > 0, "{swap:?}");
        drop(ours);
        engine.check_empty(before);
    }
}

#[test]
fn holes_and_an_end_within_a_page() {
    for engine in engines() {
        let file = made_file("sparse", 100_000);
        file.set_len(2 * MIN_MEMORY as u64 + 77).unwrap();
        file.write_all_at(b"island", MIN_MEMORY as u64).unwrap();
        let before = engine.stats().resident_bytes;
        let (mut ours, mut kernel) = (engine.map_copy(&file), kernel_copy(&file));
        same(&*ours, &*kernel);
        write_both(&mut *ours, &mut *kernel, &mut Random::new(2), 3000);
        same(&*ours, &*kernel);
        drop(ours);
        engine.check_empty(before);
    }
}

#[test]
fn from_any_byte_on_and_as_long_as_asked() {
    let engine = engine();
    let file = made_file("part", 100_000);
    for offset in [0, 1, 4095, 4096, 50_001, 99_999, 100_000] {
        for len in [None, Some(1), Some(4096), Some(20_000), Some(0)] {
            let mut options = MmapOptions::new();
            options.offset(offset);
            let mut theirs = memmap2::MmapOptions::new();
            theirs.offset(offset);
            if let Some(len) = len {
                options.len(len);
                theirs.len(len);
            }
            let mut ours = copy(&engine, &options, &file);
            // SAFETY: nobody writes to the file.
            let mut theirs = unsafe { theirs.map_copy(&file) }.unwrap();
            assert_eq!(ours.len(), theirs.len(), "{offset} {len:?}");
            // The bytes of the file, and of its last page.
            let end = 100_000_usize.next_multiple_of(PAGE) - offset as usize;
            let end = end.min(ours.len());
            assert!(ours[..end] == theirs[..end], "{offset} {len:?}");
            for at in (0..end).step_by(999) {
                ours[at] ^= 0x55;
                theirs[at] ^= 0x55;
            }
            assert!(ours[..end] == theirs[..end], "{offset} {len:?}");
            if len.is_none() {
                // SAFETY: nobody writes to the file.
                let read = unsafe { options.map_copy_read_only_in(&engine, &file) }.unwrap();
                assert!(read.is_managed());
                let wanted = (offset as usize..100_000).map(byte_at);
                assert!(read.iter().copied().eq(wanted), "{offset}");
            }
        }
    }
    let past = MmapOptions::new().offset(100_001).clone();
    // SAFETY: refused.
    assert!(unsafe { past.map_copy_in(&engine, &file) }.is_err());
}

#[test]
fn past_the_end_there_is_an_error_or_zeros() {
    let file = made_file("past", 2 * PAGE + 10);
    for on_truncate in [OnTruncate::Error, OnTruncate::Zeros] {
        let builder = Engine::builder()
            .allow_kernel_maps(false)
            .memory(MIN_MEMORY)
            .swap(swap());
        let engine = builder.on_truncate(on_truncate).build().unwrap();
        let mut map = copy(&engine, MmapOptions::new().len(5 * PAGE), &file);
        map[2 * PAGE + 100] = 7;
        assert_eq!(map[2 * PAGE + 10..2 * PAGE + 101].iter().sum::<u8>(), 7);
        let past = map.populate(4 * PAGE..);
        match on_truncate {
            OnTruncate::Error => assert_eq!(past, Err(FaultError::BeyondEnd)),
            OnTruncate::Zeros => {
                assert_eq!(past, Ok(()));
                assert_eq!(map[4 * PAGE..], [0; PAGE]);
            }
        }
    }
}

#[test]
fn written_pages_outlive_a_file_that_shrinks() {
    let engine = engine();
    let before = engine.stats().resident_bytes;
    let bytes = MIN_MEMORY;
    let file = made_file("shrinks", bytes);
    let mut map = copy(&engine, &MmapOptions::new(), &file);
    for page in (0..bytes / PAGE).step_by(2) {
        map[page * PAGE] = 77;
    }
    let mut other = engine.map_anon(2 * MIN_MEMORY).unwrap();
    other.fill(1);
    engine.truncate(&file, 10 * PAGE as u64).unwrap();
    let mut gone = 0;
    for page in 0..bytes / PAGE {
        let range = page * PAGE..(page + 1) * PAGE;
        let mut found = [0; PAGE];
        let read = map.read_at(&mut found, range.start);
        if page % 2 == 0 {
            assert_eq!(read, Ok(PAGE), "page {page} was written");
            assert_eq!(found[0], 77);
            assert!((1..PAGE).all(|at| found[at] == byte_at(range.start + at)));
        } else if page < 10 {
            assert_eq!(read, Ok(PAGE));
        } else {
            // In memory it stays; else it is gone.
            match read {
                Err(FaultError::BeyondEnd) => gone += 1,
                read => {
                    assert_eq!(read, Ok(PAGE), "page {page}");
                    assert!((0..PAGE).all(|at| found[at] == byte_at(range.start + at)));
                }
            }
        }
    }
    assert!(gone > 0, "all of it was in memory");
    drop((map, other));
    assert_eq!(engine.stats().swap.unwrap().slots_used, 0);
    let grown = engine.stats().resident_bytes - before;
    assert!(grown < 16 * PAGE as u64, "{grown}");
}

#[test]
fn shared_and_private_maps_of_a_file_go_side_by_side() {
    let engine = engine();
    let file = made_file("beside", MIB);
    // SAFETY: nobody writes to the file.
    let shared = unsafe { engine.map(&file) }.unwrap();
    let mut one = copy(&engine, &MmapOptions::new(), &file);
    let mut other = copy(&engine, &MmapOptions::new(), &file);
    one.fill(1);
    other[..PAGE].fill(2);
    drop(shared);
    assert!(one.iter().all(|&byte| byte == 1));
    assert!((PAGE..MIB).all(|at| other[at] == byte_at(at)));
    assert_eq!(other[..PAGE], [2; PAGE]);
    drop((one, other));
    // SAFETY: as above.
    let again = unsafe { engine.map(&file) }.unwrap();
    assert!((0..MIB).all(|at| again[at] == byte_at(at)));
}

#[test]
fn system_calls_on_pages_in_swap() {
    let engine = engine();
    let before = engine.stats().resident_bytes;
    let bytes = 3 * MIN_MEMORY + 99;
    let source = made_file("source", bytes);
    (&source).rewind().unwrap();
    let mut sink = made_file("sink", 0);
    let mut map = engine.map_anon(bytes).unwrap();
    assert_eq!(map.read_from(.., &mut &source).unwrap(), bytes as u64);
    // An end before the range's is no error.
    assert_eq!(map.read_from(10..20, &mut &source).unwrap(), 0);
    assert_eq!(map.write_to(.., &mut sink).unwrap(), bytes as u64);
    let same: Vec<u8> = (7..bytes).map(byte_at).collect();
    assert_eq!(map.write_at(&same, 7), Ok(bytes - 7));
    assert_eq!(map.write_at(&same, bytes), Ok(0));
    let map = map.make_read_only().unwrap();
    assert_eq!(map.write_to(5..bytes, &mut sink).unwrap(), bytes as u64 - 5);
    let mut written = Vec::new();
    sink.rewind().unwrap();
    sink.read_to_end(&mut written).unwrap();
    let wanted = (0..bytes).chain(5..bytes).map(byte_at);
    assert!(written.iter().copied().eq(wanted));
    let mut buffer = vec![0; bytes];
    assert_eq!(map.read_at(&mut buffer, 3), Ok(bytes - 3));
    assert!((3..bytes).all(|at| buffer[at - 3] == byte_at(at)));
    // Pinned pages may be given to the kernel, whoever else lets go of them.
    let one = map.pin(100..MIN_MEMORY / 4).unwrap();
    let other = map.pin(5000..MIN_MEMORY / 8).unwrap();
    drop(other);
    assert!((0..bytes).step_by(PAGE).all(|at| map[at] == byte_at(at)));
    // SAFETY: the bytes are the map's.
    let count = unsafe { libc::write(sink.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    assert_eq!(count, one.len() as isize);
    drop(one);
    drop(map);
    assert_eq!(engine.stats().swap.unwrap().slots_used, 0);
    let grown = engine.stats().resident_bytes - before;
    assert!(grown < 16 * PAGE as u64, "{grown}");
}

/// Presses on the memory, then has the kernel write to its target buffer.
struct Pressing<'a> {
    file: &'a File,
    /// Pages of the map that is read into, and not of the part that is.
    pages: &'a [usize],
    calls: usize,
}

impl Read for Pressing<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.calls += 1;
        for &page in self.pages {
            let page = page as *mut u8;
            // SAFETY: memory of the map that nobody has a slice of.
            unsafe { page.write_volatile(page.read_volatile().wrapping_add(1)) };
        }
        // Not all at once: the page is pressed on again while a part has come.
        let part = buffer.len().min(3000);
        self.file.read(&mut buffer[..part])
    }
}

#[test]
fn pages_kept_for_a_system_call_are_not_protected() {
    let engine = engine();
    let bytes = 3 * MIN_MEMORY;
    let source = made_file("pressing", 15 * PAGE);
    let mut map = engine.map_anon(bytes).unwrap();
    map.fill(0);
    // Every third page is read into; all others are written to over and over.
    let start = map.as_ptr() as usize;
    let count = bytes / PAGE;
    let pages: Vec<usize> = (0..count)
        .filter(|page| page % 3 != 0)
        .map(|page| start + page * PAGE)
        .collect();
    let mut pressing = Pressing {
        file: &source,
        pages: &pages,
        calls: 0,
    };
    for target in (0..15).map(|part| part * 3) {
        let at = target * PAGE;
        (&source)
            .seek(std::io::SeekFrom::Start(at as u64 / 3))
            .unwrap();
        let read = map.read_from(at..at + PAGE, &mut pressing).unwrap();
        assert_eq!(read, PAGE as u64);
        assert!((0..PAGE).all(|byte| map[at + byte] == byte_at(at / 3 + byte)));
    }
    assert!(pressing.calls >= 30);
    assert!(engine.stats().swap.unwrap().pages_out as usize > count);
}

#[test]
fn a_write_to_read_only_memory_is_the_end() {
    const TEST: &str = "a_write_to_read_only_memory_is_the_end";
    let Some(name) = scenario() else {
        for name in ["resident", "missing"] {
            dies_of(libc::SIGSEGV, TEST, name);
        }
        return;
    };
    let engine = engine();
    let mut map = engine.map_anon(MIB).unwrap();
    if name == "resident" {
        map.fill(1);
    }
    let map: Mmap = map.make_read_only().unwrap();
    assert_eq!(map[77], u8::from(name == "resident"));
    let stray = map[99..].as_ptr().cast_mut();
    // SAFETY: not at all; the process dies of it.
    unsafe { stray.write_volatile(5) };
}

/// Failed before: the part was kept for reads, and the copy was a SIGSEGV.
#[test]
fn bytes_for_a_part_that_is_read_only_are_an_error() {
    let map: MmapRaw = engine().map_anon(8 * PAGE).unwrap().into();
    map.protect_part(2 * PAGE..4 * PAGE, false).unwrap();
    let bytes = vec![7_u8; 6 * PAGE];
    let copy = || {
        // SAFETY: bytes of the test's; nobody has a reference to the map's.
        unsafe { map.copy_in(PAGE, (bytes.as_ptr(), bytes.len())) }
    };
    assert_eq!(copy(), Err(FaultError::ReadOnly));
    let mut stored = 0;
    // SAFETY: as above.
    let filled = unsafe { map.fill_from(PAGE..7 * PAGE, &mut &bytes[..], &mut stored) };
    let why = filled.unwrap_err();
    let inner = why.get_ref().and_then(|why| why.downcast_ref());
    assert_eq!(inner, Some(&FaultError::ReadOnly), "{why}");
    assert_eq!(stored, PAGE as u64, "the page before the part");
    // All of it stays in memory all the same, for the accesses that each part allows.
    let kept = map.keep(0..8 * PAGE, false).unwrap();
    map.protect_part(2 * PAGE..4 * PAGE, true).unwrap();
    assert_eq!(copy(), Ok(bytes.len()));
    // SAFETY: of this map, which was not remapped.
    unsafe { map.release(kept) };
}

/// Failed before, some of the times: the thread that made the part writable kept pages once more that the other had let go of, and
/// they stayed in memory as long as the map.
#[test]
fn pages_that_are_let_go_of_while_a_part_becomes_writable_do_not_stay() {
    let map: MmapRaw = engine().map_anon(64 * PAGE).unwrap().into();
    let keep = |page: usize| map.keep(page * PAGE..(page + 1) * PAGE, false).unwrap();
    let both = std::sync::Barrier::new(2);
    for _ in 0..300 {
        map.protect_part(0..64 * PAGE, false).unwrap();
        let kept: Vec<_> = (0..64).map(keep).collect();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                both.wait();
                map.protect_part(0..64 * PAGE, true).unwrap();
            });
            both.wait();
            // SAFETY: of this map, which was not remapped.
            kept.into_iter()
                .rev()
                .for_each(|kept| unsafe { map.release(kept) });
        });
        // Refused for pages that stay.
        // SAFETY: nobody relies on the bytes.
        unsafe { map.unchecked_advise(UncheckedAdvice::DontNeed) }.unwrap();
    }
}

#[test]
fn a_shared_map_cannot_be_written_to() {
    let file = made_file("shared", 10_000);
    // SAFETY: nobody writes to the file.
    let map = unsafe { engine().map(&file) }.unwrap();
    let error = map.make_mut().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
}

#[test]
fn a_window_that_was_read_only_is_not_the_next_ones() {
    let engine = engine();
    for round in 0..40 {
        let map = engine.map_anon(MIB).unwrap().make_read_only().unwrap();
        assert_eq!(map[round], 0);
        drop(map);
        let mut map = engine.map_anon(MIB).unwrap();
        map.fill(round as u8);
        assert!(map.iter().all(|&byte| byte == round as u8));
    }
}

#[test]
fn an_empty_file() {
    let file = made_file("empty", 0);
    let engine = engine();
    let map = copy(&engine, &MmapOptions::new(), &file);
    assert!(map.is_empty());
    let map = map.make_read_only().unwrap();
    assert!(map.is_empty() && map.lock().is_ok());
    assert!(map.make_mut().unwrap().is_empty());
    for engine in engines() {
        assert_eq!(Side::len(&*engine.map_copy(&file)), 0);
    }
}
