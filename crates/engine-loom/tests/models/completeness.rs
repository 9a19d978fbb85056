//! A model that was not explored to its end is a failure. Loom itself returns
//! as if all were well.

use std::sync::Arc;
use std::time::Duration;

use crate::model::spawn;
use crate::model::{bounded, check};
use loom::model::Builder;
use loom::sync::atomic::{AtomicU32, Ordering::Relaxed};
use sync::model::Timeouts;
use sync::wait::WaitWord;

/// A model of a few dozen schedules.
fn two_that_count() {
    let count = Arc::new(AtomicU32::new(0));
    let other = {
        let count = Arc::clone(&count);
        spawn(move || {
            count.fetch_add(1, Relaxed);
            count.fetch_add(1, Relaxed);
        })
    };
    count.fetch_add(1, Relaxed);
    count.fetch_add(1, Relaxed);
    other.join().unwrap();
    assert_eq!(count.load(Relaxed), 4);
}

#[test]
fn a_model_that_is_through_passes() {
    assert!(check(&bounded(None), Timeouts::Never, two_that_count) > 2);
}

#[test]
#[should_panic(expected = "not all of them")]
fn a_limit_of_schedules_fails() {
    let mut builder = Builder::new();
    builder.max_permutations = Some(3);
    builder.checkpoint_interval = 1;
    check(&builder, Timeouts::Never, two_that_count);
}

#[test]
#[should_panic(expected = "not all of them")]
fn a_limit_of_time_fails() {
    let mut builder = Builder::new();
    builder.max_duration = Some(Duration::ZERO);
    builder.checkpoint_interval = 2;
    check(&builder, Timeouts::Never, two_that_count);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_timeout_saves_nobody() {
    check(&bounded(None), Timeouts::Never, || {
        let word = Arc::new(WaitWord::new(0));
        let other = {
            let word = Arc::clone(&word);
            spawn(move || word.wait(0, Some(1)))
        };
        // Nobody is woken.
        word.fetch_add(0, Relaxed);
        other.join().unwrap();
    });
}

#[test]
fn unless_the_model_lets_time_pass() {
    check(&bounded(None), Timeouts::AtOnce, || {
        let word = Arc::new(WaitWord::new(0));
        let other = {
            let word = Arc::clone(&word);
            spawn(move || word.wait(0, Some(1)))
        };
        word.fetch_add(0, Relaxed);
        other.join().unwrap();
    });
}
