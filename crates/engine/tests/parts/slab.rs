//! The type-stable slab on the real machine.

use softfault_engine::PAGE_SIZE;
use softfault_engine::slab::{Slab, TypeStable};
use sync::Arc;
use sync::atomic::AtomicU32;
use sync::atomic::Ordering::Relaxed;
use sync::thread::spawn;

struct Slot {
    index: u32,
    owner: AtomicU32,
}

impl TypeStable for Slot {
    fn new_slot(index: u32) -> Self {
        Self {
            index,
            owner: AtomicU32::new(0),
        }
    }
}

#[test]
fn slots_agree_with_their_index() {
    let slab = Slab::<Slot>::new(1_000);
    assert_eq!(slab.bytes(), 0);
    for expected in 0..1_000 {
        assert_eq!(slab.alloc(), Some(expected));
        assert_eq!(slab.get(expected).index, expected);
    }
    assert_eq!(slab.alloc(), None);
    // 64, 128, 256, 512 and the 40 that are left, with a link of four bytes.
    assert!(slab.bytes() >= 1_000 * (size_of::<Slot>() + 4));
    assert!(slab.bytes() <= 1_000 * (size_of::<Slot>() + 4) + 5 * PAGE_SIZE);
    assert_eq!(slab.reuses(), 0);
}

#[test]
fn prepared_slots_need_no_memory_later() {
    let slab = Slab::<Slot>::new(1_000);
    assert!(slab.prepare());
    let bytes = slab.bytes();
    assert!(bytes > 0 && slab.is_empty());
    for expected in 0..64 {
        assert_eq!(slab.alloc(), Some(expected));
        assert_eq!(slab.bytes(), bytes);
    }
    assert!(slab.prepare());
    assert_eq!((slab.bytes(), slab.alloc()), (bytes, Some(64)));
    assert!(slab.bytes() > bytes);
    assert!(Slab::<Slot>::new(0).prepare());
}

#[test]
fn slots_that_are_paid_for_are_found_wherever_they_were_freed() {
    let slab = Slab::<Slot>::new(100);
    for round in 0..20 {
        // On whichever processor this thread is.
        let slots: Vec<_> = (0..100).map(|_| slab.alloc_paid(50).unwrap()).collect();
        assert_eq!(slab.alloc_paid(50), None, "round {round}");
        slots.iter().for_each(|&slot| slab.free(slot));
    }
    assert_eq!(slab.len(), 100);
    assert_eq!(slab.in_use(), 0);
}

#[test]
fn a_freed_slot_is_reused_and_keeps_its_content() {
    let slab = Slab::<Slot>::new(2);
    let index = slab.alloc().unwrap();
    let before: *const Slot = slab.get(index);
    slab.get(index).owner.store(7, Relaxed);
    slab.free(index);
    // Still there for readers.
    assert_eq!(slab.get(index).owner.load(Relaxed), 7);
    assert_eq!(slab.alloc(), Some(index));
    assert_eq!(slab.get(index) as *const Slot, before);
    assert_eq!(slab.get(index).owner.load(Relaxed), 7);
    assert_eq!(slab.reuses(), 1);
}

#[test]
fn a_slot_never_handed_out_is_not_there() {
    let slab = Slab::<Slot>::new(10);
    assert!(slab.try_get(0).is_none());
    slab.alloc().unwrap();
    assert!(slab.try_get(0).is_some());
    assert!(slab.try_get(1).is_none());
    assert!(slab.try_get(u32::MAX).is_none());
}

#[test]
#[should_panic(expected = "handed out")]
fn get_panics_on_such_a_slot() {
    let slab = Slab::<Slot>::new(10);
    slab.alloc().unwrap();
    slab.get(1);
}

#[test]
#[should_panic(expected = "freed twice")]
fn free_panics_on_a_free_slot() {
    let slab = Slab::<Slot>::new(10);
    let index = slab.alloc().unwrap();
    slab.free(index);
    slab.free(index);
}

#[test]
fn no_slot_is_handed_out_twice() {
    const THREADS: u32 = 4;
    const EACH: usize = 50;
    let slab = Arc::new(Slab::<Slot>::new(THREADS * EACH as u32));
    let threads: Vec<_> = (1..=THREADS)
        .map(|me| {
            let slab = Arc::clone(&slab);
            spawn(move || {
                for round in 0..200 {
                    let count = 1 + round % EACH;
                    let mine: Vec<u32> = (0..count).map(|_| slab.alloc().unwrap()).collect();
                    for &index in &mine {
                        assert_eq!(slab.get(index).owner.swap(me, Relaxed), 0);
                    }
                    for &index in &mine {
                        assert_eq!(slab.get(index).owner.swap(0, Relaxed), me);
                        slab.free(index);
                    }
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert!(slab.reuses() > 0);
    // All of them are free again, each once.
    let mut all: Vec<u32> = core::iter::from_fn(|| slab.alloc()).collect();
    all.sort_unstable();
    assert_eq!(all, (0..THREADS * EACH as u32).collect::<Vec<_>>());
}

#[test]
fn dropping_the_slab_drops_the_slots() {
    static DROPPED: AtomicU32 = AtomicU32::new(0);
    struct Noted;
    impl TypeStable for Noted {
        fn new_slot(_index: u32) -> Self {
            Self
        }
    }
    impl Drop for Noted {
        fn drop(&mut self) {
            DROPPED.fetch_add(1, Relaxed);
        }
    }
    let slab = Slab::<Noted>::new(3);
    let index = slab.alloc().unwrap();
    slab.free(index);
    assert_eq!(DROPPED.load(Relaxed), 0);
    drop(slab);
    // The whole chunk had been made: three slots.
    assert_eq!(DROPPED.load(Relaxed), 3);
}
