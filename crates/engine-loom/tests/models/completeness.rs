//! A model that was not explored to its end is a failure. Loom itself returns
//! as if all were well. And a store to a page that is being copied is one.

use std::sync::Arc;
use std::time::Duration;

use crate::model::spawn;
use crate::model::{bounded, check};
use loom::model::Builder;
use loom::sync::atomic::{AtomicU32, Ordering::Relaxed};
use sync::bytes;
use sync::model::Timeouts;
use sync::wait::WaitWord;

const PAGE: usize = 4096;

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

/// Of its own to the world, which tells pages by their addresses.
#[repr(align(4096))]
struct Page([u8; PAGE]);

/// Two threads: one copies a page to another one, and one does this with the page that is copied.
fn beside_a_copy(access: unsafe fn(*mut u8, *mut u8)) {
    check(&bounded(None), Timeouts::Never, move || {
        let page = || Box::leak(Box::new(Page([0; PAGE]))).0.as_mut_ptr() as usize;
        let (from, to, other) = (page(), page(), page());
        let copier = spawn(move || {
            // SAFETY: the bytes are there.
            unsafe { bytes::copy(from as *const u8, to as *mut u8, PAGE) };
        });
        // SAFETY: as above.
        unsafe { access(from as *mut u8, other as *mut u8) };
        copier.join().unwrap();
        for page in [from, to, other] {
            // SAFETY: leaked above.
            drop(unsafe { Box::from_raw(page as *mut Page) });
        }
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_store_to_a_page_that_is_copied_fails() {
    // SAFETY: both pages are there.
    beside_a_copy(|from, other| unsafe { bytes::store(other, from, 1) });
}

#[test]
fn a_page_is_copied_and_read_by_several() {
    // SAFETY: both pages are there.
    beside_a_copy(|from, other| unsafe { bytes::copy(from, other, PAGE) });
    // SAFETY: as above.
    beside_a_copy(|from, other| unsafe { bytes::load(from, other, 1) });
}
