//! Faults that the world itself finds, and that it finds them again.

use softfault_sync_shuttle::atomic::{AtomicU32, Ordering::SeqCst};
use softfault_sync_shuttle::cell::UnsafeCell;
use softfault_sync_shuttle::explore::{Explore, Explored};
use softfault_sync_shuttle::wait::WaitWord;
use softfault_sync_shuttle::{Arc, bytes, pages, thread};
use std::sync::Mutex;

/// Runs a scenario that has to fail; the last seed that it was handed. In a
/// thread of its own, whose panics are nobody else's.
fn failing_seed(explore: Explore, scenario: impl Fn() + Send + Sync + 'static) -> u64 {
    let seed = Arc::new(Mutex::new(None));
    let last = seed.clone();
    let run = move || {
        explore.run(move |seed| {
            *last.lock().unwrap() = Some(seed);
            scenario();
        })
    };
    let ran = std::thread::spawn(run).join();
    assert!(ran.is_err(), "the scenario has to fail");
    seed.lock().unwrap().expect("a schedule was run")
}

/// A cell that threads may share, rightly or not.
struct Shared(UnsafeCell<u32>);

// SAFETY: threads of this world run one at a time.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

#[test]
fn overlapping_accesses_are_found() {
    failing_seed(Explore::new("overlapping", 100), || {
        let shared = Arc::new(Shared(UnsafeCell::new(0)));
        let other = shared.clone();
        let reader = thread::spawn(move || {
            other.0.with(|_| {});
        });
        shared.0.with_mut(|_| {});
        reader.join().unwrap();
    });
}

#[test]
fn a_guard_held_is_an_access() {
    failing_seed(Explore::new("guard", 100), || {
        let shared = Arc::new(Shared(UnsafeCell::new(0)));
        let other = shared.clone();
        let writer = thread::spawn(move || {
            let guard = other.0.get_mut();
            thread::yield_now();
            drop(guard);
        });
        drop(shared.0.get_mut());
        writer.join().unwrap();
    });
}

#[test]
fn a_page_in_use_is_not_cleared() {
    failing_seed(Explore::new("page", 100), || {
        let page = pages::map(4096).unwrap().as_ptr() as usize;
        let reader = thread::spawn(move || {
            let mut byte = 0;
            // SAFETY: the page is there.
            unsafe { bytes::load(page as *const u8, &raw mut byte, 1) };
        });
        // SAFETY: as above.
        unsafe { bytes::clear(page as *mut u8, 4096) };
        reader.join().unwrap();
    });
}

/// Two threads: one copies a page to another one, and one does this with the page that is copied.
fn beside_a_copy(access: unsafe fn(*mut u8, *mut u8)) {
    let map = || pages::map(4096).unwrap().as_ptr() as usize;
    let (from, to, other) = (map(), map(), map());
    let copier = thread::spawn(move || {
        // SAFETY: the pages are there.
        unsafe { bytes::copy(from as *const u8, to as *mut u8, 4096) };
    });
    // SAFETY: as above.
    unsafe { access(from as *mut u8, other as *mut u8) };
    copier.join().unwrap();
}

#[test]
fn a_page_that_is_copied_is_not_written() {
    failing_seed(Explore::new("source", 100), || {
        // SAFETY: both are there.
        beside_a_copy(|from, other| unsafe { bytes::store(other, from, 1) });
    });
    Explore::new("sources", 100).run(|_| {
        // SAFETY: as above.
        beside_a_copy(|from, other| unsafe { bytes::copy(from, other, 4096) });
        // SAFETY: as above.
        beside_a_copy(|from, other| unsafe { bytes::load(from, other, 1) });
    });
}

/// A flag, and somebody who sleeps until it is set.
fn sleep_until_set(timeout_ns: Option<u64>, wakes: bool) {
    let word = Arc::new(WaitWord::new(0));
    let other = word.clone();
    let sleeper = thread::spawn(move || {
        while other.load(SeqCst) == 0 {
            other.wait(0, timeout_ns);
        }
    });
    word.swap(1, SeqCst);
    if wakes {
        word.wake(1);
    }
    sleeper.join().unwrap();
}

#[test]
fn a_wake_up_that_is_there_is_enough() {
    // As many, whatever the environment says.
    let seeds: Vec<u64> = (0..200).collect();
    for timeout_ns in [None, Some(1)] {
        let explored = Explore::new("woken", 200).seeds(&seeds);
        let explored = explored.run(move |_| sleep_until_set(timeout_ns, true));
        assert_eq!((explored.schedules, explored.stalls), (200, 0));
    }
}

#[test]
fn a_lost_wake_up_is_a_deadlock() {
    failing_seed(Explore::new("lost", 100), || sleep_until_set(None, false));
}

#[test]
fn a_lost_wake_up_is_a_stall_where_there_is_a_timeout() {
    failing_seed(Explore::new("stalled", 100), || {
        sleep_until_set(Some(1), false)
    });
    let explored = Explore::new("stalled", 100)
        .may_stall()
        .run(|_| sleep_until_set(Some(1), false));
    assert!(explored.stalls > 0);
}

/// An addition of two steps.
fn add_in_two_steps() {
    let count = Arc::new(AtomicU32::new(0));
    let other = count.clone();
    let add = |count: &AtomicU32| count.store(count.load(SeqCst) + 1, SeqCst);
    let adder = thread::spawn(move || add(&other));
    add(&count);
    adder.join().unwrap();
    assert_eq!(count.load(SeqCst), 2);
}

#[test]
fn a_seed_that_failed_fails_again() {
    let seed = failing_seed(Explore::new("two_steps", 100), add_in_two_steps);
    for _ in 0..3 {
        let again = Explore::new("again", 1).seeds(&[seed]);
        assert_eq!(failing_seed(again, add_in_two_steps), seed);
    }
}

fn explored(seeds: &[u64]) -> Explored {
    let explore = Explore::new("digest", 0).may_stall().seeds(seeds);
    explore.run(|_| sleep_until_set(Some(1), true))
}

#[test]
fn the_same_seeds_are_the_same_schedules() {
    let seeds: Vec<u64> = (0..50).collect();
    let first = explored(&seeds);
    assert_eq!(first, explored(&seeds));
    assert_ne!(first.digest, explored(&seeds[1..]).digest);
}
