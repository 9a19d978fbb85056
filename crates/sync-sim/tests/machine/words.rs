//! Waits on words.

use crate::program::{Lock, bare, full};
use softfault_sync_sim as sync;
use std::sync::{Arc, Mutex};
use sync::atomic::{AtomicU64, Ordering::*};
use sync::machine::{self, Config};
use sync::wait::WaitWord;

#[test]
fn a_lock_excludes() {
    for seed in 0..10 {
        let ran = machine::run(Config::new(full(3), 4, seed), || {
            let shared = Arc::new((Lock::default(), AtomicU64::new(0)));
            let start = |_| {
                let shared = shared.clone();
                machine::spawn_named("", 0, move || {
                    let (lock, value) = &*shared;
                    for _ in 0..30 {
                        lock.lock();
                        let seen = value.load(Relaxed);
                        sync::work(700);
                        value.store(seen + 1, Relaxed);
                        lock.unlock();
                    }
                })
            };
            let threads: Vec<_> = (0..7).map(start).collect();
            for thread in threads {
                thread.join().expect("it ends");
            }
            shared.1.load(Relaxed)
        });
        assert_eq!(ran.expect("nobody waits for ever").0, 7 * 30);
    }
}

#[test]
fn a_word_that_has_changed_is_not_waited_for() {
    let ran = machine::run(Config::new(bare(1), 1, 0), || {
        WaitWord::new(1).wait(0, None);
    });
    ran.expect("it returns");
}

#[test]
fn a_time_out_comes_on_time() {
    let ran = machine::run(Config::new(bare(1), 1, 0), || {
        let word = Arc::new(WaitWord::new(0));
        let begin = machine::now_ns();
        word.wait(0, Some(5_000));
        let first = machine::now_ns() - begin;
        // A thread that has timed out is not woken any more, and is not counted.
        word.wake(1);
        first
    });
    let (waited, report) = ran.expect("it returns");
    // Memory for the word, and for its bucket.
    assert_eq!(waited, 5_000 + 2 * 90);
    // The report has the sleep, by its place, from its beginning.
    let [sleep] = &report.sleeps[..] else {
        panic!("{:?}", report.sleeps);
    };
    assert_eq!((sleep.sleeps, sleep.ns), (1, 5_000));
    let file = "crates/sync-sim/tests/machine/words.rs:";
    assert!(sleep.place.starts_with(file), "{}", sleep.place);
}

#[test]
fn the_first_waiter_is_woken_first() {
    let ran = machine::run(Config::new(bare(6), 6, 0), || {
        let word = Arc::new(WaitWord::new(0));
        // A real mutex: not held over anything of the machine's.
        let order = Arc::new(Mutex::new(Vec::new()));
        let start = |thread: u64| {
            let (word, order) = (word.clone(), order.clone());
            machine::spawn_named("", 0, move || {
                machine::sleep_until_ns(1_000 * (thread + 1));
                word.wait(0, None);
                order.lock().expect("nobody panicked").push(thread);
            })
        };
        let threads: Vec<_> = (0..4).map(start).collect();
        machine::sleep_until_ns(100_000);
        word.wake(2);
        machine::sleep_until_ns(200_000);
        let first = order.lock().expect("nobody panicked").clone();
        word.wake(u32::MAX);
        for thread in threads {
            thread.join().expect("it ends");
        }
        let all = order.lock().expect("nobody panicked").clone();
        (first, all)
    });
    let (first, all) = ran.expect("all are woken").0;
    assert_eq!((&first[..], &all[..]), (&[0, 1][..], &[0, 1, 2, 3][..]));
}

#[test]
fn spinning_sees_another_core_finish() {
    let ran = machine::run(Config::new(full(3), 2, 0), || {
        let word = Arc::new(WaitWord::new(0));
        let other = word.clone();
        let thread = machine::spawn_named("", 0, move || {
            machine::sleep_until_ns(50_000);
            other.swap(1, Release);
        });
        machine::sleep_until_ns(49_900);
        let seen = sync::hint::spin_until(|| word.load(Acquire) == 1);
        thread.join().expect("it ends");
        (seen, sync::hint::spin_until(|| word.load(Acquire) == 2))
    });
    assert_eq!(ran.expect("it returns").0, (true, false));
}
