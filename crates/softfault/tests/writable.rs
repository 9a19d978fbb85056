//! Maps that write to their file over the engine, under its budget: each cell of `docs/contract.md` that says so.

mod child;
mod small_disk;
mod write_scene;

use child::forked;
use softfault::{Advice, Engine, FaultError, MmapOptions, UncheckedAdvice};
use softfault_oracle::Random;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};
use write_scene::{PAGE, Scratch, byte, engine, in_file, read, word_of, write};

#[test]
fn a_file_larger_than_the_budget_is_written_over() {
    const BYTES: usize = (96 << 20) + 1234;
    let scratch = Scratch::new("larger", BYTES);
    let engine = engine(16 << 20);
    let file = scratch.open();
    let mut map = write(&engine, &file);
    for (at, word) in map.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&(!word_of(at)).to_le_bytes());
    }
    map[BYTES - 1] = 0xAB;
    map.flush().unwrap();
    assert_eq!(map.dirty_bytes(), 0);
    let content = scratch.content();
    assert_eq!(content.len(), BYTES, "it has not become longer");
    assert_eq!(content[BYTES - 1], 0xAB);
    let wrong = (content.chunks_exact(8).enumerate())
        .find(|(at, word)| **word != (!word_of(*at)).to_le_bytes());
    assert_eq!(wrong.map(|(at, _)| at * 8 / PAGE), None);
    let stats = engine.stats();
    assert!(stats.peak_bytes <= 16 << 20, "{}", stats.peak_bytes);
    assert!(stats.written_back_bytes >= BYTES as u64 - PAGE as u64);
    assert!(
        stats.written_back_bytes <= 2 * BYTES as u64,
        "{}",
        stats.written_back_bytes
    );
}

#[test]
fn all_maps_of_the_engine_see_it_at_once() {
    let scratch = Scratch::new("seen", 64 * PAGE);
    let engine = engine(16 << 20);
    let file = scratch.open();
    let mut map = write(&engine, &file);
    let seen = read(&engine, &file);
    let mut part = MmapOptions::new();
    part.offset(5 * PAGE as u64 + 100).len(3 * PAGE);
    // SAFETY: written bytes are looked for.
    let mut part = unsafe { part.map_mut_in(&engine, &file) }.unwrap();
    assert!(seen.is_managed());
    map[5 * PAGE + 101] = 1;
    part[2] = 2;
    assert_eq!((byte(&seen, 5 * PAGE + 101), byte(&part, 1)), (1, 1));
    assert_eq!(
        (byte(&seen, 5 * PAGE + 102), byte(&map, 5 * PAGE + 102)),
        (2, 2)
    );
    assert_ne!(in_file(&file, 5 * PAGE + 101), 1, "not yet");
    assert_eq!(map.dirty_bytes(), PAGE as u64);
    part.flush().unwrap();
    assert_eq!(
        (
            in_file(&file, 5 * PAGE + 101),
            in_file(&file, 5 * PAGE + 102)
        ),
        (1, 2)
    );
    // Another engine, when it is written back.
    let other = Engine::builder()
        .memory(16 << 20)
        .small_maps(0)
        .build()
        .unwrap();
    assert_eq!(byte(&read(&other, &file), 5 * PAGE + 101), 1);
    // As a map that is only read it can be pinned, and written from.
    map[9 * PAGE] = 3;
    let map = map.make_read_only().unwrap();
    assert_eq!(map.pin(9 * PAGE..9 * PAGE + 1).unwrap()[0], 3);
    drop(map);
    assert_eq!(
        in_file(&file, 9 * PAGE),
        3,
        "pages of a dropped map are in the file"
    );
}

#[test]
fn neighbours_stay_as_others_have_written_them() {
    let scratch = Scratch::new("neighbours", 64 * PAGE);
    let engine = engine(16 << 20);
    let file = scratch.open();
    let mut map = write(&engine, &file);
    (0..64).for_each(|page| assert_eq!(byte(&map, page * PAGE), in_file(&file, page * PAGE)));
    map[20 * PAGE] = 7;
    file.write_all_at(&[9; PAGE], 21 * PAGE as u64).unwrap();
    map.flush().unwrap();
    assert_eq!(
        (in_file(&file, 20 * PAGE), in_file(&file, 21 * PAGE)),
        (7, 9)
    );
    map.advise(Advice::PageOut).unwrap();
    assert_eq!(byte(&map, 21 * PAGE), 9, "once it is read again");
}

/// A map that cannot be had under the budget is the kernel's, or its error.
#[test]
fn maps_that_the_engine_cannot_serve_are_the_kernels() {
    let scratch = Scratch::new("kernels", 512 * PAGE);
    let engine = engine(16 << 20);
    let file = scratch.open();
    let only_read = File::open(&scratch.0).unwrap();
    // SAFETY: nothing is made.
    let refused = unsafe { engine.map_mut(&only_read) }.unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied);
    // Somebody has a window of it that is only read.
    let seen = read(&engine, &file);
    assert_ne!(byte(&seen, 0), 5);
    // SAFETY: written bytes are looked for.
    let mut map = unsafe { engine.map_mut(&file) }.unwrap();
    assert!(!map.is_managed());
    map[0] = 5;
    assert_eq!((byte(&seen, 0), in_file(&file, 0)), (5, 5));
    drop((map, seen));
    // Now it can be had.
    let mut map = write(&engine, &file);
    map[0] = 6;
    assert_eq!(in_file(&file, 0), 5);
    map.flush().unwrap();
    assert_eq!(in_file(&file, 0), 6);
}

#[test]
fn old_pages_are_written_back_without_a_call() {
    let scratch = Scratch::new("older", 64 * PAGE);
    let engine = engine(16 << 20);
    let file = scratch.open();
    let mut map = write(&engine, &file);
    map[PAGE] = 5;
    let begun = Instant::now();
    while in_file(&file, PAGE) != 5 {
        // No time is judged but that it ends: a busy machine may take longer.
        assert!(begun.elapsed() < Duration::from_secs(300));
        std::thread::sleep(Duration::from_millis(50));
    }
    map[2 * PAGE] = 6;
    map.flush_async().unwrap();
    while in_file(&file, 2 * PAGE) != 6 {
        assert!(begun.elapsed() < Duration::from_secs(300));
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Also while others make more dirty than the device takes, of a page that no eviction comes to.
#[test]
fn old_pages_are_written_back_under_load_too() {
    const PAGES: usize = (48 << 20) / PAGE;
    let scratch = Scratch::new("load", PAGES * PAGE);
    let engine = engine(10 << 20);
    let file = scratch.open();
    let mut map = write(&engine, &file);
    let seen = read(&engine, &file);
    let pinned = seen.pin(0..1).unwrap();
    map[0] = 9;
    let start = map.as_ptr().addr();
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Random::new(77);
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                let page = 1 + random.below(PAGES - 1);
                let word = random.below(usize::MAX) as u64;
                // SAFETY: a word of the map that nobody else writes to.
                unsafe { ((start + page * PAGE) as *mut u64).write_volatile(word) };
            }
        });
        let begun = Instant::now();
        while in_file(&file, 0) != 9 && begun.elapsed() < Duration::from_secs(300) {
            std::thread::sleep(Duration::from_millis(20));
        }
        over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert_eq!((pinned[0], in_file(&file, 0)), (9, 9));
}

#[test]
fn system_calls_get_pages_that_they_can_write_to() {
    let scratch = Scratch::new("calls", 600 * PAGE);
    let engine = engine(16 << 20);
    let file = scratch.open();
    let mut map = write(&engine, &file);
    let source: Vec<u8> = (0..300 * PAGE).map(|at| (at / 3) as u8).collect();
    let from = Scratch::new("from", 0);
    std::fs::write(&from.0, &source).unwrap();
    let mut reader = File::open(&from.0).unwrap();
    // Pages that are there, and protected, too.
    let _ = byte(&map, 40 * PAGE);
    assert_eq!(
        map.read_from(33 * PAGE + 7.., &mut reader).unwrap(),
        source.len() as u64
    );
    let mut copy = vec![0; source.len()];
    assert_eq!(map.read_at(&mut copy, 33 * PAGE + 7), Ok(source.len()));
    assert!(copy == source);
    assert_eq!(map.write_at(b"here", 500 * PAGE), Ok(4));
    let mut written = Vec::new();
    map.write_to(500 * PAGE..500 * PAGE + 4, &mut written)
        .unwrap();
    assert_eq!(written, b"here");
    map.lock().unwrap();
    map[0] = 1;
    map.flush().unwrap();
    // Locked pages are written to by the kernel at any time.
    file.read_exact_at(&mut map[..2 * PAGE], 100 * PAGE as u64)
        .unwrap();
    map.unlock().unwrap();
    map.flush().unwrap();
    let content = scratch.content();
    assert!(content[33 * PAGE + 7..][..source.len()] == source);
    assert!(content[..2 * PAGE] == content[100 * PAGE..102 * PAGE]);
}

/// A flush of many pages protects all of the window: dirty pages beside them are open to a system call all the same.
#[test]
fn pinned_pages_in_a_protected_window_are_open_to_system_calls() {
    const FOLIOS: usize = 80;
    const FOLIO: usize = 16 * PAGE;
    let scratch = Scratch::new("opened", FOLIOS * FOLIO);
    let engine = engine(16 << 20);
    let file = scratch.open();
    let mut map = write(&engine, &file);
    (0..FOLIOS).for_each(|folio| map[folio * FOLIO] = 1);
    map.flush_range(0, FOLIOS / 2 * FOLIO).unwrap();
    let mut reader: &[u8] = &[2; FOLIO];
    let last = (FOLIOS - 1) * FOLIO;
    assert_eq!(map.read_from(last.., &mut reader).unwrap(), FOLIO as u64);
    // By a system call.
    let mut reader = scratch.open();
    assert_eq!(
        map.read_from(last - FOLIO..last, &mut reader).unwrap(),
        FOLIO as u64
    );
    map.lock().unwrap();
    file.read_exact_at(&mut map[last - 3 * FOLIO..last - FOLIO], 0)
        .unwrap();
    assert_eq!(
        map[last - 3 * FOLIO..last - FOLIO],
        scratch.content()[..2 * FOLIO]
    );
}

/// A child gets the file by a mapping that the parent makes, and has only while it forks.
#[test]
fn a_fork_leaves_no_mapping_of_the_file() {
    // Alone: while another test forks, the mapping is there.
    if child::scenario().is_none() {
        return child::succeeds("a_fork_leaves_no_mapping_of_the_file", "alone");
    }
    let scratch = Scratch::new("aside", 64 * PAGE);
    let file = scratch.open();
    let inode = std::os::unix::fs::MetadataExt::ino(&file.metadata().unwrap()).to_string();
    let engine = engine(16 << 20);
    let map = write(&engine, &file);
    let mappings = || {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let of_file = |line: &&str| line.split_ascii_whitespace().nth(4) == Some(&inode);
        maps.lines().filter(of_file).count()
    };
    assert_eq!(mappings(), 0, "the window is none");
    for _ in 0..3 {
        let status = forked(|| i32::from(mappings() != 1 || map.len() != 64 * PAGE));
        assert_eq!((status, mappings()), (0, 0));
    }
}

#[test]
fn a_child_of_fork_writes_to_the_same_file() {
    let scratch = Scratch::new("child", 64 * PAGE);
    let engine = engine(16 << 20);
    let file = scratch.open();
    let mut map = write(&engine, &file);
    let seen = read(&engine, &file);
    map[0] = 7;
    map[3] = 8;
    let status = forked(|| {
        let (was, also) = (byte(&map, 0), byte(&seen, 3));
        map[10 * PAGE] = 9;
        let flushed = map.flush().is_ok() && !map.is_managed();
        i32::from(was != 7 || also != 8 || !flushed)
    });
    assert_eq!(status, 0);
    assert_eq!(in_file(&file, 10 * PAGE), 9);
    map[0] = 10;
    map.advise(Advice::PageOut).unwrap();
    assert_eq!((byte(&map, 0), byte(&map, 10 * PAGE)), (10, 9));
}

#[test]
fn a_file_becomes_shorter_and_longer() {
    let scratch = Scratch::new("length", 64 * PAGE);
    let engine = engine(16 << 20);
    let file = scratch.open();
    let mut map = write(&engine, &file);
    map.fill(0xCD);
    engine.truncate(&file, 10 * PAGE as u64 + 100).unwrap();
    let mut bytes = [0; 8];
    assert_eq!(
        map.read_at(&mut bytes, 20 * PAGE),
        Err(FaultError::BeyondEnd)
    );
    assert_eq!(map.write_at(&bytes, 20 * PAGE), Err(FaultError::BeyondEnd));
    // In the last page, past the end: nobody is to see it.
    map[10 * PAGE + 500] = 1;
    engine.truncate(&file, 64 * PAGE as u64).unwrap();
    assert_eq!(
        (byte(&map, 10 * PAGE + 99), byte(&map, 10 * PAGE + 500)),
        (0xCD, 0)
    );
    assert_eq!(byte(&map, 20 * PAGE), 0);
    map[63 * PAGE] = 4;
    // Longer than it was, and the map with it.
    engine.truncate(&file, 200 * PAGE as u64).unwrap();
    // SAFETY: nobody has a reference to its bytes.
    unsafe { map.remap(200 * PAGE, Default::default()) }.unwrap();
    map[199 * PAGE] = 5;
    map.flush().unwrap();
    let content = scratch.content();
    assert_eq!(content.len(), 200 * PAGE);
    assert_eq!((content[63 * PAGE], content[199 * PAGE]), (4, 5));
    assert_eq!(content[10 * PAGE + 500], 0);
    // SAFETY: nobody relies on the bytes.
    unsafe { map.unchecked_advise_range(UncheckedAdvice::Remove, 0, 4 * PAGE) }.unwrap();
    assert_eq!((byte(&map, PAGE), byte(&map, 4 * PAGE)), (0, 0xCD));
    // By whole pages.
    // SAFETY: as above.
    unsafe { map.unchecked_advise_range(UncheckedAdvice::Remove, 6 * PAGE - 1, 2) }.unwrap();
    let left = [5, 6, 7].map(|page| (byte(&map, page * PAGE), byte(&map, page * PAGE + PAGE - 1)));
    assert_eq!(left, [(0, 0), (0, 0), (0xCD, 0xCD)]);
    // As madvise(2) has it, no locked page is taken.
    map.lock().unwrap();
    // SAFETY: as above.
    let refused = unsafe { map.unchecked_advise_range(UncheckedAdvice::Remove, 0, PAGE) };
    assert_eq!(
        refused.unwrap_err().kind(),
        std::io::ErrorKind::InvalidInput
    );
}

/// Maps that are made meanwhile have looked at the file before it became longer, and tell nobody how long it was.
#[test]
fn a_file_that_has_become_longer_stays_so() {
    const LONG: usize = 200 * PAGE;
    let scratch = Scratch::new("longer", LONG);
    let engine = engine(16 << 20);
    let file = scratch.open();
    let map = write(&engine, &file);
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                drop(read(&engine, &file));
            }
        });
        let _over = softfault_oracle::Finally(|| {
            over.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        for step in 0..20_000 {
            engine.truncate(&file, 10 * PAGE as u64).unwrap();
            engine.truncate(&file, LONG as u64).unwrap();
            // A page that is not there: it would say that the file ends before it.
            let at = (20 + step % 150) * PAGE;
            map.read_at(&mut [0; 8], at).unwrap();
        }
    });
}

/// A map reaches as far as its file, however much longer that becomes, and by whom; and no further.
#[test]
fn a_file_that_others_make_longer_is_reached_by_its_maps() {
    const ROOM: usize = 100 << 20;
    let scratch = Scratch::new("reached", 10 * PAGE + 5);
    let engine = engine(16 << 20);
    let file = scratch.open();
    let mut all = MmapOptions::new();
    // SAFETY: written bytes are looked for.
    let mut map = unsafe { all.len(ROOM).map_mut_in(&engine, &file) }.unwrap();
    assert!(map.is_managed());
    map[10 * PAGE + 4] = 1;
    assert_eq!(map.write_at(&[2], 11 * PAGE), Err(FaultError::BeyondEnd));
    file.set_len(80 << 20).unwrap();
    map[70 << 20] = 3;
    assert_eq!(map.write_at(&[4], (80 << 20) - 1), Ok(1));
    assert_eq!(map.populate((71 << 20)..(72 << 20)), Ok(()));
    assert_eq!(map.write_at(&[5], 80 << 20), Err(FaultError::BeyondEnd));
    file.write_all_at(&[6; PAGE], 90 << 20).unwrap();
    assert_eq!((byte(&map, 90 << 20), byte(&map, 85 << 20)), (6, 0));
    // Shorter it is by the engine, and then it is so for all.
    engine.truncate(&file, 20 * PAGE as u64).unwrap();
    assert_eq!(map.write_at(&[7], 20 * PAGE), Err(FaultError::BeyondEnd));
    map.flush().unwrap();
    let content = scratch.content();
    assert_eq!(content.len(), 20 * PAGE);
    assert_eq!(content[10 * PAGE + 4], 1);
}

/// The page that the file ended in: stores by maps after others have moved the end on, and others' appends.
#[test]
fn both_write_to_the_page_that_the_file_ended_in() {
    const END: usize = 10 * PAGE + 5;
    let scratch = Scratch::new("ended", END);
    let engine = engine(16 << 20);
    let file = scratch.open();
    let mut map = write(&engine, &file);
    map[END - 1] = 1;
    file.write_all_at(b"appended", END as u64).unwrap();
    map[END - 2] = 2;
    // SAFETY: within the page, which the map has as a whole.
    unsafe { map.as_mut_ptr().add(END + 100).write_volatile(3) };
    file.set_len(END as u64 + 200).unwrap();
    map.flush().unwrap();
    let content = scratch.content();
    assert_eq!(content.len(), END + 200);
    assert_eq!((content[END - 2], content[END - 1]), (2, 1));
    assert_eq!(
        (&content[END..END + 8], content[END + 100]),
        (&b"appended"[..], 3)
    );
    // A thread that maps the page anew has all of it, and zeros are stored as other bytes are.
    map.advise(Advice::PageOut).unwrap();
    let mut map = write(&engine, &file);
    assert_eq!(map[END..END + 8], *b"appended");
    file.write_all_at(&[7; 64], END as u64 + 200).unwrap();
    map.advise(Advice::PageOut).unwrap();
    map[END - 3] = 4;
    // SAFETY: as above.
    unsafe { map.as_mut_ptr().add(END + 200).write_volatile(0) };
    map.flush().unwrap();
    let content = scratch.content();
    assert_eq!((content.len(), content[END - 3]), (END + 264, 4));
    assert_eq!((content[END + 200], content[END + 201]), (0, 7));
}

/// A touch past the end that looks how long the file is, and a truncate at the same time: the range that was cut off stays so.
#[test]
fn a_touch_past_the_end_does_not_make_a_file_longer() {
    const LONG: usize = 200 * PAGE;
    let scratch = Scratch::new("touched", LONG);
    let engine = engine(16 << 20);
    let file = scratch.open();
    let map = write(&engine, &file);
    let start = map.as_ptr().addr();
    let over = std::sync::atomic::AtomicBool::new(false);
    let calls = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut other = write(&engine, &file);
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                let _ = other.write_at(&[1; 8], 150 * PAGE);
                // Release pairs with the Acquire below: the call is over.
                calls.fetch_add(1, std::sync::atomic::Ordering::Release);
                let _ = other.flush();
            }
        });
        let _over = softfault_oracle::Finally(|| {
            over.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        for _ in 0..1_000 {
            engine.truncate(&file, 10 * PAGE as u64).unwrap();
            assert_eq!(file.metadata().unwrap().len(), 10 * PAGE as u64);
            // A page that the other's call keeps for a moment stays as long: the call may have begun before the cut, no later one.
            let begun = calls.load(std::sync::atomic::Ordering::Acquire);
            let mut bytes = [0; 8];
            let mut refused = map.read_at(&mut bytes, 150 * PAGE);
            if refused.is_ok() {
                while calls.load(std::sync::atomic::Ordering::Acquire) == begun {
                    std::thread::yield_now();
                }
                refused = map.read_at(&mut bytes, 150 * PAGE);
            }
            assert_eq!(refused, Err(FaultError::BeyondEnd));
            assert_eq!(file.metadata().unwrap().len(), 10 * PAGE as u64);
            engine.truncate(&file, LONG as u64).unwrap();
            // SAFETY: a byte of the map, which the file has.
            let last = unsafe { ((start + LONG - 1) as *const u8).read_volatile() };
            assert_eq!(last, 0);
        }
    });
}

/// Writes past the place where a file was to be cut are there if it could not be cut.
#[test]
fn a_file_that_cannot_become_shorter_keeps_its_writes() {
    let scratch = Scratch::new("uncut", 64 * PAGE);
    let engine = engine(16 << 20);
    let file = scratch.open();
    let mut map = write(&engine, &file);
    (0..64).for_each(|page| map[page * PAGE + 7] = page as u8 + 1);
    let only_read = File::open(&scratch.0).unwrap();
    engine
        .truncate(&only_read, 10 * PAGE as u64 + 3)
        .unwrap_err();
    (0..64).for_each(|page| assert_eq!(byte(&map, page * PAGE + 7), page as u8 + 1));
    map.flush().unwrap();
    let content = scratch.content();
    (0..64).for_each(|page| assert_eq!(content[page * PAGE + 7], page as u8 + 1));
}

/// A write to a hole for which the disk has no block is an error.
#[test]
fn a_full_disk_is_an_error() {
    small_disk::with_file("w-full", |file| {
        let engine = engine(16 << 20);
        let mut map = write(&engine, &file);
        assert_eq!(map.write_at(&[1; PAGE], 0), Ok(PAGE));
        let refused = map.write_at(&vec![2; small_disk::BYTES], 0);
        assert_eq!(refused, Err(FaultError::Io(libc::ENOSPC)));
        assert_eq!(map.populate(..), Err(FaultError::Io(libc::ENOSPC)));
        assert_eq!(map[0], 2, "the pages that there was room for are written");
        assert_eq!(byte(&map, small_disk::BYTES - 1), 0, "a hole is read");
        map.flush().unwrap();
        let status = forked(|| {
            map[small_disk::BYTES - 1] = 3;
            0
        });
        assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGBUS);
    });
}

/// Each thread has a word of its own in each page, of four budgets; beside them one flushes, and one has pages given away.
#[test]
fn no_write_is_lost_beside_flushes_and_eviction() {
    const THREADS: usize = 4;
    const PAGES: usize = (40 << 20) / PAGE;
    let scratch = Scratch::new("threads", PAGES * PAGE);
    let engine = engine(10 << 20);
    let file = scratch.open();
    let map = write(&engine, &file);
    let over = std::sync::atomic::AtomicBool::new(false);
    let start = map.as_ptr().addr();
    let mut latest = vec![];
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn(move || {
                    let mut latest = vec![0u64; PAGES];
                    let mut random = Random::new(thread as u64);
                    for count in 1..=6_000_u64 {
                        let page = random.below(PAGES);
                        let at = (start + page * PAGE + thread * 8) as *mut u64;
                        // SAFETY: a word of the map that is this thread's.
                        let seen = unsafe { at.read_volatile() };
                        if latest[page] > 0 {
                            assert_eq!(seen, latest[page], "page {page}");
                        }
                        // SAFETY: as above.
                        unsafe { at.write_volatile(count) };
                        latest[page] = count;
                    }
                    latest
                })
            })
            .collect();
        let over = &over;
        let map = &map;
        scope.spawn(move || {
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                map.flush().unwrap();
            }
        });
        scope.spawn(move || {
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                map.advise(Advice::PageOut).unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        latest = writers.into_iter().map(|writer| writer.join()).collect();
        over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    map.flush().unwrap();
    let content = scratch.content();
    for (thread, latest) in latest.into_iter().enumerate() {
        for (page, count) in latest.unwrap().into_iter().enumerate() {
            let at = page * PAGE + thread * 8;
            let word = u64::from_le_bytes(content[at..at + 8].try_into().unwrap());
            let expected = if count > 0 { count } else { word_of(at / 8) };
            assert_eq!(word, expected, "page {page} of {thread}");
        }
    }
}
