//! Models of private memory and swap: the engine as it is, over two pages, and two
//! threads. The assertions are a program's view: no write is lost, no number
//! comes back that was another page's, and at the end nothing is left of either.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::model::private::Private;
use crate::model::spawn;
use crate::model::{apart, explore};

/// Of each schedule, of two threads. A fault has a hundred operations.
const PREEMPTIONS: Option<usize> = Some(1);

/// Explores `one` beside `other`, on memory that `before` has prepared, and then asks
/// `after`, with the result of `one`.
fn beside<R: Send + 'static>(
    before: fn(&Private),
    one: fn(&Private) -> R,
    other: fn(&Private),
    after: impl Fn(&Private, R) + Send + Sync + 'static,
) {
    explore(PREEMPTIONS, move || {
        let memory = Private::new(false);
        before(&memory);
        let one = {
            let memory = Arc::clone(&memory);
            spawn(move || one(&memory))
        };
        let other = {
            let memory = Arc::clone(&memory);
            spawn(move || other(&memory))
        };
        let result = one.join().unwrap();
        other.join().unwrap();
        after(&memory, result);
    })
}

fn written(memory: &Private) {
    assert!(memory.add(0));
}

fn swapped(memory: &Private) {
    written(memory);
    memory.page_out(0..1);
    assert_eq!(memory.hardware_has(0), None);
}

/// Page 1 is as its slot has it. It came with page 0: a page that is touched soon after
/// it was written comes back to be written.
fn clean(memory: &Private) {
    assert!(memory.add(0) && memory.add(1));
    memory.page_out(0..2);
    memory.sequential(0..2);
    assert_eq!(memory.load(0), Some(1));
    assert!(memory.is_clean(1));
}

fn evict(memory: &Private) {
    memory.page_out(0..1);
}

fn evict_clean(memory: &Private) {
    memory.page_out(1..2);
}

#[test]
fn no_write_is_lost_at_eviction() {
    apart(|| {
        let (evicted, all) = <(Arc<AtomicUsize>, Arc<AtomicUsize>)>::default();
        beside(written, |memory| memory.add(0), evict, {
            let (evicted, all) = (Arc::clone(&evicted), Arc::clone(&all));
            move |memory: &Private, wrote: bool| {
                evicted.fetch_add(memory.hardware_has(0).is_none().into(), Relaxed);
                all.fetch_add(1, Relaxed);
                assert!(wrote);
                assert_eq!(memory.load(0), Some(2));
            }
        });
        let evicted = evicted.load(Relaxed);
        assert!(0 < evicted && evicted < all.load(Relaxed));
    });
}

#[test]
fn no_write_to_a_clean_page_is_lost() {
    beside(
        clean,
        |memory| memory.add(1),
        evict_clean,
        |memory, wrote| {
            assert!(wrote);
            assert_eq!(memory.load(1), Some(2));
        },
    );
}

#[test]
fn a_write_to_zeros_against_their_eviction() {
    let zeros = |memory: &Private| assert_eq!(memory.load(0), Some(0));
    beside(
        zeros,
        |memory| memory.add(0),
        evict,
        |memory, wrote| {
            assert!(wrote);
            assert_eq!(memory.load(0), Some(1));
        },
    );
}

#[test]
fn two_touch_a_swapped_page() {
    let add = |memory: &Private| assert!(memory.add(0));
    beside(
        swapped,
        |memory| memory.load(0),
        add,
        |memory, seen| {
            assert!([Some(1), Some(2)].contains(&seen), "{seen:?}");
            assert_eq!(memory.load(0), Some(2));
        },
    );
}

#[test]
fn a_page_that_comes_back_against_its_unmap() {
    let unmap = |memory: &Private| memory.unmap(0..1);
    beside(
        swapped,
        |memory| memory.load(0),
        unmap,
        |memory, seen| {
            assert!([Some(1), None].contains(&seen), "{seen:?}");
            assert_eq!(memory.hardware_has(0), None, "shown after all");
        },
    );
}

#[test]
fn a_page_that_comes_back_against_dont_need() {
    let dont_need = |memory: &Private| memory.dont_need(0..1);
    beside(
        swapped,
        |memory| memory.load(0),
        dont_need,
        |memory, seen| {
            assert!([Some(1), Some(0)].contains(&seen), "{seen:?}");
            assert_eq!(memory.load(0), Some(0));
        },
    );
}

#[test]
fn a_write_against_dont_need() {
    let dont_need = |memory: &Private| memory.dont_need(1..2);
    beside(
        clean,
        |memory| memory.add(1),
        dont_need,
        |memory, wrote| {
            assert!(wrote);
            let seen = memory.load(1);
            // The write came before the end of `dont_need`, or after it.
            assert!([Some(0), Some(1)].contains(&seen), "{seen:?}");
        },
    );
}

#[test]
fn an_eviction_against_unmap() {
    let unmap = |memory: &Private| memory.unmap(0..2);
    beside(written, evict, unmap, |memory, ()| {
        assert_eq!(memory.load(0), None);
    });
}

#[test]
fn two_evictions_of_a_page() {
    beside(written, evict, evict, |memory, ()| {
        assert_eq!(memory.load(0), Some(1));
    });
}

#[test]
fn the_hand_against_a_write() {
    let reclaim = |memory: &Private| {
        memory.node.reclaim(1);
    };
    beside(
        written,
        |memory| memory.add(0),
        reclaim,
        |memory, wrote| {
            assert!(wrote);
            assert_eq!(memory.load(0), Some(2));
        },
    );
}

/// Memory that is given up waits for the batch that has pages of it, and is not left asleep.
#[test]
fn the_hand_against_memory_that_is_given_up() {
    let reclaim = |memory: &Private| {
        memory.node.reclaim(1);
    };
    // At the end nothing is charged, or in swap.
    beside(written, reclaim, Private::give_up, |_, ()| {});
}

#[test]
fn a_slot_that_is_given_up_is_anothers_only_then() {
    // Page 0 comes back for a write, which gives its slot up; page 1 goes.
    let both = |memory: &Private| {
        swapped(memory);
        assert!(memory.add(1));
    };
    let other = |memory: &Private| memory.page_out(1..2);
    beside(
        both,
        |memory| memory.add(0),
        other,
        |memory, wrote| {
            assert!(wrote);
            assert_eq!(memory.load(0), Some(2));
            assert_eq!(memory.load(1), Some(1));
        },
    );
}

#[test]
fn where_the_device_fails_a_page_stays_as_it_was_written() {
    explore(PREEMPTIONS, || {
        let memory = Private::new(true);
        written(&memory);
        let other = {
            let memory = Arc::clone(&memory);
            spawn(move || assert!(memory.add(0)))
        };
        evict(&memory);
        other.join().unwrap();
        assert_eq!(memory.load(0), Some(2));
    });
}

/// Nothing is there yet, and the program says that its touches run on: a write to page 0 fills page 1 with it.
fn runs_on(memory: &Private) {
    memory.sequential(0..2);
}

#[test]
fn a_run_against_a_write_to_its_second_page() {
    beside(
        runs_on,
        |memory| memory.add(0),
        |memory| assert!(memory.add(1)),
        |memory, wrote| {
            assert!(wrote);
            assert_eq!((memory.load(0), memory.load(1)), (Some(1), Some(1)));
        },
    );
}

#[test]
fn a_run_against_its_eviction() {
    let evict = |memory: &Private| memory.page_out(0..2);
    beside(
        runs_on,
        |memory| memory.add(0),
        evict,
        |memory, wrote| {
            assert!(wrote);
            assert_eq!((memory.load(0), memory.load(1)), (Some(1), Some(0)));
        },
    );
}

#[test]
fn a_run_against_dont_need() {
    let dont_need = |memory: &Private| memory.dont_need(0..2);
    beside(
        runs_on,
        |memory| memory.add(0),
        dont_need,
        |memory, wrote| {
            assert!(wrote);
            assert!([Some(0), Some(1)].contains(&memory.load(0)));
            assert_eq!(memory.load(1), Some(0));
        },
    );
}

/// Page 1 was filled with page 0, and may be written to without a fault.
#[test]
fn no_write_to_a_page_of_a_run_is_lost() {
    let filled = |memory: &Private| {
        runs_on(memory);
        assert!(memory.add(0));
    };
    beside(
        filled,
        |memory| memory.add(1),
        evict_clean,
        |memory, wrote| {
            assert!(wrote);
            assert_eq!(memory.load(1), Some(1));
        },
    );
}

#[test]
fn a_run_ends_before_an_unmapped_page() {
    let unmap = |memory: &Private| memory.unmap(1..2);
    beside(
        runs_on,
        |memory| memory.add(0),
        unmap,
        |memory, wrote| {
            assert!(wrote);
            assert_eq!(memory.load(0), Some(1));
            assert_eq!(memory.hardware_has(1), None, "shown after all");
        },
    );
}

/// A process forks while a page is touched: the page as its child sees it does not
/// change, and nobody sleeps for ever.
#[test]
fn a_fault_against_a_freeze() {
    beside(
        written,
        |memory| {
            let frozen = memory.freeze();
            // A present page may be written, without a fault.
            let before = memory.hardware_has(1).is_some();
            loom::thread::yield_now();
            let after = memory.hardware_has(1).is_some();
            assert_eq!(before, after, "mapped while frozen");
            assert!(!memory.is_locked(0) && !memory.is_locked(1));
            drop(frozen);
        },
        |memory| assert!(memory.add(1)),
        |memory, ()| {
            assert_eq!((memory.load(0), memory.load(1)), (Some(1), Some(1)));
        },
    );
}
