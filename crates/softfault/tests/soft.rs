//! The engine over soft page tables, on real files: it shows the bytes that the
//! file holds or that were written, under the budget.

mod child;
mod files;

use files::{byte_at, made_file};
use softfault::soft::SoftEngine;
use softfault::{Advice, Engine, FaultError, MIN_MEMORY};
use std::fs::File;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicUsize, Ordering};

const PAGE: usize = 4096;

fn engine(memory: usize) -> SoftEngine {
    let builder = Engine::builder()
        .allow_kernel_maps(false)
        .memory(memory)
        .max_memory(4 * memory);
    builder.build_soft().unwrap()
}

fn file(bytes: usize) -> File {
    made_file("soft", bytes)
}

#[test]
fn a_file_larger_than_the_budget_shows_its_bytes() {
    let bytes = 3 * MIN_MEMORY + 1234;
    let file = file(bytes);
    let engine = engine(MIN_MEMORY);
    let map = engine.map(&file).unwrap();
    assert_eq!(map.len(), bytes);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let map = &map;
            scope.spawn(move || {
                let mut buffer = vec![0; 10_000];
                let mut at = thread * 77_777;
                for _ in 0..2_000 {
                    let count = map.read_at(&mut buffer, at).unwrap();
                    assert_eq!(count, (bytes - at).min(10_000));
                    let expected = (at..at + count).map(byte_at);
                    assert!(buffer[..count].iter().copied().eq(expected), "at {at}");
                    at = (at * 7 + 40_961) % bytes;
                }
            });
        }
    });
    assert_eq!(map.read_at(&mut [0; 10], bytes + 5), Ok(0));
    let stats = engine.stats();
    assert!(stats.peak_bytes <= MIN_MEMORY as u64, "{stats:?}");
    assert!(stats.evicted > 0 && stats.major_faults > 0, "{stats:?}");
}

#[test]
fn pinned_pages_stay() {
    let file = file(2 * MIN_MEMORY);
    let engine = engine(MIN_MEMORY);
    let map = engine.map(&file).unwrap();
    let pinned = map.pin(3 * PAGE + 5..9 * PAGE).unwrap();
    for at in (0..map.len()).step_by(PAGE) {
        map.read_at(&mut [0], at).unwrap();
    }
    assert_eq!(map.residency(3 * PAGE..9 * PAGE).unwrap().mapped, 6);
    let mut buffer = [0; 2 * PAGE];
    assert_eq!(pinned.read_at(&mut buffer, PAGE), 2 * PAGE);
    let first = 4 * PAGE + 5;
    assert!(
        buffer
            .iter()
            .copied()
            .eq((first..).take(2 * PAGE).map(byte_at))
    );
    assert_eq!(map.pin(0..map.len()).unwrap_err(), FaultError::NoMemory);
    assert_eq!(
        map.pin(0..map.len() + 1).unwrap_err(),
        FaultError::OutOfRange
    );
}

/// Half of the budget can be pinned: so a quarter as often as it was let go.
#[test]
fn a_pin_that_ended_counts_no_more() {
    let file = file(2 * MIN_MEMORY);
    let engine = engine(MIN_MEMORY);
    let map = engine.map(&file).unwrap();
    let quarter = MIN_MEMORY / 4;
    for round in 0..8 {
        let pinned = map.pin(round * quarter..(round + 1) * quarter);
        assert_eq!(pinned.map(|pinned| pinned.len()), Ok(quarter), "{round}");
    }
}

#[test]
fn two_maps_of_a_file_share_its_pages_and_a_third_finds_them() {
    let file = file(64 * PAGE);
    // A file that has just changed may change again within one time stamp.
    std::thread::sleep(std::time::Duration::from_millis(60));
    let engine = engine(MIN_MEMORY);
    let (one, two) = (engine.map(&file).unwrap(), engine.map(&file).unwrap());
    one.advise(Advice::Random).unwrap();
    one.read_at(&mut [0; PAGE], 10 * PAGE).unwrap();
    let read = engine.stats().bytes_read;
    two.read_at(&mut [0; PAGE], 10 * PAGE).unwrap();
    drop((one, two));
    let three = engine.map(&file).unwrap();
    three.read_at(&mut [0; PAGE], 10 * PAGE).unwrap();
    assert_eq!(engine.stats().bytes_read, read);
}

#[test]
fn anonymous_memory_is_zeros_until_written_and_given_back() {
    let engine = engine(MIN_MEMORY);
    let before = engine.stats().resident_bytes;
    let map = engine.map_anon(300 * PAGE + 17).unwrap();
    let mut buffer = [1; 3 * PAGE];
    assert_eq!(map.read_at(&mut buffer, 5 * PAGE), Ok(3 * PAGE));
    assert!(buffer.iter().all(|&byte| byte == 0));
    assert_eq!(map.write_at(&[7; 5000], 100 * PAGE - 50), Ok(5000));
    assert_eq!(map.write_at(&[7; 100], 300 * PAGE), Ok(17));
    assert_eq!(map.read_at(&mut buffer, 100 * PAGE - 51), Ok(3 * PAGE));
    assert_eq!(
        (buffer[0], buffer[1], buffer[5000], buffer[5001]),
        (0, 7, 7, 0)
    );
    assert!(map.resident_bytes() >= 6 * PAGE);
    drop(map);
    assert_eq!(engine.stats().resident_bytes, before);
}

#[test]
fn a_budget_that_is_full_is_an_error_and_loses_nothing() {
    let engine = engine(MIN_MEMORY);
    let map = engine.map_anon(2 * MIN_MEMORY).unwrap();
    let mut written = 0;
    let error = loop {
        match map.write_at(&[written as u8 | 1], written * PAGE) {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error, FaultError::NoMemory);
    assert!(written * PAGE > MIN_MEMORY / 2, "{written} pages");
    let mut byte = [0];
    for page in 0..written {
        map.read_at(&mut byte, page * PAGE).unwrap();
        assert_eq!(byte[0], page as u8 | 1);
    }
}

static HANDLED: AtomicUsize = AtomicUsize::new(0);

extern "C" fn count(_: i32) {
    HANDLED.fetch_add(1, Ordering::Relaxed);
}

/// Failed before: each handled signal counted as 10 ms in which no memory came back, and 100 of these as no hope.
#[test]
fn signals_do_not_end_the_wait_for_memory() {
    let engine = engine(MIN_MEMORY);
    // Its page table is paid for while there is memory.
    let wanted = engine.map_anon(PAGE).unwrap();
    let full = engine.map_anon(2 * MIN_MEMORY).unwrap();
    let mut pages = 0..2 * MIN_MEMORY / PAGE;
    assert!(pages.any(|page| full.write_at(&[1], page * PAGE).is_err()));
    // SAFETY: a handler that only counts.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = count as *const () as usize;
        let installed = libc::sigaction(libc::SIGUSR1, &action, core::ptr::null_mut());
        assert_eq!(installed, 0);
    }
    // SAFETY: only asks.
    let waiter = unsafe { libc::pthread_self() } as usize;
    let written = std::thread::scope(|scope| {
        scope.spawn(|| {
            // Ten times as many as were no hope.
            for sent in 1..=1000 {
                // SAFETY: the thread waits for this one.
                unsafe { libc::pthread_kill(waiter as libc::pthread_t, libc::SIGUSR1) };
                while HANDLED.load(Ordering::Relaxed) < sent {
                    std::thread::yield_now();
                }
            }
            drop(full);
        });
        wanted.write_at(&[1], 0)
    });
    assert_eq!(written, Ok(1));
}

#[test]
fn a_fork_is_a_snapshot_of_one_moment() {
    let file = file(40 * PAGE);
    let engine = engine(2 * MIN_MEMORY);
    let (map, anon) = (
        engine.map(&file).unwrap(),
        engine.map_anon(50 * PAGE).unwrap(),
    );
    for page in 0..50 {
        anon.write_at(&[page as u8], page * PAGE).unwrap();
    }
    let fork = engine.fork().unwrap();
    anon.write_at(&[99], 3 * PAGE).unwrap();
    fork.write_at(&anon, &[88], 4 * PAGE).unwrap();
    let mut byte = [0; 1];
    for page in 0..50 {
        fork.read_at(&anon, &mut byte, page * PAGE).unwrap();
        assert_eq!(byte[0], if page == 4 { 88 } else { page as u8 });
        anon.read_at(&mut byte, page * PAGE).unwrap();
        assert_eq!(byte[0], if page == 3 { 99 } else { page as u8 });
    }
    assert_eq!(fork.read_file_at(&map, &mut byte, 7 * PAGE), Ok(1));
    assert_eq!(byte[0], byte_at(7 * PAGE));
    let later = engine.map_anon(PAGE).unwrap();
    assert_eq!(
        fork.read_at(&later, &mut byte, 0),
        Err(FaultError::OutOfRange)
    );
    let resident = engine.stats().resident_bytes;
    drop(fork);
    assert!(engine.stats().resident_bytes <= resident - 50 * PAGE as u64);
}

#[test]
fn a_fork_that_cannot_be_paid_for_is_refused_and_leaves_nothing() {
    let engine = engine(MIN_MEMORY);
    let anon = engine.map_anon(MIN_MEMORY * 5 / 8).unwrap();
    for at in (0..anon.len()).step_by(PAGE) {
        anon.write_at(&[3], at).unwrap();
    }
    let resident = engine.stats().resident_bytes;
    assert_eq!(engine.fork().unwrap_err().kind(), ErrorKind::OutOfMemory);
    assert_eq!(engine.stats().resident_bytes, resident);
    anon.write_at(&[4], 0).unwrap();
}

#[test]
fn a_budget_of_another_engine_cannot_pay() {
    let builder = Engine::builder().allow_kernel_maps(false);
    let parent = match builder.memory(2 * MIN_MEMORY).build() {
        Ok(parent) => parent,
        Err(closed) => {
            assert_eq!(closed.kind(), ErrorKind::PermissionDenied, "{closed}");
            return softfault_skip::skipped("kernel", closed);
        }
    };
    let nested = Engine::builder()
        .allow_kernel_maps(false)
        .memory(MIN_MEMORY)
        .within(&parent);
    let refused = nested.build_soft().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
}

#[test]
fn a_child_of_fork_is_told_and_harms_nobody() {
    let file = file(PAGE);
    let engine = engine(MIN_MEMORY);
    let map = engine.map(&file).unwrap();
    map.read_at(&mut [0], 0).unwrap();
    let mut both = Some((map, engine));
    let status = child::forked(|| {
        let (map, engine) = both.take().unwrap();
        let told = map.read_at(&mut [0], 0) == Err(FaultError::Forked)
            && engine.map(&file).is_err()
            && engine.clone().fork().is_err();
        drop((map, engine));
        i32::from(!told)
    });
    assert_eq!(status, 0);
    both.unwrap().0.read_at(&mut [0], 0).unwrap();
}

/// Addresses are used again: a fork that is older than a map has at its place the bytes of the map before it.
#[test]
fn a_fork_knows_no_map_that_is_younger() {
    let engine = engine(MIN_MEMORY);
    let first = engine.map_anon(3 * PAGE).unwrap();
    first.write_at(b"first", 0).unwrap();
    let old_file = engine.map(&file(3 * PAGE)).unwrap();
    let fork = engine.fork().unwrap();
    drop(first);
    drop(old_file);
    engine.close_idle();
    let second = engine.map_anon(3 * PAGE).unwrap();
    second.write_at(b"second", 0).unwrap();
    let mut bytes = [0; 6];
    let refused = Err(FaultError::OutOfRange);
    assert_eq!(fork.read_at(&second, &mut bytes, 0), refused);
    assert_eq!(fork.write_at(&second, b"third", 0), refused);
    let new_file = engine.map(&made_file("soft-young", 3 * PAGE)).unwrap();
    assert_eq!(fork.read_file_at(&new_file, &mut bytes, 0), refused);
    assert_eq!(second.read_at(&mut bytes, 0), Ok(6));
    assert_eq!(&bytes, b"second");
    let younger = engine.fork().unwrap();
    assert_eq!(younger.read_at(&second, &mut bytes, 0), Ok(6));
    assert_eq!(&bytes, b"second");
}

/// Engines give out the same addresses.
#[test]
fn a_fork_knows_no_map_of_another_engine() {
    let engines = [engine(MIN_MEMORY), engine(MIN_MEMORY)];
    let file = file(3 * PAGE);
    let files = engines.each_ref().map(|engine| engine.map(&file).unwrap());
    let maps = (engines.each_ref()).map(|engine| engine.map_anon(3 * PAGE).unwrap());
    maps[0].write_at(b"ours", 0).unwrap();
    let fork = engines[0].fork().unwrap();
    let mut bytes = [0; 4];
    let refused = Err(FaultError::OutOfRange);
    assert_eq!(fork.write_at(&maps[1], b"them", 0), refused);
    assert_eq!(fork.read_at(&maps[1], &mut bytes, 0), refused);
    assert_eq!(fork.read_file_at(&files[1], &mut bytes, 0), refused);
    assert_eq!(fork.read_file_at(&files[0], &mut bytes, 0), Ok(4));
    assert_eq!(fork.read_at(&maps[0], &mut bytes, 0), Ok(4));
    assert_eq!(&bytes, b"ours");
}

mod huge {
    use super::*;

    const HUGE: usize = 2 << 20;

    fn engine(pages: usize) -> SoftEngine {
        let builder = Engine::builder()
            .allow_kernel_maps(false)
            .memory(MIN_MEMORY);
        builder.huge_pages(pages * HUGE).build_soft().unwrap()
    }

    #[test]
    fn maps_and_forks_share_written_pages() {
        let engine = engine(8);
        let memory = engine.huge_file(3 * HUGE + 1).unwrap();
        assert_eq!((memory.len(), memory.resident_bytes()), (4 * HUGE, 0));
        let (first, second) = (memory.map().unwrap(), memory.map().unwrap());
        assert_eq!(first.write_at(b"shared", HUGE - 3), Ok(6));
        assert_eq!(memory.resident_bytes(), 2 * HUGE);
        let mut bytes = [0; 6];
        assert_eq!(second.read_at(&mut bytes, HUGE - 3), Ok(6));
        assert_eq!(&bytes, b"shared");
        let fork = engine.fork().unwrap();
        assert_eq!(fork.write_huge_at(&first, b"forked", 5), Ok(6));
        assert_eq!(second.read_at(&mut bytes, 5), Ok(6));
        assert_eq!(&bytes, b"forked");
        assert_eq!(second.read_at(&mut bytes, 4 * HUGE - 2), Ok(2));
        assert_eq!(bytes[..2], [0, 0]);
        // Nothing of it is the budget's.
        engine.set_memory(MIN_MEMORY).unwrap();

        memory.punch_hole(0..HUGE).unwrap();
        assert_eq!(fork.read_huge_at(&first, &mut bytes, 5), Ok(6));
        assert_eq!(bytes, [0; 6]);
        memory.truncate(HUGE).unwrap();
        assert!(second.read_at(&mut bytes, HUGE + 5).is_err());
        assert_eq!(second.read_at(&mut bytes, HUGE - 6), Ok(6));
        drop((first, second));
        let third = engine.huge_file(HUGE).unwrap().map().unwrap();
        assert_eq!(
            fork.read_huge_at(&third, &mut bytes, 0),
            Err(FaultError::OutOfRange)
        );
    }

    /// Promises that a truncate took back have gone to another map: the fork wants them no more than its parent does.
    #[test]
    fn a_fork_needs_no_pages() {
        let engine = engine(4);
        let memory = engine.huge_file(4 * HUGE).unwrap();
        let map = memory.map().unwrap();
        map.write_at(b"here", 0).unwrap();
        memory.truncate(2 * HUGE).unwrap();
        let other = engine.huge_file(2 * HUGE).unwrap();
        let others = other.map().unwrap();
        memory.truncate(4 * HUGE).unwrap();
        let fork = engine.fork().unwrap();
        let mut bytes = [0; 4];
        assert_eq!(fork.read_huge_at(&map, &mut bytes, 0), Ok(4));
        assert_eq!(&bytes, b"here");
        // The second page is promised to the fork as to its parent, and the third to neither.
        assert_eq!(fork.write_huge_at(&map, b"fork", HUGE), Ok(4));
        let empty = Err(FaultError::NoMemory);
        assert_eq!(fork.read_huge_at(&map, &mut bytes, 2 * HUGE), empty);
        assert_eq!(map.read_at(&mut bytes, 2 * HUGE), empty);
        assert_eq!(others.write_at(b"full", HUGE), Ok(4));
    }

    #[test]
    fn a_fork_knows_no_map_of_another_engine() {
        let engines = [engine(2), engine(2)];
        let maps =
            (engines.each_ref()).map(|engine| engine.huge_file(HUGE).unwrap().map().unwrap());
        let fork = engines[0].fork().unwrap();
        let mut bytes = [0; 4];
        let refused = Err(FaultError::OutOfRange);
        assert_eq!(fork.write_huge_at(&maps[1], b"them", 0), refused);
        assert_eq!(fork.read_huge_at(&maps[1], &mut bytes, 0), refused);
        assert_eq!(maps[0].read_at(&mut bytes, 0), Ok(4));
        assert_eq!(bytes, [0; 4]);
    }

    /// Of as many mappings as there may be, in a thread with a small stack.
    #[test]
    fn a_page_that_many_maps_show_is_taken_out_of_all() {
        const MAPS: usize = 2000;
        let engine = engine(1);
        let memory = engine.huge_file(HUGE).unwrap();
        let maps: Vec<_> = (0..MAPS).map(|_| memory.map().unwrap()).collect();
        let mut bytes = [0; 4];
        for map in &maps {
            assert_eq!(map.write_at(b"seen", 8), Ok(4));
        }
        let small = std::thread::Builder::new().stack_size(128 << 10);
        std::thread::scope(|scope| {
            let punched = small.spawn_scoped(scope, || memory.punch_hole(0..HUGE));
            punched.unwrap().join().unwrap().unwrap();
        });
        assert_eq!(memory.resident_bytes(), 0);
        for map in &maps {
            assert_eq!(map.read_at(&mut bytes, 8), Ok(4));
            assert_eq!(bytes, [0; 4]);
        }
    }

    #[test]
    fn more_than_the_pool_is_refused() {
        let engine = engine(4);
        let memory = engine.huge_file(3 * HUGE).unwrap();
        let map = memory.map().unwrap();
        let other = engine.huge_file(2 * HUGE).unwrap();
        assert_eq!(other.map().unwrap_err().kind(), ErrorKind::OutOfMemory);
        map.write_at(&[1], 2 * HUGE).unwrap();
        drop(map);
        drop(memory);
        let map = other.map().unwrap();
        // A page that somebody has used is zeros to the next.
        let mut bytes = vec![1; 2 * HUGE];
        assert_eq!(map.read_at(&mut bytes, 0), Ok(2 * HUGE));
        assert!(bytes.iter().all(|&byte| byte == 0));
        let without = super::engine(MIN_MEMORY).huge_file(HUGE);
        assert_eq!(
            without.err().map(|error| error.kind()),
            Some(ErrorKind::InvalidInput)
        );
    }
}

/// A destructor of a thread-local, which runs when the thread's core is gone.
#[test]
fn a_threads_last_destructors_reach_the_bytes() {
    use softfault::soft::SoftMapMut;
    use std::cell::RefCell;
    use std::sync::mpsc::{Sender, channel};

    struct Reads(SoftMapMut, Sender<Result<usize, FaultError>>);

    impl Drop for Reads {
        fn drop(&mut self) {
            let _ = self.1.send(self.0.read_at(&mut [0; 10], 0));
        }
    }

    std::thread_local! {
        static LAST: RefCell<Option<Reads>> = const { RefCell::new(None) };
    }

    let engine = engine(MIN_MEMORY);
    let (sender, answers) = channel();
    std::thread::spawn(move || {
        let map = engine.map_anon(2 * PAGE).unwrap();
        // First, so that its destructor runs last.
        LAST.set(Some(Reads(map, sender)));
        LAST.with_borrow(|last| last.as_ref().unwrap().0.read_at(&mut [0; 10], 0))
            .unwrap();
    });
    assert_eq!(answers.recv(), Ok(Ok(10)));
}
