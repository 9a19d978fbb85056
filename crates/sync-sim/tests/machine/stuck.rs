//! Runs that cannot go on.

use crate::program::{Lock, bare, full};
use softfault_sync_sim as sync;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use sync::atomic::{AtomicU64, Ordering::*};
use sync::machine::{self, Cause, Config};
use sync::wait::WaitWord;

#[test]
fn a_deadlock_is_told_with_names_and_lines() {
    let ran = machine::run(Config::new(full(2), 3, 9), || {
        let (a, b) = (Arc::new(Lock::default()), Arc::new(Lock::default()));
        let (first, second) = (a.clone(), b.clone());
        let start = |name: &str, first: Arc<Lock>, second: Arc<Lock>| {
            machine::spawn_named(name, 0, move || {
                first.lock();
                sync::work(50_000);
                second.lock();
            })
        };
        let threads = [start("ab", first, second), start("ba", b, a)];
        for thread in threads {
            thread.join().expect("never");
        }
    });
    let stuck = ran.expect_err("they wait for each other");
    assert_eq!((stuck.cause, stuck.seed), (Cause::Deadlock, 9));
    let names: Vec<&str> = stuck
        .threads
        .iter()
        .map(|thread| &thread.name[..])
        .collect();
    assert_eq!(names, ["main", "ab", "ba"]);
    assert_eq!(stuck.threads[0].state, "waits for the end of ab");
    for thread in &stuck.threads[1..] {
        assert_eq!(thread.state, "waits for a word that held 0x2 and holds 0x2");
        assert!(
            thread.place.contains("tests/machine/program.rs:"),
            "{}",
            thread.place
        );
    }
    let text = stuck.to_string();
    assert!(
        text.contains("deadlock") && text.contains("  ba: waits for a word"),
        "{text}"
    );
}

fn impatient(patience_ns: u64) -> Config {
    Config {
        patience_ns,
        ..Config::new(bare(2), 2, 0)
    }
}

#[test]
fn a_thread_that_waits_too_long_starves() {
    let ran = machine::run(impatient(1_000_000), || {
        let word = Arc::new(WaitWord::new(0));
        let waiter = word.clone();
        let thread = machine::spawn_named("hungry", 0, move || waiter.wait(0, None));
        // Others go on meanwhile, and would wake it in the end.
        for _ in 0..100 {
            sync::work(100_000);
        }
        word.wake(1);
        thread.join().expect("it ends");
    });
    let stuck = ran.expect_err("a tenth of that is too long");
    assert_eq!(stuck.cause, Cause::Starvation);
    let starved: Vec<_> = stuck
        .threads
        .iter()
        .filter(|thread| thread.starved)
        .collect();
    assert_eq!(starved.len(), 1);
    assert_eq!(starved[0].name, "hungry");
    assert!((1_000_000..2_000_000).contains(&starved[0].since_ns));
}

#[test]
fn a_polling_thread_starves() {
    let ran = machine::run(impatient(1_000_000), || {
        let flag = Arc::new(AtomicU64::new(0));
        while flag.load(Acquire) == 0 {
            sync::hint::spin_loop();
        }
    });
    let stuck = ran.expect_err("nobody sets it");
    assert_eq!(stuck.cause, Cause::Starvation);
    assert_eq!(stuck.threads[0].state, "asks again and again");
    let ran = machine::run(impatient(1_000_000), || {
        loop {
            sync::thread::yield_now();
        }
    });
    let stuck: machine::Stuck = match ran {
        Ok((never, _)) => never,
        Err(stuck) => stuck,
    };
    assert_eq!(stuck.cause, Cause::Starvation);
}

#[test]
fn a_sleeping_or_joining_thread_does_not_starve() {
    let ran = machine::run(impatient(1_000_000), || {
        let thread = machine::spawn_named("", 0, || machine::sleep_until_ns(50_000_000));
        thread.join().expect("it ends");
    });
    ran.expect("both wait for time alone");
}

#[test]
fn a_panic_goes_on_in_the_caller() {
    let lock = Arc::new(Lock::default());
    let held = lock.clone();
    let result = catch_unwind(AssertUnwindSafe(|| {
        machine::run(Config::new(full(2), 3, 0), || {
            let waiter = held.clone();
            held.lock();
            let thread = machine::spawn_named("waits", 0, move || waiter.lock());
            sync::work(100_000);
            if held.is_awaited() {
                panic!("on purpose");
            }
            thread.join().expect("it ends");
        })
    }));
    let panic = result.expect_err("the panic came through");
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"on purpose"));
    // The next one is not disturbed.
    machine::run(Config::new(full(2), 3, 0), || sync::work(1)).expect("it ends");
}

#[test]
fn a_panic_of_another_thread_goes_on_in_the_caller() {
    let result = catch_unwind(|| {
        machine::run(Config::new(full(2), 3, 0), || {
            let thread = machine::spawn_named("panics", 0, || panic!("on purpose"));
            thread.join().expect("nobody is told here");
        })
    });
    assert!(result.is_err());
    assert!(!std::thread::panicking());
}
