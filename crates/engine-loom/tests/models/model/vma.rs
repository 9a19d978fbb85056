//! The models of the VMA lock, for each kind: readers against writers, detach
//! and reuse. The test files say how far each is explored.
//!
//! Attributes are in a cell that loom watches: a reader whose lock does not
//! keep writers out, or does not order their writes before its reads, ends the
//! model as a data race. The assertions see to the rest: right mapping, whole
//! attributes, counts, nobody asleep for ever.
//!
//! A VMA that can be biased is, from the beginning and again by each fault that
//! finds it without: contention would take more schedules to show.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use super::spawn;
use super::{Still, apart, attributes, bounded, check, explore, schedules};
use softfault_engine_loom::mm::find::try_lock_at;
use softfault_engine_loom::mm::vma_lock::{MAX_READERS, start_read, start_read_locked};
use softfault_engine_loom::mm::{
    Attributes, MmapLock, MmapWriteGuard, ReadError, VisibleReaders, Vma, VmaLock,
};
use softfault_engine_loom::policy::VmaLockKind;
use softfault_engine_loom::slab::{Slab, TypeStable};
use sync::model::Timeouts;

pub const ADDR: usize = 0x1000;

/// The state that the spaces of a model share. It outlives their VMAs: each model joins
/// its threads.
pub struct World {
    /// Where the VMAs have their locks from, if these are apart.
    vma_locks: Option<Arc<Slab<VmaLock>>>,
    /// Where their readers show themselves, if they can be biased.
    visible: Option<Arc<VisibleReaders>>,
}

impl World {
    pub fn new(kind: VmaLockKind) -> Self {
        Self::with_words(kind, 2, 1)
    }

    /// The same, with this much room for visible readers.
    pub fn with_words(kind: VmaLockKind, processors: usize, words: usize) -> Self {
        let visible = || Arc::new(VisibleReaders::with_words(processors, words));
        Self {
            vma_locks: (kind == VmaLockKind::Rwsem).then(|| Arc::new(Slab::new(2))),
            visible: (kind == VmaLockKind::Biased).then(visible),
        }
    }

    /// Of the kind that has them.
    pub fn vma_locks(&self) -> &Slab<VmaLock> {
        self.vma_locks.as_deref().unwrap()
    }

    pub fn mmap_lock(&self, space: u64) -> Arc<MmapLock> {
        self.with_max_readers(space, MAX_READERS)
    }

    pub fn with_max_readers(&self, space: u64, max_readers: u32) -> Arc<MmapLock> {
        let lock = MmapLock::with_max_readers(space, Arc::new(Still), max_readers);
        Arc::new(match (&self.vma_locks, &self.visible) {
            (None, None) => lock,
            // SAFETY: see the structure.
            (Some(vma_locks), _) => unsafe { lock.with_vma_locks(Arc::clone(vma_locks)) },
            // SAFETY: as above.
            (_, Some(visible)) => unsafe { lock.with_visible_readers(Arc::clone(visible)) },
        })
    }
}

/// Asserts that nobody reads the VMA, which is attached.
pub fn idle(vma: &Vma) {
    vma.assert_attached();
    assert_eq!(vma.readers(), 0);
}

pub fn attach(vma: &Vma, mmap: &MmapWriteGuard<'_>, start: usize, mark: u64) {
    vma.init(mmap, start..start + 0x1000, attributes(mark))
        .unwrap();
    vma.attach(mmap);
}

pub fn detach(vma: &Vma, mmap: &MmapWriteGuard<'_>) -> Attributes {
    vma.start_write(mmap);
    vma.detach(mmap);
    vma.clear(mmap)
}

/// A VMA at `ADDR` of the space, marked 1.
pub fn attached(lock: &MmapLock) -> Arc<Vma> {
    let vma = unbiased(lock);
    bias(&vma, lock);
    vma
}

/// The same without bias.
pub fn unbiased(lock: &MmapLock) -> Arc<Vma> {
    let vma = Arc::new(Vma::new_slot(0));
    attach(&vma, &lock.write(), ADDR, 1);
    vma
}

/// Biases the VMA, if it can be.
pub fn bias(vma: &Vma, lock: &MmapLock) {
    if lock.kind() == VmaLockKind::Biased {
        start_read(vma, lock).unwrap().bias(lock);
    }
}

/// A fault at `addr` whose lookup found `vma`: locks it and expects one of
/// `marks` in it. True if it could be locked.
pub fn fault(vma: &Vma, lock: &MmapLock, addr: usize, marks: &[u64]) -> bool {
    let Ok(read) = try_lock_at(vma, lock, addr) else {
        return false;
    };
    assert_eq!(vma.space(), lock.space());
    assert!(vma.range().contains(&addr));
    read.with(|now| {
        assert!(marks.contains(&now.pgoff), "{now:?}, not one of {marks:?}");
        assert_eq!(*now, attributes(now.pgoff));
    });
    read.bias(lock);
    true
}

pub fn reader_against_reuse_in_another_space(kind: VmaLockKind, preemptions: Option<usize>) {
    explore(preemptions, move || {
        let world = World::new(kind);
        let (old, new) = (world.mmap_lock(1), world.mmap_lock(2));
        let vma = attached(&old);
        // The old space is ahead: a VMA whose number is as high as the space's passes for
        // write-locked, and that would save a reader that does not look.
        for _ in 0..4 {
            drop(old.write());
        }
        let reader = {
            let (vma, old) = (Arc::clone(&vma), Arc::clone(&old));
            spawn(move || fault(&vma, &old, ADDR, &[1]))
        };
        assert_eq!(detach(&vma, &old.write()), attributes(1));
        attach(&vma, &new.write(), ADDR, 2);
        reader.join().unwrap();
        assert!(fault(&vma, &new, ADDR, &[2]));
        assert!(!fault(&vma, &old, ADDR, &[]));
        idle(&vma);
    });
}

pub fn reader_against_reuse_for_another_range(kind: VmaLockKind, preemptions: Option<usize>) {
    explore(preemptions, move || {
        let world = World::new(kind);
        let lock = world.mmap_lock(1);
        let vma = attached(&lock);
        let reader = {
            let (vma, lock) = (Arc::clone(&vma), Arc::clone(&lock));
            spawn(move || fault(&vma, &lock, ADDR, &[1]))
        };
        assert_eq!(detach(&vma, &lock.write()), attributes(1));
        attach(&vma, &lock.write(), 5 * ADDR, 2);
        reader.join().unwrap();
        assert!(!fault(&vma, &lock, ADDR, &[]));
        assert!(fault(&vma, &lock, 5 * ADDR, &[2]));
        idle(&vma);
    });
}

pub fn reader_of_the_new_mapping_against_reuse(kind: VmaLockKind, preemptions: Option<usize>) {
    // The lookup already found the slot as its next VMA.
    explore(preemptions, move || {
        let world = World::new(kind);
        let (old, new) = (world.mmap_lock(1), world.mmap_lock(2));
        let vma = attached(&old);
        let reader = {
            let (vma, new) = (Arc::clone(&vma), Arc::clone(&new));
            spawn(move || fault(&vma, &new, ADDR, &[2]))
        };
        assert_eq!(detach(&vma, &old.write()), attributes(1));
        attach(&vma, &new.write(), ADDR, 2);
        reader.join().unwrap();
        assert!(fault(&vma, &new, ADDR, &[2]));
        idle(&vma);
    });
}

pub fn reader_against_attach(kind: VmaLockKind, preemptions: Option<usize>) {
    apart(|| {
        let locked = Arc::new(AtomicUsize::new(0));
        let all = schedules(preemptions, {
            let locked = Arc::clone(&locked);
            move || {
                let world = World::new(kind);
                let lock = world.mmap_lock(1);
                let vma = Arc::new(Vma::new_slot(0));
                let reader = {
                    let (vma, lock) = (Arc::clone(&vma), Arc::clone(&lock));
                    spawn(move || fault(&vma, &lock, ADDR, &[1]))
                };
                attach(&vma, &lock.write(), ADDR, 1);
                locked.fetch_add(reader.join().unwrap().into(), Relaxed);
                idle(&vma);
            }
        });
        let locked = locked.load(Relaxed);
        assert!(locked > 0 && locked < all, "{locked} of {all}");
    });
}

pub fn writer_against_two_readers(kind: VmaLockKind, preemptions: Option<usize>) {
    explore(preemptions, move || {
        let world = World::new(kind);
        let lock = world.mmap_lock(1);
        let vma = attached(&lock);
        let readers = [(); 2].map(|()| {
            let (vma, lock) = (Arc::clone(&vma), Arc::clone(&lock));
            spawn(move || fault(&vma, &lock, ADDR, &[1, 2]))
        });
        let mmap = lock.write();
        vma.start_write(&mmap);
        assert_eq!(vma.set_attributes(&mmap, attributes(2)), attributes(1));
        drop(mmap);
        for reader in readers {
            reader.join().unwrap();
        }
        assert!(fault(&vma, &lock, ADDR, &[2]));
        idle(&vma);
    });
}

pub fn two_writers_against_a_reader(kind: VmaLockKind, preemptions: Option<usize>) {
    explore(preemptions, move || {
        let world = World::new(kind);
        let lock = world.mmap_lock(1);
        let vma = attached(&lock);
        let write = {
            let (vma, lock) = (Arc::clone(&vma), Arc::clone(&lock));
            move || {
                let mmap = lock.write();
                vma.start_write(&mmap);
                let mark = vma.attributes(&mmap).pgoff + 1;
                vma.set_attributes(&mmap, attributes(mark));
            }
        };
        let reader = {
            let (vma, lock) = (Arc::clone(&vma), Arc::clone(&lock));
            spawn(move || fault(&vma, &lock, ADDR, &[1, 2, 3]))
        };
        let writer = spawn(write.clone());
        write();
        reader.join().unwrap();
        writer.join().unwrap();
        assert!(fault(&vma, &lock, ADDR, &[3]));
        idle(&vma);
    });
}

pub fn writer_against_a_reader_that_comes_twice(kind: VmaLockKind, preemptions: Option<usize>) {
    explore(preemptions, move || {
        let world = World::new(kind);
        let lock = world.mmap_lock(1);
        let vma = attached(&lock);
        let reader = {
            let (vma, lock) = (Arc::clone(&vma), Arc::clone(&lock));
            spawn(move || {
                fault(&vma, &lock, ADDR, &[1, 2]);
                // The upper half goes with the change.
                fault(&vma, &lock, ADDR + 0x800, &[1]);
            })
        };
        let mmap = lock.write();
        vma.start_write(&mmap);
        vma.set_range(&mmap, ADDR..ADDR + 0x800);
        vma.set_attributes(&mmap, attributes(2));
        drop(mmap);
        reader.join().unwrap();
        assert!(fault(&vma, &lock, ADDR, &[2]));
        idle(&vma);
    });
}

pub fn readers_at_the_limit(kind: VmaLockKind, preemptions: Option<usize>) {
    let refused = Arc::new(AtomicUsize::new(0));
    explore(preemptions, {
        let refused = Arc::clone(&refused);
        move || {
            let world = World::new(kind);
            let lock = world.with_max_readers(1, 1);
            let vma = unbiased(&lock);
            let read = {
                let (vma, lock, refused) =
                    (Arc::clone(&vma), Arc::clone(&lock), Arc::clone(&refused));
                move || match start_read(&vma, &lock) {
                    // Under any value that it may see: no second reader.
                    Ok(_read) => assert_eq!(vma.readers(), 1),
                    Err(error) => {
                        assert_eq!(error, ReadError::Limit);
                        refused.fetch_add(1, Relaxed);
                    }
                }
            };
            let other = spawn(read.clone());
            read();
            other.join().unwrap();
            idle(&vma);
        }
    });
    assert!(refused.load(Relaxed) > 0);
}

pub fn a_reader_at_the_limit_against_a_writer(kind: VmaLockKind, preemptions: Option<usize>) {
    explore(preemptions, move || {
        let world = World::new(kind);
        let lock = world.with_max_readers(1, 1);
        let vma = unbiased(&lock);
        let readers = [(); 2].map(|()| {
            let (vma, lock) = (Arc::clone(&vma), Arc::clone(&lock));
            spawn(move || fault(&vma, &lock, ADDR, &[1]))
        });
        assert_eq!(detach(&vma, &lock.write()), attributes(1));
        for reader in readers {
            reader.join().unwrap();
        }
        vma.assert_detached();
    });
}

pub fn letting_mmap_lock_go_ends_all_write_locks(kind: VmaLockKind, preemptions: Option<usize>) {
    explore(preemptions, move || {
        let world = World::new(kind);
        let lock = world.mmap_lock(1);
        let vmas = [attached(&lock), attached(&lock)];
        let reader = {
            let (vmas, lock) = (vmas.clone(), Arc::clone(&lock));
            spawn(move || {
                // The second was changed after the first; both or neither.
                let new = fault(&vmas[1], &lock, ADDR, &[1, 2])
                    && start_read(&vmas[1], &lock)
                        .is_ok_and(|read| read.with(|now| now.pgoff == 2));
                if new {
                    assert!(fault(&vmas[0], &lock, ADDR, &[2]));
                }
            })
        };
        let mmap = lock.write();
        for vma in &vmas {
            vma.start_write(&mmap);
            vma.set_attributes(&mmap, attributes(2));
        }
        drop(mmap);
        reader.join().unwrap();
        assert!(fault(&vmas[0], &lock, ADDR, &[2]));
        assert!(fault(&vmas[1], &lock, ADDR, &[2]));
    });
}

pub fn locked_reader_against_a_writer(kind: VmaLockKind, preemptions: Option<usize>) {
    explore(preemptions, move || {
        let world = World::new(kind);
        let lock = world.mmap_lock(1);
        let vma = attached(&lock);
        let reader = {
            let (vma, lock) = (Arc::clone(&vma), Arc::clone(&lock));
            spawn(move || {
                let mmap = lock.read();
                let read = start_read_locked(&vma, &mmap).unwrap();
                // The VMA stays locked where mmap_lock does not.
                drop(mmap);
                read.with(|now| assert_eq!(*now, attributes(now.pgoff)));
            })
        };
        let mmap = lock.write();
        vma.start_write(&mmap);
        vma.set_attributes(&mmap, attributes(2));
        drop(mmap);
        reader.join().unwrap();
        idle(&vma);
    });
}

pub fn the_last_put_wakes_a_writer_whose_space_is_gone(
    kind: VmaLockKind,
    preemptions: Option<usize>,
) {
    let outlived = Arc::new(AtomicUsize::new(0));
    // With all its preemptions, whatever `.ci/run` has time for: the reader that outlives the space needs them.
    check(&bounded(preemptions), Timeouts::Never, {
        let outlived = Arc::clone(&outlived);
        move || {
            let world = World::new(kind);
            let old = world.mmap_lock(1);
            let vma = attached(&old);
            let gone = Arc::new(AtomicBool::new(false));
            let reader = {
                let (vma, old, gone) = (Arc::clone(&vma), Arc::clone(&old), Arc::clone(&gone));
                let outlived = Arc::clone(&outlived);
                spawn(move || {
                    let read = try_lock_at(&vma, &old, ADDR);
                    drop(old);
                    if let Ok(read) = read {
                        read.with(|now| assert_eq!(*now, attributes(1)));
                        // It was not gone while we had the VMA.
                        assert!(!gone.load(Relaxed));
                        drop(read);
                        outlived.fetch_add(gone.load(Relaxed).into(), Relaxed);
                    }
                })
            };
            assert_eq!(detach(&vma, &old.write()), attributes(1));
            drop(old);
            gone.store(true, Relaxed);
            // The slot's next life, into which the wake-up may come.
            let new = world.mmap_lock(2);
            attach(&vma, &new.write(), ADDR, 2);
            assert_eq!(detach(&vma, &new.write()), attributes(2));
            reader.join().unwrap();
            vma.assert_detached();
        }
    });
    assert!(outlived.load(Relaxed) > 0);
}

pub fn a_slot_that_another_space_claims(kind: VmaLockKind, preemptions: Option<usize>) {
    let claimed = Arc::new(AtomicUsize::new(0));
    explore(preemptions, {
        let claimed = Arc::clone(&claimed);
        move || {
            let world = World::new(kind);
            let (old, new) = (world.mmap_lock(1), world.mmap_lock(2));
            let vma = attached(&old);
            let claimer = {
                let (vma, claimed) = (Arc::clone(&vma), Arc::clone(&claimed));
                spawn(move || {
                    // Not told by a slab, which would order it: it just looks.
                    if vma.space() == 0 {
                        attach(&vma, &new.write(), ADDR, 2);
                        assert!(fault(&vma, &new, ADDR, &[2]));
                        claimed.fetch_add(1, Relaxed);
                    }
                })
            };
            assert_eq!(detach(&vma, &old.write()), attributes(1));
            claimer.join().unwrap();
        }
    });
    assert!(claimed.load(Relaxed) > 0);
}
