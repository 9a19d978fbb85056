//! The VMA lock on the real machine, in all kinds: the count after every
//! operation, misuse, and reuse under a reader's nose.

use softfault_engine::mm::find::try_lock_at;
use softfault_engine::mm::vma_lock::{
    MAX_READERS, NoVmaLock, WRITER, start_read, start_read_locked,
};
use softfault_engine::mm::{
    Attributes, MmapLock, ReadError, VisibleReaders, Vma, VmaLock, VmaRead,
};
use softfault_engine::policy::VmaLockKind;
use softfault_engine::slab::{Slab, TypeStable};
use softfault_oracle::{Numbered, Still};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;
use sync::Arc;
use sync::atomic::Ordering::{Acquire, Relaxed, Release};
use sync::atomic::{AtomicU32, AtomicU64};
use sync::thread::{self, spawn};

const KINDS: [VmaLockKind; 3] = [
    VmaLockKind::Refcount,
    VmaLockKind::Rwsem,
    VmaLockKind::Biased,
];

fn mmap_lock(kind: VmaLockKind, space: u64) -> MmapLock {
    with_max_readers(kind, space, MAX_READERS)
}

fn with_max_readers(kind: VmaLockKind, space: u64, max_readers: u32) -> MmapLock {
    static VMA_LOCKS: LazyLock<Arc<Slab<VmaLock>>> = LazyLock::new(|| Arc::new(Slab::new(1000)));
    let lock = MmapLock::with_max_readers(space, Arc::new(Still), max_readers);
    match kind {
        VmaLockKind::Refcount => lock,
        // SAFETY: a static is never dropped.
        VmaLockKind::Rwsem => unsafe { lock.with_vma_locks(Arc::clone(&VMA_LOCKS)) },
        VmaLockKind::Biased => {
            // One a lock: tests must not see each other's readers.
            let visible = Arc::new(VisibleReaders::new(64));
            std::mem::forget(Arc::clone(&visible));
            // SAFETY: just made sure that it is never dropped.
            unsafe { lock.with_visible_readers(visible) }
        }
    }
}

/// Asserts that all kinds of lock panic in `misuse`, saying `expected`.
#[track_caller]
fn all_panic(expected: &str, misuse: impl Fn(VmaLockKind)) {
    for kind in KINDS {
        panics(kind, expected, &misuse);
    }
}

#[track_caller]
fn panics(kind: VmaLockKind, expected: &str, misuse: impl Fn(VmaLockKind)) {
    let panic = catch_unwind(AssertUnwindSafe(|| misuse(kind))).unwrap_err();
    let message = (panic.downcast_ref::<String>().cloned())
        .or_else(|| Some((*panic.downcast_ref::<&str>()?).to_owned()))
        .unwrap_or_default();
    assert!(message.contains(expected), "{kind:?}: {message}");
}

fn attributes(mark: u64) -> Attributes {
    Attributes {
        backing: Numbered(mark).into(),
        pgoff: mark,
        ..Attributes::default()
    }
}

/// An attached VMA 0x1000..0x3000 of the space.
pub fn attached(lock: &MmapLock) -> Vma {
    let vma = Vma::new_slot(0);
    let mmap = lock.write();
    vma.init(&mmap, 0x1000..0x3000, attributes(1)).unwrap();
    vma.attach(&mmap);
    drop(mmap);
    vma
}

/// The readers of an attached VMA, and the count with them.
#[track_caller]
fn assert_readers(vma: &Vma, kind: VmaLockKind, readers: u32) {
    assert_eq!(vma.readers(), readers);
    let count = match kind {
        VmaLockKind::Refcount | VmaLockKind::Biased => 1 + readers,
        VmaLockKind::Rwsem => 0,
    };
    assert_eq!(vma.refcount(), count);
}

#[test]
fn the_count_after_every_operation() {
    for kind in KINDS {
        let lock = mmap_lock(kind, 1);
        let vma = Vma::new_slot(0);
        vma.assert_detached();

        let mmap = lock.write();
        vma.init(&mmap, 0x1000..0x3000, attributes(1)).unwrap();
        vma.assert_detached();
        vma.assert_write_locked(&mmap);
        assert_eq!(start_read(&vma, &lock).unwrap_err(), ReadError::WriteLocked);
        vma.attach(&mmap);
        assert_readers(&vma, kind, 0);
        // Write-locked still, from its birth.
        assert_eq!(start_read(&vma, &lock).unwrap_err(), ReadError::WriteLocked);
        assert_readers(&vma, kind, 0);
        drop(mmap);

        let first = start_read(&vma, &lock).unwrap();
        assert_readers(&vma, kind, 1);
        let mmap = lock.try_read().unwrap();
        let second = start_read_locked(&vma, &mmap).unwrap();
        drop(mmap);
        assert_readers(&vma, kind, 2);
        assert_eq!(second.with(|attributes| attributes.pgoff), 1);
        drop(first);
        assert_readers(&vma, kind, 1);
        drop(second);
        assert_readers(&vma, kind, 0);

        let mmap = lock.write();
        vma.start_write(&mmap);
        vma.start_write(&mmap);
        vma.assert_attached();
        vma.assert_write_locked(&mmap);
        assert_readers(&vma, kind, 0);
        vma.set_range(&mmap, 0x1000..0x2000);
        assert_eq!(vma.set_attributes(&mmap, attributes(2)), attributes(1));
        assert_eq!(vma.attributes(&mmap), attributes(2));
        drop(mmap);

        let read = try_lock_at(&vma, &lock, 0x1fff).unwrap();
        assert_eq!(read.vma().range(), 0x1000..0x2000);
        assert_readers(&vma, kind, 1);
        drop(read);

        let mmap = lock.write();
        vma.start_write(&mmap);
        vma.detach(&mmap);
        vma.assert_detached();
        assert_eq!(vma.clear(&mmap), attributes(2));
        assert_eq!(vma.space(), 0);
        drop(mmap);
        assert_eq!(start_read(&vma, &lock).unwrap_err(), ReadError::Detached);
        assert_eq!((vma.refcount(), vma.readers()), (0, 0));
    }
}

#[test]
fn a_failed_read_leaves_the_count_alone() {
    for kind in KINDS {
        let lock = mmap_lock(kind, 1);
        let other = mmap_lock(kind, 2);
        let vma = attached(&lock);
        // By chance the other space is at the very sequence under which the VMA
        // was attached in its own: a false "locked".
        let error = try_lock_at(&vma, &other, 0x1000).unwrap_err();
        assert_eq!(error, ReadError::WriteLocked);
        drop(other.write());
        let error = try_lock_at(&vma, &other, 0x1000).unwrap_err();
        assert_eq!(error, ReadError::Reused);
        for addr in [0xfff, 0x3000] {
            let error = try_lock_at(&vma, &lock, addr).unwrap_err();
            assert_eq!(error, ReadError::Reused);
        }
        assert_readers(&vma, kind, 0);
        assert_eq!(lock.vma_misses().other_range.get(), 2);
        assert_eq!(other.vma_misses().other_space.get(), 1);
        assert_eq!(other.vma_misses().write_locked.get(), 1);
    }
}

#[test]
fn letting_mmap_lock_go_ends_all_write_locks() {
    for kind in KINDS {
        let lock = mmap_lock(kind, 1);
        let vmas = [attached(&lock), attached(&lock), attached(&lock)];
        let mmap = lock.write();
        vmas.iter().for_each(|vma| vma.start_write(&mmap));
        for vma in &vmas {
            let error = start_read(vma, &lock).unwrap_err();
            assert_eq!(error, ReadError::WriteLocked);
        }
        drop(mmap);
        for vma in &vmas {
            assert!(start_read(vma, &lock).is_ok());
        }
    }
}

#[test]
fn no_more_readers_than_the_limit() {
    for kind in KINDS {
        let lock = with_max_readers(kind, 1, 2);
        let vma = attached(&lock);
        let first = start_read(&vma, &lock).unwrap();
        let _second = start_read(&vma, &lock).unwrap();
        assert_readers(&vma, kind, 2);
        assert_eq!(start_read(&vma, &lock).unwrap_err(), ReadError::Limit);
        let mmap = lock.try_read().unwrap();
        let error = start_read_locked(&vma, &mmap).unwrap_err();
        assert_eq!(error, ReadError::Limit);
        assert_readers(&vma, kind, 2);
        drop(first);
        assert!(start_read_locked(&vma, &mmap).is_ok());
    }
}

/// A writer of an [`attached`] VMA waits for `read`, its only reader, and keeps others out; `meanwhile` looks at how that reader is seen.
pub fn assert_a_writer_waits(
    lock: &Arc<MmapLock>,
    vma: &Arc<Vma>,
    read: VmaRead<'_>,
    meanwhile: impl FnOnce(),
) {
    let done = Arc::new(AtomicU32::new(0));
    let writer = {
        let (lock, vma, done) = (Arc::clone(lock), Arc::clone(vma), Arc::clone(&done));
        spawn(move || {
            let mmap = lock.write();
            vma.start_write(&mmap);
            done.store(1, Release);
            vma.set_range(&mmap, 0x1000..0x2000);
        })
    };
    while start_read(vma, lock).is_ok() {
        thread::yield_now();
    }
    let error = start_read(vma, lock).unwrap_err();
    assert_eq!(error, ReadError::WriteLocked);
    meanwhile();
    assert_eq!(read.vma().end(), 0x3000);
    assert_eq!(done.load(Acquire), 0);
    drop(read);
    writer.join().unwrap();
    assert_eq!(vma.readers(), 0);
    assert_eq!(lock.vma_waits().snapshot().count, 1);
    assert!(try_lock_at(vma, lock, 0x2000).is_err());
    assert!(try_lock_at(vma, lock, 0x1000).is_ok());
}

#[test]
fn a_writer_waits_for_readers_and_keeps_others_out() {
    for kind in KINDS {
        let lock = Arc::new(mmap_lock(kind, 1));
        let vma = Arc::new(attached(&lock));
        let read = start_read(&vma, &lock).unwrap();
        assert_a_writer_waits(&lock, &vma, read, || {
            assert_eq!(vma.readers(), 1);
            if kind == VmaLockKind::Refcount {
                assert_eq!(vma.refcount(), WRITER + 2);
            }
        });
        assert_readers(&vma, kind, 0);
    }
}

#[test]
fn attach_twice() {
    all_panic("attach of an attached VMA", |kind| {
        let lock = mmap_lock(kind, 1);
        let vma = attached(&lock);
        let mmap = lock.write();
        vma.start_write(&mmap);
        vma.attach(&mmap);
    });
}

#[test]
fn attach_of_a_slot_set_up_under_another_guard() {
    all_panic("not write-locked", |kind| {
        let lock = mmap_lock(kind, 1);
        let vma = Vma::new_slot(0);
        vma.init(&lock.write(), 0..0x1000, attributes(1)).unwrap();
        vma.attach(&lock.write());
    });
}

#[test]
fn detach_twice() {
    all_panic("detach of a detached VMA", |kind| {
        let lock = mmap_lock(kind, 1);
        let vma = attached(&lock);
        let mmap = lock.write();
        vma.start_write(&mmap);
        vma.detach(&mmap);
        vma.detach(&mmap);
    });
}

#[test]
fn detach_without_the_write_lock() {
    all_panic("not write-locked", |kind| {
        let lock = mmap_lock(kind, 1);
        let vma = attached(&lock);
        vma.detach(&lock.write());
    });
}

#[test]
fn write_lock_of_a_detached_vma() {
    all_panic("write lock of a detached VMA", |kind| {
        let lock = mmap_lock(kind, 1);
        let vma = attached(&lock);
        let mmap = lock.write();
        vma.start_write(&mmap);
        vma.detach(&mmap);
        drop(mmap);
        vma.start_write(&lock.write());
    });
}

#[test]
fn write_lock_with_another_spaces_mmap_lock() {
    all_panic("a VMA of space 1, not of 2", |kind| {
        let vma = attached(&mmap_lock(kind, 1));
        vma.start_write(&mmap_lock(kind, 2).write());
    });
}

#[test]
fn change_without_the_write_lock() {
    all_panic("not write-locked", |kind| {
        let lock = mmap_lock(kind, 1);
        let vma = attached(&lock);
        vma.set_range(&lock.write(), 0..0x1000);
    });
}

#[test]
fn clear_of_an_attached_vma() {
    all_panic("is attached", |kind| {
        let lock = mmap_lock(kind, 1);
        let vma = attached(&lock);
        vma.clear(&lock.write());
    });
}

#[test]
fn init_of_a_slot_in_use() {
    all_panic("is another VMA's", |kind| {
        let lock = mmap_lock(kind, 1);
        let vma = attached(&lock);
        vma.init(&mmap_lock(kind, 2).write(), 0..0x1000, attributes(1))
            .unwrap();
    });
}

#[test]
fn locked_read_of_a_detached_vma() {
    all_panic("is Detached", |kind| {
        let lock = mmap_lock(kind, 1);
        let vma = Vma::new_slot(0);
        vma.init(&lock.write(), 0..0x1000, attributes(1)).unwrap();
        let _ = start_read_locked(&vma, &lock.read());
    });
}

#[test]
fn end_of_a_read_that_was_not_begun() {
    let end_twice = |kind| {
        let lock = mmap_lock(kind, 1);
        let vma = attached(&lock);
        let read = start_read(&vma, &lock).unwrap();
        // A second guard of one read.
        // SAFETY: a guard is plain data, and the VMA outlives both.
        let again = unsafe { core::ptr::read(&read) };
        drop(read);
        drop(again);
    };
    panics(
        VmaLockKind::Refcount,
        "vma_end_read of a VMA that nobody reads",
        end_twice,
    );
    panics(VmaLockKind::Rwsem, "left without having entered", end_twice);
}

#[test]
fn without_a_lock_a_vma_claims_nothing() {
    let only_one = Arc::new(Slab::new(1));
    let lock = MmapLock::new(1, Arc::new(Still));
    // SAFETY: `only_one` is dropped after the VMAs, which are made below.
    let lock = unsafe { lock.with_vma_locks(Arc::clone(&only_one)) };
    let vmas = [Vma::new_slot(0), Vma::new_slot(1)];
    let mmap = lock.write();
    let init = |vma: &Vma| vma.init(&mmap, 0..0x1000, attributes(1));
    assert_eq!(init(&vmas[0]), Ok(()));
    assert_eq!(init(&vmas[1]), Err(NoVmaLock));
    assert_eq!(vmas[1].space(), 0);
    // The lock goes with the VMA that had it.
    assert_eq!(vmas[0].clear(&mmap), attributes(1));
    assert_eq!(only_one.in_use(), 0);
    assert_eq!(init(&vmas[1]), Ok(()));
    assert_eq!(only_one.in_use(), 1);
}

/// Threads map and unmap in two spaces that share a slab of very few slots, and
/// others look up the mappings that the spaces published last. Ends once both kinds of reuse
/// have been caught; every lock that is given must be of the right mapping.
#[test]
fn reuse_under_a_readers_nose() {
    for kind in KINDS {
        reuse(kind);
    }
}

fn reuse(kind: VmaLockKind) {
    const SPACES: u64 = 2;
    /// A bound for a machine on which nothing ever overlaps.
    const ROUNDS: usize = 200_000_000;

    struct Space {
        lock: MmapLock,
        /// Slot and page of the mapping published last: `page << 32 | slot`.
        found: AtomicU64,
    }
    struct World {
        slab: Slab<Vma>,
        spaces: Vec<Space>,
        stop: AtomicU32,
    }
    let world = Arc::new(World {
        slab: Slab::new(3),
        spaces: (1..=SPACES)
            .map(|space| Space {
                lock: mmap_lock(kind, space),
                found: AtomicU64::new(u64::MAX),
            })
            .collect(),
        stop: AtomicU32::new(0),
    });
    let mark = |space: u64, page: usize| space << 40 | page as u64;

    let mut threads = Vec::new();
    for number in 0..SPACES as usize {
        let world = Arc::clone(&world);
        threads.push(spawn(move || {
            let mut page = number;
            // By turns in all spaces: a processor takes its freed slots again.
            for round in number.. {
                if world.stop.load(Relaxed) != 0 {
                    break;
                }
                let space = &world.spaces[round % world.spaces.len()];
                page = (page + 1) % 7;
                let start = page << 12;
                let mmap = space.lock.write();
                let slot = world.slab.alloc().expect("one a space, and one more");
                let vma = world.slab.get(slot);
                let marks = attributes(mark(space.lock.space(), page));
                vma.init(&mmap, start..start + 0x1000, marks.clone())
                    .unwrap();
                vma.attach(&mmap);
                space
                    .found
                    .store((page as u64) << 32 | u64::from(slot), Release);
                drop(mmap);
                thread::yield_now();
                let mmap = space.lock.write();
                vma.start_write(&mmap);
                vma.detach(&mmap);
                assert_eq!(vma.clear(&mmap), marks);
                vma.assert_detached();
                world.slab.free(slot);
            }
        }));
    }
    for number in 0..2 * SPACES as usize {
        let world = Arc::clone(&world);
        threads.push(spawn(move || {
            let space = &world.spaces[number % SPACES as usize];
            while world.stop.load(Relaxed) == 0 {
                let found = space.found.load(Acquire);
                if found == u64::MAX {
                    continue;
                }
                let (slot, page) = (found as u32, (found >> 32) as usize);
                let vma = world.slab.get(slot);
                thread::yield_now();
                let Ok(read) = try_lock_at(vma, &space.lock, (page << 12) + 0x123) else {
                    continue;
                };
                assert_eq!(vma.space(), space.lock.space());
                assert_eq!(vma.range(), page << 12..(page << 12) + 0x1000);
                let expected = mark(space.lock.space(), page);
                let as_expected = |now: &Attributes| *now == attributes(expected);
                // Nobody waits here for contention.
                read.bias(&space.lock);
                assert!(read.with(as_expected));
            }
        }));
    }
    let caught = || {
        let misses = world.spaces.iter().map(|space| space.lock.vma_misses());
        misses.fold((0, 0), |(spaces, ranges), misses| {
            let range = misses.other_range.get();
            (spaces + misses.other_space.get(), ranges + range)
        })
    };
    for _ in 0..ROUNDS {
        let (spaces, ranges) = caught();
        if spaces > 0 && ranges > 0 || threads.iter().any(|thread| thread.is_finished()) {
            break;
        }
        thread::yield_now();
    }
    world.stop.store(1, Relaxed);
    for thread in threads {
        thread.join().unwrap();
    }
    let (spaces, ranges) = caught();
    assert!(spaces > 0 && ranges > 0, "caught {spaces} and {ranges}");
    assert!(world.slab.reuses() > 0);
}
