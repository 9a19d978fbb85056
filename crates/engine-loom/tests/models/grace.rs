//! Models of grace periods (`reuse=rcu`): no slot that a reader found is reused before the
//! reader has ended, and none waits for ever.
//!
//! A slot's value is in a cell that loom watches: a new owner that writes to it while a
//! reader of the old one may look, or without being ordered after it, ends the model as a
//! data race.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering as Std};

use crate::model::spawn;
use crate::model::{Still, apart, attributes, explore};
use loom::cell::UnsafeCell;
use loom::sync::atomic::AtomicU32;
use loom::sync::atomic::Ordering::Relaxed;
use softfault_engine_loom::PAGE_SIZE;
use softfault_engine_loom::mm::{AddressSpace, GracePeriods, VmaSlabs};
use softfault_engine_loom::policy::{SpaceLocks, VmaReuse};

/// Two slots. A lookup finds one of them.
struct World {
    grace: GracePeriods,
    /// The slot that is found. Relaxed everywhere: the grace periods order it.
    found: AtomicU32,
    values: [UnsafeCell<u32>; 2],
}

/// No slot is found.
const NONE: u32 = 9;

// SAFETY: loom watches the cells.
unsafe impl Sync for World {}
// SAFETY: plain data.
unsafe impl Send for World {}

impl World {
    fn new(processors: usize) -> Arc<Self> {
        Arc::new(Self {
            grace: GracePeriods::with_batch(processors, 1),
            found: AtomicU32::new(0),
            values: [(); 2].map(|()| UnsafeCell::new(0)),
        })
    }

    /// A lookup: true if it found a slot.
    fn look(&self) -> bool {
        let _section = self.grace.read_section();
        let slot = self.found.load(Relaxed);
        if slot == NONE {
            return false;
        }
        // SAFETY: its next owner comes after the end of this.
        self.values[slot as usize].with(|value| assert_eq!(unsafe { *value }, 0));
        true
    }

    /// The next owner has the slot.
    fn reuse(&self, slot: u32) {
        // SAFETY: nobody looks at it any more.
        self.values[slot as usize].with_mut(|value| unsafe { *value += 1 });
    }

    fn retire(&self, slot: u32) {
        self.grace.retire(slot, |slot| self.reuse(slot));
    }

    fn finish(&self, slots: usize) {
        while self.grace.wait(|slot| self.reuse(slot)) {}
        assert_eq!(self.grace.waiting(), 0);
        for value in &self.values[..slots] {
            // SAFETY: all others have ended.
            value.with(|value| assert_eq!(unsafe { *value }, 1));
        }
    }
}

#[test]
fn a_slot_waits_for_readers_that_found_it() {
    explore(None, || {
        let world = World::new(1);
        let reader = {
            let world = Arc::clone(&world);
            spawn(move || {
                world.look();
            })
        };
        world.found.store(NONE, Relaxed);
        world.retire(0);
        reader.join().unwrap();
        assert!(!world.look());
        world.finish(1);
    });
}

/// Readers on two processors, one of which nobody had read on before.
#[test]
fn a_slot_waits_for_readers_on_every_processor() {
    explore(Some(3), || {
        let world = World::new(2);
        let readers = [0, 1].map(|cpu| {
            let world = Arc::clone(&world);
            spawn(move || {
                sync::run_on(cpu);
                world.look();
            })
        });
        world.found.store(NONE, Relaxed);
        world.retire(0);
        for reader in readers {
            reader.join().unwrap();
        }
        world.finish(1);
    });
}

/// Two slots, one after the other, and a reader that comes twice: its second time may be
/// in an epoch of the same parity as one that it has seen before.
#[test]
fn two_grace_periods_against_a_reader_that_comes_twice() {
    explore(Some(3), || {
        let world = World::new(1);
        let reader = {
            let world = Arc::clone(&world);
            spawn(move || {
                world.look();
                world.look();
            })
        };
        world.found.store(1, Relaxed);
        world.retire(0);
        world.found.store(NONE, Relaxed);
        world.retire(1);
        reader.join().unwrap();
        world.finish(2);
    });
}

/// An insertion without a free slot waits until the readers have ended, and gets one.
#[test]
fn a_shortage_of_slots_waits() {
    apart(|| {
        let waited = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&waited);
        explore(None, move || {
            let world = World::new(1);
            let reader = {
                let world = Arc::clone(&world);
                spawn(move || {
                    world.look();
                })
            };
            world.found.store(NONE, Relaxed);
            world.retire(0);
            seen.fetch_add(world.grace.waiting(), Std::Relaxed);
            let got = world.grace.wait(|slot| world.reuse(slot));
            seen.fetch_add(got.into(), Std::Relaxed);
            reader.join().unwrap();
            world.finish(1);
        });
        assert!(waited.load(Std::Relaxed) > 0, "nobody ever waited");
    });
}

/// Whole lookups in one space, while its VMA is unmapped, and another space maps: of the one slot that
/// there is.
#[test]
fn a_lookup_meets_no_vma_of_another_space() {
    explore(Some(1), || {
        let locks = SpaceLocks {
            reuse: VmaReuse::Rcu,
            ..SpaceLocks::default()
        };
        let slabs = VmaSlabs::new(1);
        let spaces = [(); 2].map(|()| {
            let space = AddressSpace::with_lock(slabs.clone(), Arc::new(Still), locks);
            Arc::new(space.unwrap())
        });
        let range = PAGE_SIZE..2 * PAGE_SIZE;
        spaces[0].mmap(range.clone(), attributes(1)).unwrap();
        let reader = {
            let space = Arc::clone(&spaces[0]);
            spawn(move || {
                if let Some(read) = space.lock_vma(PAGE_SIZE) {
                    read.with(|now| assert_eq!(now.pgoff, 1));
                }
            })
        };
        spaces[0].munmap(range.clone(), |_, _| {}).unwrap();
        spaces[1].mmap(range, attributes(2)).unwrap();
        reader.join().unwrap();
        assert_eq!(spaces[0].lock_stats().miss_other_space, 0);
        assert_eq!(slabs.vmas_in_use(), 1);
        spaces[1].exit(|_, _| {});
        assert_eq!(slabs.vmas_in_use(), 0);
    });
}
