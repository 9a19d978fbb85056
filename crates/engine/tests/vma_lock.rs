//! The VMA lock on the real machine: the count after every operation, misuse,
//! and reuse under a reader's nose.

use softfault_engine::clock::Clock;
use softfault_engine::mm::lock_vma::try_lock_at;
use softfault_engine::mm::vma_lock::{WRITER, start_read, start_read_locked};
use softfault_engine::mm::{Attributes, Backing, MmapLock, ReadError, Vma};
use softfault_engine::slab::{Slab, TypeStable};
use sync::Arc;
use sync::atomic::Ordering::{Acquire, Relaxed, Release};
use sync::atomic::{AtomicU32, AtomicU64};
use sync::thread::{self, spawn};

struct Still;

impl Clock for Still {
    fn now_ns(&self) -> u64 {
        0
    }
}

fn mmap_lock(space: u64) -> MmapLock {
    MmapLock::new(space, Arc::new(Still))
}

fn attributes(mark: u64) -> Attributes {
    Attributes {
        backing: Backing::Test(mark),
        pgoff: mark,
        ..Attributes::default()
    }
}

/// An attached VMA 0x1000..0x3000 of the space.
fn attached(lock: &MmapLock) -> Vma {
    let vma = Vma::new_slot(0);
    let mmap = lock.write();
    vma.init(&mmap, 0x1000..0x3000, attributes(1));
    vma.attach(&mmap);
    drop(mmap);
    vma
}

#[test]
fn the_count_after_every_operation() {
    let lock = mmap_lock(1);
    let vma = Vma::new_slot(0);
    vma.assert_detached();

    let mmap = lock.write();
    vma.init(&mmap, 0x1000..0x3000, attributes(1));
    vma.assert_detached();
    vma.assert_write_locked(&mmap);
    assert_eq!(start_read(&vma, &lock).unwrap_err(), ReadError::WriteLocked);
    vma.attach(&mmap);
    assert_eq!(vma.refcount(), 1);
    // Write-locked still, from its birth.
    assert_eq!(start_read(&vma, &lock).unwrap_err(), ReadError::WriteLocked);
    assert_eq!(vma.refcount(), 1);
    drop(mmap);

    let first = start_read(&vma, &lock).unwrap();
    assert_eq!(vma.refcount(), 2);
    let mmap = lock.read();
    let second = start_read_locked(&vma, &mmap).unwrap();
    drop(mmap);
    assert_eq!(vma.refcount(), 3);
    assert_eq!(second.with(|attributes| attributes.pgoff), 1);
    drop(first);
    assert_eq!(vma.refcount(), 2);
    drop(second);
    assert_eq!(vma.refcount(), 1);

    let mmap = lock.write();
    vma.start_write(&mmap);
    vma.start_write(&mmap);
    vma.assert_attached();
    vma.assert_write_locked(&mmap);
    assert_eq!(vma.refcount(), 1);
    vma.set_range(&mmap, 0x1000..0x2000);
    assert_eq!(vma.set_attributes(&mmap, attributes(2)), attributes(1));
    assert_eq!(vma.attributes(&mmap), attributes(2));
    drop(mmap);

    let read = try_lock_at(&vma, &lock, 0x1fff).unwrap();
    assert_eq!(read.vma().range(), 0x1000..0x2000);
    assert_eq!(vma.refcount(), 2);
    drop(read);

    let mmap = lock.write();
    vma.start_write(&mmap);
    vma.detach(&mmap);
    vma.assert_detached();
    assert_eq!(vma.clear(&mmap), attributes(2));
    assert_eq!(vma.space(), 0);
    drop(mmap);
    assert_eq!(start_read(&vma, &lock).unwrap_err(), ReadError::Detached);
    assert_eq!(vma.refcount(), 0);
}

#[test]
fn a_failed_read_leaves_the_count_alone() {
    let lock = mmap_lock(1);
    let other = mmap_lock(2);
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
    assert_eq!(vma.refcount(), 1);
    assert_eq!(lock.vma_misses().other_range.get(), 2);
    assert_eq!(other.vma_misses().other_space.get(), 1);
    assert_eq!(other.vma_misses().write_locked.get(), 1);
}

#[test]
fn letting_mmap_lock_go_ends_all_write_locks() {
    let lock = mmap_lock(1);
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

#[test]
fn no_more_readers_than_the_limit() {
    let lock = MmapLock::with_max_readers(1, Arc::new(Still), 2);
    let vma = attached(&lock);
    let first = start_read(&vma, &lock).unwrap();
    let _second = start_read(&vma, &lock).unwrap();
    assert_eq!(vma.refcount(), 3);
    assert_eq!(start_read(&vma, &lock).unwrap_err(), ReadError::Limit);
    let mmap = lock.read();
    let error = start_read_locked(&vma, &mmap).unwrap_err();
    assert_eq!(error, ReadError::Limit);
    assert_eq!(vma.refcount(), 3);
    drop(first);
    assert!(start_read_locked(&vma, &mmap).is_ok());
}

#[test]
fn a_writer_waits_for_readers_and_keeps_others_out() {
    let lock = Arc::new(mmap_lock(1));
    let vma = Arc::new(attached(&lock));
    let read = start_read(&vma, &lock).unwrap();
    let done = Arc::new(AtomicU32::new(0));
    let writer = {
        let (lock, vma, done) = (Arc::clone(&lock), Arc::clone(&vma), Arc::clone(&done));
        spawn(move || {
            let mmap = lock.write();
            vma.start_write(&mmap);
            done.store(1, Release);
            vma.set_range(&mmap, 0x1000..0x2000);
        })
    };
    while vma.refcount() & WRITER == 0 {
        thread::yield_now();
    }
    let error = start_read(&vma, &lock).unwrap_err();
    assert_eq!(error, ReadError::WriteLocked);
    assert_eq!(vma.refcount(), WRITER + 2);
    assert_eq!(read.vma().end(), 0x3000);
    assert_eq!(done.load(Acquire), 0);
    drop(read);
    writer.join().unwrap();
    assert_eq!(vma.refcount(), 1);
    assert_eq!(lock.vma_waits().snapshot().count, 1);
    assert!(try_lock_at(&vma, &lock, 0x2000).is_err());
    assert!(try_lock_at(&vma, &lock, 0x1000).is_ok());
}

#[test]
#[should_panic(expected = "attach of an attached VMA")]
fn attach_twice() {
    let lock = mmap_lock(1);
    let vma = attached(&lock);
    let mmap = lock.write();
    vma.start_write(&mmap);
    vma.attach(&mmap);
}

#[test]
#[should_panic(expected = "not write-locked")]
fn attach_of_a_slot_set_up_under_another_guard() {
    let lock = mmap_lock(1);
    let vma = Vma::new_slot(0);
    vma.init(&lock.write(), 0..0x1000, attributes(1));
    vma.attach(&lock.write());
}

#[test]
#[should_panic(expected = "detach of a detached VMA")]
fn detach_twice() {
    let lock = mmap_lock(1);
    let vma = attached(&lock);
    let mmap = lock.write();
    vma.start_write(&mmap);
    vma.detach(&mmap);
    vma.detach(&mmap);
}

#[test]
#[should_panic(expected = "not write-locked")]
fn detach_without_the_write_lock() {
    let lock = mmap_lock(1);
    let vma = attached(&lock);
    vma.detach(&lock.write());
}

#[test]
#[should_panic(expected = "write lock of a detached VMA")]
fn write_lock_of_a_detached_vma() {
    let lock = mmap_lock(1);
    let vma = attached(&lock);
    let mmap = lock.write();
    vma.start_write(&mmap);
    vma.detach(&mmap);
    drop(mmap);
    vma.start_write(&lock.write());
}

#[test]
#[should_panic(expected = "a VMA of space 1, not of 2")]
fn write_lock_with_another_spaces_mmap_lock() {
    let vma = attached(&mmap_lock(1));
    vma.start_write(&mmap_lock(2).write());
}

#[test]
#[should_panic(expected = "not write-locked")]
fn change_without_the_write_lock() {
    let lock = mmap_lock(1);
    let vma = attached(&lock);
    vma.set_range(&lock.write(), 0..0x1000);
}

#[test]
#[should_panic(expected = "is attached")]
fn clear_of_an_attached_vma() {
    let lock = mmap_lock(1);
    let vma = attached(&lock);
    vma.clear(&lock.write());
}

#[test]
#[should_panic(expected = "is another VMA's")]
fn init_of_a_slot_in_use() {
    let lock = mmap_lock(1);
    let vma = attached(&lock);
    vma.init(&mmap_lock(2).write(), 0..0x1000, attributes(1));
}

#[test]
#[should_panic(expected = "is Detached")]
fn locked_read_of_a_detached_vma() {
    let lock = mmap_lock(1);
    let vma = Vma::new_slot(0);
    vma.init(&lock.write(), 0..0x1000, attributes(1));
    let _ = start_read_locked(&vma, &lock.read());
}

#[test]
#[should_panic(expected = "vma_end_read of a VMA that nobody reads")]
fn end_of_a_read_that_was_not_begun() {
    let lock = mmap_lock(1);
    let vma = attached(&lock);
    let read = start_read(&vma, &lock).unwrap();
    // A second guard of one read.
    // SAFETY: a guard is plain data, and the VMA outlives both.
    let again = unsafe { core::ptr::read(&read) };
    drop(read);
    drop(again);
}

/// Threads map and unmap in two spaces that share a slab of very few slots, and
/// others look up what the spaces published last. Ends once both kinds of reuse
/// have been caught; every lock that is given must be of the right mapping.
#[test]
fn reuse_under_a_readers_nose() {
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
                lock: mmap_lock(space),
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
            let space = &world.spaces[number];
            let mut page = number;
            while world.stop.load(Relaxed) == 0 {
                page = (page + 1) % 7;
                let start = page << 12;
                let mmap = space.lock.write();
                let slot = world.slab.alloc().expect("one a space, and one more");
                let vma = world.slab.get(slot);
                let marks = attributes(mark(space.lock.space(), page));
                vma.init(&mmap, start..start + 0x1000, marks.clone());
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
