//! Models of swap slots: no slot has two owners or none, the last put is told
//! so, and all use of a slot comes before that of its next owner.
//!
//! A slot's bytes are a cell that loom watches.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::model::spawn;
use crate::model::{apart, explore};
use loom::cell::UnsafeCell;
use softfault_engine_loom::budget::Budget;
use softfault_engine_loom::swap::Slots;

const SLOTS: usize = 4;

struct Device {
    slots: Slots,
    bytes: [UnsafeCell<u32>; SLOTS],
}

// SAFETY: only the owner of a slot touches its bytes; loom checks it.
unsafe impl Sync for Device {}
// SAFETY: as above.
unsafe impl Send for Device {}

impl Device {
    /// One of `count` slots in clusters of `cluster`.
    fn new(count: u32, cluster: u32) -> Arc<Self> {
        Arc::new(Self {
            slots: Slots::with_clusters(0..count, cluster, Budget::new(100)).unwrap(),
            bytes: core::array::from_fn(|_| UnsafeCell::new(0)),
        })
    }

    /// One with no slot free.
    fn full(count: u32, cluster: u32) -> Arc<Self> {
        let device = Self::new(count, cluster);
        assert_eq!(device.rest(), count);
        device
    }

    /// Takes a run and writes to it; returns how many slots it is.
    fn take(&self, most: u32) -> Option<u32> {
        let run = self.slots.alloc(most)?;
        assert!(run.len() <= most as usize);
        run.clone().for_each(|slot| self.write(slot));
        Some(run.len() as u32)
    }

    /// Takes all that can be had.
    fn rest(&self) -> u32 {
        std::iter::from_fn(|| self.take(4)).sum()
    }

    fn write(&self, slot: u32) {
        // SAFETY: the slot is ours alone; loom checks it.
        self.bytes[slot as usize].with_mut(|bytes| unsafe { *bytes += 1 });
    }

    fn read(&self, slot: u32) -> u32 {
        // SAFETY: no thread writes to a page's slot; loom checks it.
        self.bytes[slot as usize].with(|bytes| unsafe { *bytes })
    }

    /// Reads a slot and puts it.
    fn give(&self, slot: u32) -> bool {
        self.read(slot);
        self.slots.put(slot, || {})
    }

    /// The same, and writes to it if it was the last.
    fn discard(&self, slot: u32) -> bool {
        self.read(slot);
        self.slots.put(slot, || self.write(slot))
    }
}

fn with<T: 'static>(device: &Arc<Device>, f: impl FnOnce(&Device) -> T + 'static) -> Joined<T> {
    let device = Arc::clone(device);
    Joined(spawn(move || f(&device)))
}

struct Joined<T>(loom::thread::JoinHandle<T>);

impl<T> Joined<T> {
    fn join(self) -> T {
        self.0.join().unwrap()
    }
}

#[test]
fn a_slot_that_is_put_is_given_out_after_its_use() {
    apart(|| {
        let given = Arc::new(AtomicUsize::new(0));
        explore(None, {
            let given = Arc::clone(&given);
            move || {
                let device = Device::full(1, 1);
                let other = with(&device, |device| assert!(device.give(0)));
                let early = device.take(1).unwrap_or(0);
                other.join();
                assert_eq!(early + device.rest(), 1);
                assert_eq!(device.slots.used(), 1);
                given.fetch_add(early as usize, Relaxed);
            }
        });
        assert!(given.load(Relaxed) > 0);
    });
}

/// Whoever allocates looks at the word of a slot that is not counted out yet, or
/// at none but those that are.
fn a_run_of_two(give: fn(&Device, u32) -> bool) {
    let both = Arc::new(AtomicUsize::new(0));
    explore(None, {
        let both = Arc::clone(&both);
        move || {
            let device = Device::full(2, 2);
            device.give(0);
            let other = with(&device, move |device| assert!(give(device, 1)));
            let early = device.take(2).unwrap();
            other.join();
            assert_eq!(early + device.rest(), 2);
            assert_eq!(device.slots.used(), 2);
            both.fetch_add((early == 2).into(), Relaxed);
        }
    });
    assert!(both.load(Relaxed) > 0);
}

#[test]
fn a_slot_beside_a_free_one_is_given_out_after_its_use() {
    apart(|| {
        a_run_of_two(Device::give);
    });
}

#[test]
fn a_slot_beside_a_free_one_is_discarded_before_it_is_given_out() {
    apart(|| {
        a_run_of_two(Device::discard);
    });
}

#[test]
fn a_slot_that_is_put_while_others_are_taken_is_not_lost() {
    explore(None, || {
        let device = Device::full(4, 4);
        assert!(device.give(0) && device.give(1));
        let other = with(&device, |device| assert!(device.give(3)));
        let early = device.take(2).unwrap();
        other.join();
        assert_eq!(early + device.rest(), 3);
        assert_eq!(device.slots.used(), 4);
    });
}

#[test]
fn a_slot_that_is_counted_out_is_found() {
    explore(None, || {
        let device = Device::full(2, 2);
        assert!(device.give(0));
        let other = with(&device, |device| assert!(device.give(1)));
        let early = device.take(1).unwrap() + device.take(1).unwrap_or(0);
        other.join();
        assert_eq!(early + device.rest(), 2);
    });
}

#[test]
fn a_cluster_that_is_queued_again_does_not_lose_the_others() {
    explore(None, || {
        let device = Device::full(4, 2);
        assert!(device.give(2) && device.give(0));
        let other = with(&device, |device| assert!(device.give(1)));
        let early = device.take(1).unwrap();
        other.join();
        assert_eq!(early + device.rest(), 3);
        assert_eq!(device.slots.used(), 4);
    });
}

#[test]
fn a_slot_that_is_being_discarded_is_nobodys() {
    apart(|| {
        let given = Arc::new(AtomicUsize::new(0));
        explore(None, {
            let given = Arc::clone(&given);
            move || {
                let device = Device::full(1, 1);
                let other = with(&device, |device| assert!(device.discard(0)));
                let early = device.take(1).unwrap_or(0);
                other.join();
                assert_eq!(early + device.rest(), 1);
                given.fetch_add(early as usize, Relaxed);
            }
        });
        assert!(given.load(Relaxed) > 0);
    });
}

/// Two put a slot that both have; the last one writes to it.
fn two_share(first: fn(&Device) -> bool, second: fn(&Device) -> bool) {
    explore(None, move || {
        let device = Device::full(1, 1);
        device.slots.get(0);
        let other = with(&device, first);
        let mine = second(&device);
        let other = other.join();
        assert!(mine != other, "{mine} twice");
        assert_eq!(device.slots.used(), 0);
        assert_eq!(device.rest(), 1);
    });
}

#[test]
fn one_of_two_sharers_is_told() {
    two_share(
        |device| device.give(0),
        |device| {
            let was_last = device.give(0);
            // Nobody allocates.
            if was_last {
                device.write(0);
            }
            was_last
        },
    );
}

#[test]
fn one_of_two_sharers_discards() {
    two_share(|device| device.discard(0), |device| device.discard(0));
    two_share(|device| device.discard(0), |device| device.give(0));
}

#[test]
fn all_use_of_a_shared_slot_ends_before_it_is_given_out() {
    explore(Some(2), || {
        let device = Device::full(1, 1);
        device.slots.get(0);
        let first = with(&device, |device| device.give(0));
        let second = with(&device, |device| device.give(0));
        let early = device.take(1).unwrap_or(0);
        assert!(first.join() != second.join());
        assert_eq!(early + device.rest(), 1);
    });
}

#[test]
fn a_slot_is_free_or_inherited() {
    apart(|| {
        let freed = Arc::new(AtomicUsize::new(0));
        explore(None, {
            let freed = Arc::clone(&freed);
            move || {
                let device = Device::full(1, 1);
                let other = with(&device, |device| device.give(0));
                device.slots.inherit();
                let was_freed = other.join();
                assert_eq!(device.slots.used(), u32::from(!was_freed));
                assert_eq!(device.rest(), u32::from(was_freed));
                device.slots.children_gone(|_| ());
                assert_eq!(device.rest(), u32::from(!was_freed));
                freed.fetch_add(was_freed.into(), Relaxed);
            }
        });
        assert!(freed.load(Relaxed) > 0);
    });
}

#[test]
fn unused_slots_are_free_when_the_children_are_gone() {
    apart(|| {
        let freed = Arc::new(AtomicUsize::new(0));
        explore(None, {
            let freed = Arc::clone(&freed);
            move || {
                let device = Device::full(1, 1);
                device.slots.inherit();
                let other = with(&device, |device| device.give(0));
                device.slots.children_gone(|_| ());
                let was_freed = other.join();
                assert_eq!(device.slots.used(), 0);
                assert_eq!(device.rest(), 1);
                freed.fetch_add(was_freed.into(), Relaxed);
            }
        });
        assert!(freed.load(Relaxed) > 0);
    });
}

#[test]
fn children_gone_against_an_allocation() {
    explore(Some(3), || {
        let device = Device::full(2, 2);
        device.slots.inherit();
        assert!(!device.give(0));
        let other = with(&device, |device| device.slots.children_gone(|_| ()));
        let early = device.take(2).unwrap_or(0);
        other.join();
        assert_eq!(early + device.rest(), 1);
        assert_eq!(device.slots.used(), 2);
    });
}

#[test]
fn no_slot_is_lost_between_two_puts() {
    explore(Some(3), || {
        let device = Device::full(4, 2);
        let first = with(&device, |device| assert!(device.give(0)));
        let second = with(&device, |device| assert!(device.give(1) && device.give(2)));
        let early = device.take(1).unwrap_or(0);
        first.join();
        second.join();
        assert_eq!(early + device.rest(), 3);
        assert_eq!(device.slots.used(), 4);
    });
}

#[test]
fn no_slot_is_lost_between_a_put_and_an_allocation() {
    explore(Some(3), || {
        let device = Device::full(4, 4);
        let other = with(&device, |device| {
            (0..4).for_each(|slot| assert!(device.give(slot)));
        });
        let early = device.take(2).unwrap_or(0) + device.take(1).unwrap_or(0);
        other.join();
        assert_eq!(early + device.rest(), 4);
        assert_eq!(device.slots.used(), 4);
    });
}

#[test]
fn two_that_allocate_get_slots_of_their_own() {
    explore(Some(3), || {
        let device = Device::new(4, 2);
        let other = with(&device, |device| device.take(2).unwrap());
        let mine = device.take(1).unwrap();
        let all = mine + other.join() + device.rest();
        assert_eq!(all, 4);
        assert_eq!(device.slots.used(), 4);
    });
}
