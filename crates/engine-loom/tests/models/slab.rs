//! Models of the slab: no slot has two owners, and the writes of one owner are
//! ordered before those of the next one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use crate::model::spawn;
use crate::model::{apart, explore};
use loom::cell::UnsafeCell;
use loom::sync::atomic::AtomicU32;
use softfault_engine_loom::slab::{Slab, TypeStable};

/// A slot that knows whether it is owned; loom watches the value.
struct Slot {
    owned: AtomicBool,
    value: UnsafeCell<u32>,
}

impl TypeStable for Slot {
    fn new_slot(index: u32) -> Self {
        Self {
            owned: AtomicBool::new(false),
            value: UnsafeCell::new(index),
        }
    }
}

// SAFETY: only the owner of a slot touches its value; loom checks it.
unsafe impl Sync for Slot {}
// SAFETY: plain data.
unsafe impl Send for Slot {}

/// Takes a slot and writes to it.
fn take(slab: &Slab<Slot>) -> Option<u32> {
    let index = slab.alloc()?;
    let slot = slab.get(index);
    assert!(
        !slot.owned.swap(true, Relaxed),
        "slot {index} has two owners"
    );
    // SAFETY: we own it.
    slot.value.with_mut(|value| unsafe { *value += 1 });
    Some(index)
}

fn give(slab: &Slab<Slot>, index: u32) {
    assert!(slab.get(index).owned.swap(false, Relaxed));
    slab.free(index);
}

/// A slab of so many slots that were all used and are free.
fn used(slots: u32) -> Arc<Slab<Slot>> {
    let slab = Arc::new(Slab::new(slots));
    let all: Vec<u32> = (0..slots).map(|_| take(&slab).unwrap()).collect();
    all.into_iter().rev().for_each(|index| give(&slab, index));
    slab
}

#[test]
fn two_that_take_and_give() {
    explore(None, || {
        let slab = used(2);
        let once = {
            let slab = Arc::clone(&slab);
            move || {
                let index = take(&slab).expect("one for each");
                give(&slab, index);
            }
        };
        let other = spawn(once.clone());
        once();
        other.join().unwrap();
        assert!(take(&slab).is_some());
        assert!(take(&slab).is_some());
        assert!(take(&slab).is_none());
    });
}

#[test]
fn a_slot_that_comes_back_between_look_and_take() {
    // One is about to pop the first slot and has looked at its successor; the
    // other pops both and pushes the first again (ABA).
    explore(None, || {
        let slab = used(3);
        let other = {
            let slab = Arc::clone(&slab);
            spawn(move || {
                let first = take(&slab);
                let _kept = take(&slab);
                if let Some(first) = first {
                    give(&slab, first);
                }
            })
        };
        take(&slab);
        take(&slab);
        other.join().unwrap();
    });
}

#[test]
fn the_last_slot_has_one_taker() {
    explore(None, || {
        let slab = used(1);
        let other = {
            let slab = Arc::clone(&slab);
            spawn(move || take(&slab).is_some())
        };
        let mine = take(&slab).is_some();
        assert!(mine != other.join().unwrap());
    });
}

#[test]
fn two_that_make_the_first_chunk() {
    explore(None, || {
        let slab = Arc::new(Slab::<Slot>::new(2));
        let other = {
            let slab = Arc::clone(&slab);
            spawn(move || take(&slab).expect("one for each"))
        };
        let mine = take(&slab).expect("one for each");
        assert!(mine != other.join().unwrap());
        assert!(take(&slab).is_none());
        assert_eq!(slab.reuses(), 0);
    });
}

/// A slot that anybody may look at.
struct Looked(AtomicU32);

impl TypeStable for Looked {
    fn new_slot(index: u32) -> Self {
        Self(AtomicU32::new(index + 7))
    }
}

#[test]
fn a_reader_of_a_slot_in_a_chunk_that_another_made() {
    apart(|| {
        // The thread that announces the first slot need not be the one that made the chunk.
        let seen = Arc::new(AtomicUsize::new(0));
        explore(Some(3), {
            let seen = Arc::clone(&seen);
            move || {
                let slab = Arc::new(Slab::<Looked>::new(2));
                let other = {
                    let slab = Arc::clone(&slab);
                    spawn(move || slab.alloc().is_some())
                };
                let reader = {
                    let (slab, seen) = (Arc::clone(&slab), Arc::clone(&seen));
                    spawn(move || {
                        if let Some(slot) = slab.try_get(0) {
                            assert_eq!(slot.0.load(Relaxed), 7);
                            seen.fetch_add(1, Relaxed);
                        }
                    })
                };
                assert!(slab.alloc().is_some());
                assert!(other.join().unwrap());
                reader.join().unwrap();
            }
        });
        assert!(seen.load(Relaxed) > 0);
    });
}

#[test]
fn a_reader_of_a_slot_that_may_not_be_there() {
    apart(|| {
        let seen = Arc::new(AtomicUsize::new(0));
        explore(None, {
            let seen = Arc::clone(&seen);
            move || {
                let slab = Arc::new(Slab::<Looked>::new(1));
                let reader = {
                    let (slab, seen) = (Arc::clone(&slab), Arc::clone(&seen));
                    spawn(move || {
                        if let Some(slot) = slab.try_get(0) {
                            assert_eq!(slot.0.load(Relaxed), 7);
                            seen.fetch_add(1, Relaxed);
                        }
                    })
                };
                assert_eq!(slab.alloc(), Some(0));
                reader.join().unwrap();
            }
        });
        assert!(seen.load(Relaxed) > 0);
    });
}
