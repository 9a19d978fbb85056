//! Maps that write to their file over the engine, under its budget: each cell of `docs/contract.md` that says so.

mod child;
mod small_disk;
mod write_scene;

use child::forked;
use softfault::{Advice, Engine, FaultError, MmapOptions, UncheckedAdvice};
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
    // SAFETY: what is written is looked for.
    let mut part = unsafe { part.map_mut_with(&engine, &file) }.unwrap();
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
        "what is dropped is in the file"
    );
}

#[test]
fn neighbours_stay_as_others_have_written_them() {
    let scratch = Scratch::new("neighbours", 64 * PAGE);
    let engine = engine(16 << 20);
    let file = scratch.open();
    let mut map = write(&engine, &file);
    (0..64).for_each(|page| assert_eq!(byte(&map, page * PAGE), byte(&map, page * PAGE)));
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

/// What cannot be had under the budget is the kernel's, or its error.
#[test]
fn what_is_not_to_be_had_is_the_kernels() {
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
    // SAFETY: what is written is looked for.
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
fn what_is_old_is_written_back_unasked() {
    let scratch = Scratch::new("older", 64 * PAGE);
    let engine = engine(16 << 20);
    let file = scratch.open();
    let mut map = write(&engine, &file);
    map[PAGE] = 5;
    let begun = Instant::now();
    while in_file(&file, PAGE) != 5 {
        // No time is judged but that it ends: a busy machine may take longer.
        assert!(begun.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(50));
    }
    map[2 * PAGE] = 6;
    map.flush_async().unwrap();
    while in_file(&file, 2 * PAGE) != 6 {
        assert!(begun.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Also while others make more dirty than the device takes, of a page that no eviction comes to.
#[test]
fn what_is_old_is_written_back_under_load_too() {
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
            let mut word = 77_u64;
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                word = word.wrapping_mul(6364136223846793005).wrapping_add(1);
                let page = 1 + (word >> 33) as usize % (PAGES - 1);
                // SAFETY: a word of the map that nobody else writes to.
                unsafe { ((start + page * PAGE) as *mut u64).write_volatile(word) };
            }
        });
        let begun = Instant::now();
        while in_file(&file, 0) != 9 && begun.elapsed() < Duration::from_secs(60) {
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
    // What is there, and protected, too.
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

/// What was written past where a file was to be cut is there if it could not be cut.
#[test]
fn a_file_that_cannot_become_shorter_keeps_what_was_written() {
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
        assert_eq!(map[0], 2, "what there was room for is written");
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
                    let mut word = 0x1234_5678_9abc_def1_u64 + thread as u64 * 77;
                    for count in 1..=6_000_u64 {
                        word ^= word << 13;
                        word ^= word >> 7;
                        word ^= word << 17;
                        let page = (word >> 20) as usize % PAGES;
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

/// Drawn, beside a file that the kernel maps: each byte is the same, in the maps and in the files.
#[test]
fn drawn_operations_beside_the_kernels_own_map() {
    const BYTES: usize = (24 << 20) + 777;
    let (ours, theirs) = (Scratch::new("ours", BYTES), Scratch::new("theirs", BYTES));
    let (file, twin) = (ours.open(), theirs.open());
    let engine = engine(9 << 20);
    let kernel = Engine::builder().memory(9 << 20).build().unwrap();
    let mut map = write(&engine, &file);
    // SAFETY: nobody else has the file.
    let mut other = unsafe { kernel.map_mut(&twin) }.unwrap();
    assert!(!other.is_managed());
    let mut readers = vec![];
    let mut word = 0x9abc_def1_2345_6789_u64;
    let mut draw = |most: usize| {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        (word >> 16) as usize % most
    };
    for step in 0..6_000 {
        let at = draw(BYTES);
        let count = (1 + draw(3 * PAGE)).min(BYTES - at);
        match draw(18) {
            0..=5 => {
                map[at..at + count].fill(step as u8);
                other[at..at + count].fill(step as u8);
            }
            6 => {
                let bytes = vec![step as u8; count];
                assert_eq!(map.write_at(&bytes, at), Ok(count));
                other[at..at + count].fill(step as u8);
            }
            7 => map.flush_range(at, count).unwrap(),
            8 => {
                map.flush_range(at, count).unwrap();
                let mut seen = vec![0; count];
                file.read_exact_at(&mut seen, at as u64).unwrap();
                assert!(
                    seen == other[at..at + count],
                    "step {step}: the file at {at}"
                );
            }
            9 => map
                .advise_range(Advice::PageOut, at & !(PAGE - 1), count)
                .unwrap(),
            10 if readers.len() < 3 => readers.push(read(&engine, &file)),
            11 if !readers.is_empty() => drop(readers.swap_remove(draw(readers.len()))),
            12 if draw(20) == 0 => {
                // By another: seen when the page is read again.
                map.flush_range(at, count).unwrap();
                file.write_all_at(&vec![step as u8; count], at as u64)
                    .unwrap();
                other[at..at + count].fill(step as u8);
                map.advise_range(Advice::PageOut, at & !(PAGE - 1), count + PAGE)
                    .unwrap();
            }
            13 if draw(40) == 0 => {
                drop(map);
                map = write(&engine, &file);
            }
            15 => {
                let to = draw(BYTES - count);
                map.copy_within(at..at + count, to);
                other.copy_within(at..at + count, to);
            }
            16 if draw(4) == 0 => {
                let start = at & !(PAGE - 1);
                let pages = count
                    .next_multiple_of(PAGE)
                    .min((BYTES - start) & !(PAGE - 1));
                let punch = UncheckedAdvice::Remove;
                // SAFETY: nobody relies on the bytes.
                unsafe { map.unchecked_advise_range(punch, start, pages) }.unwrap();
                // SAFETY: as above.
                unsafe { other.unchecked_advise_range(punch, start, pages) }.unwrap();
            }
            14 if draw(100) == 0 => {
                let len = at as u64;
                engine.truncate(&file, len).unwrap();
                engine.truncate(&file, BYTES as u64).unwrap();
                twin.set_len(len).unwrap();
                twin.set_len(BYTES as u64).unwrap();
            }
            _ => {
                assert!(
                    map[at..at + count] == other[at..at + count],
                    "step {step}: {at}"
                );
                for reader in &readers {
                    assert!(
                        reader[at..at + count] == other[at..at + count],
                        "step {step}: {at}"
                    );
                }
            }
        }
    }
    map.flush().unwrap();
    other.flush().unwrap();
    assert!(ours.content() == theirs.content());
    let _ = std::hint::black_box(&mut other);
}
