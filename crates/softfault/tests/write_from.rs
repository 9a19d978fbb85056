//! Files that are written to through a map in larger steps than a store: filled from a reader, made longer and shorter; over the engine,
//! and by the kernel's own mapping.

mod small_disk;
mod write_scene;

use softfault::{Advice, Engine, FaultError, MmapMut, MmapOptions};
use softfault_oracle::Finally;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use write_scene::{PAGE, Scratch, byte, engine, in_file, word_of, write};

/// Engines that serve it, and that do not.
fn both() -> [(bool, Engine); 2] {
    let kernel = Engine::builder().memory(16 << 20).build().unwrap();
    [(true, engine(16 << 20)), (false, kernel)]
}

fn map(engine: &Engine, file: &File) -> MmapMut {
    // SAFETY: written bytes are looked for.
    unsafe { engine.map_mut(file) }.unwrap()
}

/// Gives a few bytes at a time.
struct Slow<R>(R, usize);

impl<R: Read> Read for Slow<R> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        self.1 = self.1 * 7 % 30_011 + 1;
        let most = into.len().min(self.1);
        self.0.read(&mut into[..most])
    }
}

#[test]
fn overwritten_pages_are_not_read() {
    const BYTES: usize = 24 << 20;
    let scratch = Scratch::new("from", BYTES);
    let source = Scratch::new("source", 0);
    let file = scratch.open();
    let content: Vec<u8> = (0..BYTES / 8)
        .flat_map(|at| (!word_of(at)).to_le_bytes())
        .collect();
    std::fs::write(&source.0, &content).unwrap();
    let engine = engine(8 << 20);
    let mut map = write(&engine, &file);
    let mut reader = source.open();
    assert_eq!(map.write_from(.., &mut reader).unwrap(), BYTES as u64);
    let stats = engine.stats();
    assert_eq!((stats.bytes_read, stats.faults), (0, 0));
    assert!(stats.peak_bytes <= 8 << 20);
    map.flush().unwrap();
    assert!(scratch.content() == content);
    // By calls as well.
    map.advise(Advice::PageOut).unwrap();
    let before = engine.stats().bytes_read;
    assert_eq!(map.write_at(&vec![5; 1 << 20], 4 * PAGE), Ok(1 << 20));
    assert_eq!(engine.stats().bytes_read, before);
    assert_eq!(
        (byte(&map, 4 * PAGE), byte(&map, 4 * PAGE - 1)),
        (5, content[4 * PAGE - 1])
    );
    assert_eq!(map.dirty_bytes(), 1 << 20);
}

#[test]
fn any_part_is_written_from_any_reader() {
    const BYTES: usize = (3 << 20) + 1234;
    let scratch = Scratch::new("parts", BYTES);
    let file = scratch.open();
    for (is_engines, engine) in both() {
        let mut map = map(&engine, &file);
        assert_eq!(map.is_managed(), is_engines);
        let mut model = scratch.content();
        for (round, start) in [0, 77, PAGE, 5 * PAGE + 1, BYTES - 100, 2 << 20]
            .into_iter()
            .enumerate()
        {
            let fresh: Vec<u8> = (0..900_000).map(|at| (at * 31 + round) as u8).collect();
            let end = (start + 850_000 + round).min(BYTES);
            // Some of it is in memory.
            (0..BYTES)
                .step_by(11 * PAGE)
                .for_each(|at| assert_eq!(byte(&map, at), model[at]));
            let count = map
                .write_from(start..end, &mut Slow(&fresh[..], round))
                .unwrap() as usize;
            assert_eq!(count, end - start);
            model[start..end].copy_from_slice(&fresh[..count]);
            assert!(map[..] == model[..], "round {round}");
            if round % 2 == 0 {
                map.advise(Advice::PageOut).unwrap();
            }
        }
        // A reader that ends before.
        assert_eq!(
            map.write_from(10.., &mut &[9; 100_000][..]).unwrap(),
            100_000
        );
        model[10..100_010].fill(9);
        assert!(map[..] == model[..]);
        map.flush().unwrap();
        assert!(scratch.content() == model);
        assert!(map.write_from(..BYTES + 1, &mut std::io::empty()).is_err());
    }
}

/// Gives so many bytes, a few at a time, and fails then.
struct Breaks(usize);

impl Read for Breaks {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.0.min(bytes.len()).min(700);
        if count == 0 {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        self.0 -= count;
        bytes[..count].fill(7);
        Ok(count)
    }
}

#[test]
fn bytes_before_a_readers_error_are_written() {
    let scratch = Scratch::new("breaks", 4 * PAGE);
    let file = scratch.open();
    for (_, engine) in both() {
        let mut map = map(&engine, &file);
        let mut model = scratch.content();
        let error = map.write_from(100.., &mut Breaks(5000)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        model[100..5100].fill(7);
        assert!(map[..] == model[..]);
    }
}

#[test]
fn a_map_and_its_file_become_longer_and_shorter() {
    let scratch = Scratch::new("set-len", 0);
    let other = Scratch::new("set-len-other", PAGE);
    for (is_engines, engine) in both() {
        let file = scratch.open();
        file.set_len(0).unwrap();
        let mut map = map(&engine, &file);
        assert_eq!(map.len(), 0);
        assert!(map.set_len(&other.open(), 9).is_err(), "not its file");
        let mut written = 0;
        // The last ones have no room in the first window.
        for len in [100, 3 * PAGE, 40 * PAGE + 7, 4 << 20, 70 << 20, 300 << 20] {
            map.set_len(&file, len).unwrap();
            assert_eq!(
                (map.len(), file.metadata().unwrap().len()),
                (len, len as u64)
            );
            assert_eq!(map.is_managed(), is_engines, "{len}");
            assert!(
                map[written..len.min(written + PAGE)]
                    .iter()
                    .all(|&byte| byte == 0)
            );
            map[written] = 7;
            map[len - 1] = 8;
            written = len;
        }
        for len in [70 << 20, 41 * PAGE, 40 * PAGE + 7, 100] {
            map.set_len(&file, len).unwrap();
            assert_eq!(
                (map.len(), file.metadata().unwrap().len()),
                (len, len as u64)
            );
            if len != 41 * PAGE {
                assert_eq!(byte(&map, len - 1), 8, "{len}");
            }
        }
        // A range that was cut off is not there again.
        map.set_len(&file, 2 * PAGE).unwrap();
        assert!(map[100..].iter().all(|&byte| byte == 0));
        map.flush().unwrap();
        assert_eq!((in_file(&file, 99), in_file(&file, 100)), (8, 0));
        assert!(map.set_len(&other.open(), 9).is_err());
    }
    let mut private = Engine::builder()
        .memory(16 << 20)
        .build()
        .unwrap()
        .map_anon(PAGE)
        .unwrap();
    assert!(private.set_len(&other.open(), 9).is_err());
}

/// Others write, flush and evict below the least length meanwhile.
#[test]
fn a_length_changes_beside_writers_and_write_back() {
    const LEAST: usize = 64;
    let scratch = Scratch::new("set-len-beside", LEAST * PAGE);
    let file = scratch.open();
    let engine = engine(8 << 20);
    let beside = write(&engine, &file);
    let mut map = write(&engine, &file);
    let start = beside.as_ptr() as usize;
    let stop = AtomicBool::new(false);
    // SAFETY: a word of the map, which one thread writes.
    let word = |page: usize| unsafe { AtomicU64::from_ptr((start + page * PAGE) as *mut u64) };
    std::thread::scope(|scope| {
        let _stop = Finally(|| stop.store(true, Ordering::Relaxed));
        let stop = &stop;
        for writer in 0..2 {
            scope.spawn(move || {
                let mut last = [0; LEAST];
                for next in 1.. {
                    for page in (writer..LEAST).step_by(2) {
                        if next > 1 {
                            assert_eq!(word(page).load(Ordering::Relaxed), last[page]);
                        }
                        last[page] = next;
                        word(page).store(next, Ordering::Relaxed);
                    }
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                }
            });
        }
        let beside = &beside;
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                beside.flush().unwrap();
                beside.advise(Advice::PageOut).unwrap();
            }
        });
        for round in 0..200 {
            let len = (LEAST + 1 + round * 37 % 500) * PAGE - round % 3 * 100;
            let before = map.len();
            map.set_len(&file, len).unwrap();
            assert_eq!(file.metadata().unwrap().len(), len as u64, "round {round}");
            if len > before {
                assert!(map[before..].iter().all(|&byte| byte == 0), "round {round}");
            }
            let last = map.len() - 1;
            map[last] = round as u8 | 1;
        }
    });
    map.flush().unwrap();
    assert_eq!(in_file(&file, map.len() - 1), 199 | 1);
    assert_eq!(file.metadata().unwrap().len(), map.len() as u64);
}

/// A map that is the only one of its file moves to where there is room; beside another one it cannot.
#[test]
fn a_map_that_has_no_room_is_made_anew_if_it_is_the_only_one() {
    const FAR: usize = 300 << 20;
    let scratch = Scratch::new("set-len-room", 3 * PAGE);
    let file = scratch.open();
    let engine = engine(16 << 20);
    let mut map = write(&engine, &file);
    let beside = write(&engine, &file);
    map[0] = 9;
    let refused = map.set_len(&file, FAR).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::OutOfMemory);
    assert_eq!(
        (map.len(), file.metadata().unwrap().len()),
        (3 * PAGE, 3 * PAGE as u64)
    );
    drop(beside);
    map.lock().unwrap();
    assert!(map.set_len(&file, PAGE).is_err(), "it is locked");
    map.unlock().unwrap();
    map.set_len(&file, FAR).unwrap();
    assert!(map.is_managed());
    map[FAR - 1] = 8;
    map.flush().unwrap();
    assert_eq!((in_file(&file, 0), in_file(&file, FAR - 1)), (9, 8));
    // From a part of the file on.
    let mut part = MmapOptions::new();
    part.offset(2 * PAGE as u64).len(PAGE);
    // SAFETY: written bytes are looked for.
    let mut part = unsafe { part.map_mut_in(&engine, &file) }.unwrap();
    part.set_len(&file, 2 * PAGE).unwrap();
    part[2 * PAGE - 1] = 7;
    part.flush().unwrap();
    assert_eq!(file.metadata().unwrap().len(), 4 * PAGE as u64);
    assert_eq!(in_file(&file, 4 * PAGE - 1), 7);
}

/// Nobody has a map of a file that others have made longer than its window was: the next map has all of it.
#[test]
fn a_file_that_has_outgrown_an_idle_window_is_mapped_again() {
    let scratch = Scratch::new("outgrown", 3 * PAGE);
    let file = scratch.open();
    let engine = engine(16 << 20);
    let mut map = write(&engine, &file);
    map[1] = 5;
    drop(map);
    file.set_len(200 << 20).unwrap();
    let mut map = write(&engine, &file);
    assert_eq!(map.len(), 200 << 20);
    assert_eq!((byte(&map, 1), byte(&map, (200 << 20) - 1)), (5, 0));
    map[(200 << 20) - 1] = 6;
    drop(map);
    file.set_len(600 << 20).unwrap();
    // SAFETY: it is only looked at.
    let seen = unsafe { engine.map(&file) }.unwrap();
    assert_eq!((seen.len(), byte(&seen, (200 << 20) - 1)), (600 << 20, 6));
}

/// The pages that there is room for are written, and the rest is an error.
#[test]
fn a_disk_that_fills_in_the_middle_is_an_error_of_the_call() {
    small_disk::with_file("w-from-full", |file| {
        let engine = engine(16 << 20);
        let mut map = write(&engine, &file);
        let refused = map.write_from(.., &mut std::io::repeat(7)).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::ENOSPC));
        map.flush().unwrap();
        let room = (0..small_disk::BYTES).step_by(PAGE);
        let written = room.take_while(|&at| byte(&map, at) == 7).count();
        assert!((100..=256).contains(&written), "{written} pages of 256");
        let refused = map.write_at(&[1; PAGE], small_disk::BYTES - PAGE);
        assert_eq!(refused, Err(FaultError::Io(libc::ENOSPC)));
    });
}

/// Whole pages come and go beside threads that read and write words of them: each page has the latest that was written to it.
#[test]
fn whole_pages_are_written_beside_readers_and_eviction() {
    const PAGES: usize = (24 << 20) / PAGE;
    let scratch = Scratch::new("whole-beside", PAGES * PAGE);
    let file = scratch.open();
    let engine = engine(8 << 20);
    let mut map = write(&engine, &file);
    let beside = write(&engine, &file);
    // The bytes as they are now become known.
    map.write_from(.., &mut std::io::repeat(1)).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = Finally(|| stop.store(true, Ordering::Relaxed));
        let (stop, beside) = (&stop, &beside);
        scope.spawn(move || {
            let mut seen = vec![1; PAGES];
            let mut page = 0;
            while !stop.load(Ordering::Relaxed) {
                page = (page * 5 + 77) % PAGES;
                let now = byte(beside, page * PAGE + page % PAGE);
                assert!(now >= seen[page], "page {page}: {now} after {}", seen[page]);
                seen[page] = now;
            }
        });
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                beside.flush().unwrap();
                beside.advise_range(Advice::PageOut, 0, 12 << 20).unwrap();
            }
        });
        for round in 2..6 {
            for start in (0..PAGES).step_by(37) {
                let pages = 37.min(PAGES - start);
                let bytes = vec![round; pages * PAGE];
                assert_eq!(map.write_at(&bytes, start * PAGE), Ok(bytes.len()));
            }
        }
    });
    map.flush().unwrap();
    assert!(scratch.content().iter().all(|&byte| byte == 5));
}

/// The blocks of the range that a lengthened file has gained are asked for, also in its former last page, and those of a range that was cut off once more.
#[test]
fn blocks_of_a_lengthened_file_are_reserved_at_the_store() {
    small_disk::with_file("w-longer", |file| {
        let engine = engine(16 << 20);
        let mut map = write(&engine, &file);
        map.set_len(&file, 40 * PAGE).unwrap();
        map.write_from(.., &mut std::io::repeat(1)).unwrap();
        map.flush().unwrap();
        map.set_len(&file, PAGE + 100).unwrap();
        let dir = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
        let mut rest = File::create(dir.with_file_name("rest")).unwrap();
        while rest.write(&[2; PAGE]).is_ok() {}
        let refused = Err(FaultError::Io(libc::ENOSPC));
        for len in [3 * PAGE, 9 * PAGE, 40 * PAGE] {
            map.set_len(&file, len).unwrap();
            assert_eq!(map.write_at(&[3], 0), Ok(1), "its blocks are there");
            assert_eq!(map.write_at(&[3], len - 1), refused, "{len}");
        }
        rest.set_len(0).unwrap();
        map[8 * PAGE] = 4;
        map[39 * PAGE] = 5;
        map.flush().unwrap();
        assert_eq!(
            (in_file(&file, 8 * PAGE), in_file(&file, 39 * PAGE)),
            (4, 5)
        );
    });
}

/// Zeros that nobody has written to stay holes, and a word beside them does not.
#[test]
fn a_file_of_holes_is_written_in_order_with_few_faults() {
    const PAGES: usize = 4096;
    let scratch = Scratch::new("order", 0);
    let file = scratch.open();
    file.set_len((PAGES * PAGE) as u64).unwrap();
    let engine = engine(9 << 20);
    let mut map = write(&engine, &file);
    // Every page of the first half, and all but some of each block's pages of the other.
    let is_written = |page: usize| page < PAGES / 2 || page % 16 < 13;
    let word = |page: usize| (page as u64 + 1) * 77;
    for page in (0..PAGES).filter(|&page| is_written(page)) {
        map[page * PAGE + 8..page * PAGE + 16].copy_from_slice(&word(page).to_le_bytes());
    }
    let faults = engine.stats().faults;
    assert!(faults < PAGES as u64 / 2, "{faults} faults");
    map.flush().unwrap();
    let content = scratch.content();
    for (page, bytes) in content.chunks_exact(PAGE).enumerate() {
        let mut expected = vec![0; PAGE];
        if is_written(page) {
            expected[8..16].copy_from_slice(&word(page).to_le_bytes());
        }
        assert!(bytes == expected, "page {page}");
    }
}

/// A file system that its kernel has made read-only: written bytes stay in memory and are read, each flush says why they are not in the
/// file, and bytes that a flush had covered before are there.
#[test]
fn a_file_system_that_becomes_read_only_keeps_flushed_stores() {
    let dir = std::env::temp_dir().join(format!("softfault-w-remount-{}", std::process::id()));
    let image = dir.with_extension("image");
    let command = |name: &str, arguments: &[&str]| {
        let done = Command::new(name).args(arguments).output();
        done.is_ok_and(|done| done.status.success())
    };
    std::fs::create_dir(&dir).unwrap();
    File::create(&image).unwrap().set_len(16 << 20).unwrap();
    let (at, from) = (dir.to_str().unwrap(), image.to_str().unwrap());
    let _gone = Finally(|| {
        command("umount", &["-l", at]);
        let _ = (std::fs::remove_dir(&dir), std::fs::remove_file(&image));
    });
    let is_mounted = command("mkfs.ext4", &["-q", "-F", from])
        && command("mount", &["-o", "loop,errors=remount-ro", from, at]);
    if !is_mounted {
        return softfault_skip::skipped(
            "root",
            "an ext4 in a file can be made and mounted by root only",
        );
    }
    let source = Command::new("findmnt").args(["-no", "SOURCE", at]).output();
    let source = source.map(|said| String::from_utf8(said.stdout).unwrap());
    let device = source.unwrap_or_default().trim().replace("/dev/", "");
    let trigger = format!("/sys/fs/ext4/{device}/trigger_fs_error");
    let mut options = File::options();
    let options = options.read(true).write(true).create_new(true);
    let file = options.open(dir.join("file")).unwrap();
    file.set_len(64 * PAGE as u64).unwrap();
    let engine = engine(16 << 20);
    let mut map = write(&engine, &file);
    map[..32 * PAGE].fill(1);
    map.flush().unwrap();
    if std::fs::write(&trigger, "1").is_err() {
        return softfault_skip::skipped("kernel", format_args!("{trigger} cannot be written to"));
    }
    map[5 * PAGE] = 2;
    for _ in 0..2 {
        let refused = map.flush().unwrap_err().raw_os_error();
        assert!(
            matches!(refused, Some(libc::EROFS | libc::EIO)),
            "{refused:?}"
        );
    }
    assert_eq!(map.dirty_bytes(), PAGE as u64);
    assert_eq!((byte(&map, 5 * PAGE), byte(&map, 6 * PAGE)), (2, 1));
    // Its blocks were never asked for.
    let refused = map.write_at(&[3], 60 * PAGE);
    assert!(
        matches!(refused, Err(FaultError::Io(libc::EROFS | libc::EIO))),
        "{refused:?}"
    );
    assert_eq!(
        (in_file(&file, 5 * PAGE), in_file(&file, 31 * PAGE)),
        (1, 1)
    );
}
