//! Huge pages over soft page tables, verb by verb: sharing, promises, and
//! the view of others.

use softfault_engine::PAGE_SIZE;
use softfault_engine::fault::{self, FaultError, NeverInterrupted, Stop};
use softfault_engine::huge::{HugeError, HugeFile, HugeMapping, HugePool, HugeSize, Reserve};
use softfault_engine::mm::{AddressSpace, Attributes, Backing, MmError, Protection, VmaSlabs};
use softfault_engine::mmu::SoftMmu;
use softfault_engine::policy::{HugeAround, HugeJoin, HugePolicies, LeftLeaf, ShareSync};
use softfault_oracle::Ticks;
use std::ops::Range;
use std::sync::Arc;

const HUGE: usize = 2 << 20;
/// Pages of a leaf.
const LEAF: u64 = 512;
const START: usize = 0x4000_0000_0000;

/// A pool, and spaces to map files in.
struct World {
    mmu: Arc<SoftMmu>,
    pool: Arc<HugePool>,
    slabs: Arc<VmaSlabs>,
}

fn world(pages: u32, policies: impl Into<HugePolicies>) -> World {
    let mmu = SoftMmu::with_huge_memory(64 << 20, pages as usize * HUGE);
    let mmu = Arc::new(mmu.expect("address space"));
    let clock = Arc::new(Ticks::default());
    let pool = HugePool::new(mmu.clone(), clock, HugeSize::TwoMiB, pages, policies);
    World {
        pool: pool.unwrap(),
        mmu,
        slabs: VmaSlabs::new(1 << 12),
    }
}

const ALL: [ShareSync; 3] = [
    ShareSync::IMmapRwsem,
    ShareSync::Document,
    ShareSync::VmaLock,
];

impl World {
    fn space(&self) -> AddressSpace {
        AddressSpace::new(self.slabs.clone(), Arc::new(Ticks::default())).unwrap()
    }

    fn file(&self, pages: u64) -> Arc<HugeFile> {
        HugeFile::new(&self.pool, pages).unwrap()
    }

    /// Bytes in the middle of a huge page.
    fn write(&self, space: &AddressSpace, index: u64, byte: u8) -> Result<(), FaultError> {
        let mut core = self.mmu.core().unwrap();
        let addr = at(index) + 12_345;
        let written = fault::write_at(&mut core, space, addr, &[byte], &NeverInterrupted);
        written.map_err(|stopped| error(stopped.why))
    }

    fn read(&self, space: &AddressSpace, index: u64) -> Result<u8, FaultError> {
        let mut core = self.mmu.core().unwrap();
        let read = fault::touch(&mut core, space, at(index) + 12_345, &NeverInterrupted);
        read.map_err(|stopped| error(stopped.why))
    }
}

fn error(why: Stop) -> FaultError {
    match why {
        Stop::Error(error) => error,
        Stop::Interrupted => panic!("by nobody"),
    }
}

/// Where a space shows an index of a file that it maps from the beginning.
fn at(index: u64) -> usize {
    START + index as usize * HUGE
}

fn range(indexes: Range<u64>) -> Range<usize> {
    at(indexes.start)..at(indexes.end)
}

fn attributes(mapping: &Arc<HugeMapping>, first: u64, protection: Protection) -> Attributes {
    Attributes {
        backing: Backing::from(mapping.clone()),
        pgoff: first * (HUGE / PAGE_SIZE) as u64,
        protection,
        ..Attributes::default()
    }
}

/// Maps indexes of a file where `at` says.
fn map(space: &AddressSpace, file: &Arc<HugeFile>, indexes: Range<u64>) -> Arc<HugeMapping> {
    let mapping = HugeMapping::new(file, indexes.clone(), Reserve::Yes).unwrap();
    let attributes = attributes(&mapping, indexes.start, Protection::ReadWrite);
    space.mmap(range(indexes), attributes).unwrap();
    mapping
}

#[test]
fn all_spaces_see_a_write_and_one_leaf_is_enough() {
    for sync in ALL {
        let world = world(LEAF as u32, sync);
        let file = world.file(LEAF);
        let (one, other) = (world.space(), world.space());
        let mapping = map(&one, &file, 0..LEAF);
        map(&other, &file, 0..LEAF);
        for index in 0..LEAF {
            world.write(&one, index, index as u8).unwrap();
        }
        let alone = world.pool.table_bytes();
        let faults = world.pool.stats().faults;
        for index in 0..LEAF {
            assert_eq!(world.read(&other, index), Ok(index as u8));
        }
        // One fault begins to share: all others find their pages there.
        assert_eq!(world.pool.stats().faults, faults + 1);
        assert_eq!(world.pool.table_bytes(), alone);
        assert_eq!((file.sharers(0), file.pages()), (2, LEAF));
        assert_eq!(mapping.mapped_pages(), LEAF);
        drop(mapping);
        one.exit(|_, _| {});
        assert_eq!(file.sharers(0), 1);
        assert_eq!(world.read(&other, 77), Ok(77));
        // Nor does it fault again: an unmap takes nothing out of the others' leaf.
        assert_eq!(world.pool.stats().faults, faults + 1);
        other.exit(|_, _| {});
        assert_eq!(file.sharers(0), 0);
        // Its leaf stays with the file: the next mapping faults once.
        let (third, faults) = (world.space(), world.pool.stats().faults);
        map(&third, &file, 0..LEAF);
        for index in 0..LEAF {
            assert_eq!(world.read(&third, index), Ok(index as u8));
        }
        assert_eq!(world.pool.stats().faults, faults + 1);
        third.exit(|_, _| {});
        // Punched pages are in no leaf any more, although no mapping is left.
        file.punch_hole(3..5).unwrap();
        assert_eq!(world.pool.counts().free, 2);
        drop(file);
        assert_eq!(world.pool.table_bytes(), 0);
        let counts = world.pool.counts();
        assert_eq!((counts.free, counts.reserved), (LEAF, 0));
    }
}

#[test]
fn a_space_that_changes_a_part_has_its_own_tables() {
    for sync in ALL {
        let world = world(LEAF as u32, sync);
        let file = world.file(LEAF);
        let (one, other) = (world.space(), world.space());
        map(&one, &file, 0..LEAF);
        map(&other, &file, 0..LEAF);
        for index in [1, 300, 511] {
            world.write(&one, index, 9).unwrap();
            assert_eq!(world.read(&other, index), Ok(9));
        }
        assert_eq!(file.sharers(0), 2);
        // protect a part: the other one may write on
        one.mprotect(range(300..301), Protection::Read).unwrap();
        assert_eq!(file.sharers(0), 1);
        assert_eq!(world.write(&one, 300, 1), Err(FaultError::Protection));
        world.write(&other, 300, 10).unwrap();
        assert_eq!(world.read(&one, 300), Ok(10));
        // its tables have the pages that it touches, and nobody shares with it
        assert_eq!(file.sharers(0), 1);
        // unmap a part: it is gone here, and there for the other
        one.munmap(range(1..2), |_, _| {}).unwrap();
        assert_eq!(world.read(&one, 1), Err(FaultError::NotMapped));
        assert_eq!(world.read(&other, 1), Ok(9));
        // remap a part
        let far = at(4 * LEAF);
        other.mremap(range(300..301), far).unwrap();
        assert_eq!(file.sharers(0), 0);
        let mut core = world.mmu.core().unwrap();
        let moved = fault::touch(&mut core, &other, far + 12_345, &NeverInterrupted);
        assert_eq!(moved, Ok(10));
        assert_eq!(world.read(&other, 300), Err(FaultError::NotMapped));
        // cuts go between huge pages
        let within = at(5)..at(6) + PAGE_SIZE;
        assert_eq!(
            other.munmap(within.clone(), |_, _| {}),
            Err(MmError::Misaligned)
        );
        let protected = other.mprotect(within, Protection::Read);
        assert_eq!(protected, Err(MmError::Misaligned));
        one.exit(|_, _| {});
        other.exit(|_, _| {});
        drop(file);
        assert_eq!(world.pool.table_bytes(), 0);
    }
}

#[test]
fn reserved_pages_are_there_and_others_are_refused_at_once() {
    for sync in ALL {
        let world = world(10, sync);
        let file = world.file(8);
        let space = world.space();
        let mapping = HugeMapping::new(&file, 0..8, Reserve::Yes).unwrap();
        let counts = world.pool.counts();
        assert_eq!((counts.free, counts.reserved), (10, 8));
        let second = world.file(3);
        let refused = HugeMapping::new(&second, 0..3, Reserve::Yes).err();
        assert_eq!(refused, Some(HugeError::Pool { wanted: 3, free: 2 }));
        // A mapping with no promise takes the rest, and then none.
        let greedy = HugeMapping::new(&second, 0..3, Reserve::No).unwrap();
        let other = world.space();
        other
            .mmap(range(0..3), attributes(&greedy, 0, Protection::ReadWrite))
            .unwrap();
        world.write(&other, 0, 1).unwrap();
        world.write(&other, 2, 1).unwrap();
        assert_eq!(world.write(&other, 1, 1), Err(FaultError::NoMemory));
        space
            .mmap(range(0..8), attributes(&mapping, 0, Protection::ReadWrite))
            .unwrap();
        for index in 0..8 {
            world.write(&space, index, 2).unwrap();
        }
        assert_eq!(world.pool.counts().free, 0);
        // A hole in promised pages stays promised.
        file.punch_hole(3..5).unwrap();
        assert_eq!(
            (world.pool.counts().free, world.pool.counts().reserved),
            (2, 2)
        );
        assert_eq!(world.write(&other, 1, 1), Err(FaultError::NoMemory));
        assert_eq!(world.read(&space, 3), Ok(0));
        file.truncate(4).unwrap();
        assert_eq!(world.read(&space, 4), Err(FaultError::BeyondEnd));
        assert_eq!(world.read(&space, 2), Ok(2));
        world.write(&other, 1, 1).unwrap();
        drop(mapping);
        drop(greedy);
        space.exit(|_, _| {});
        other.exit(|_, _| {});
        drop((file, second));
        let counts = world.pool.counts();
        assert_eq!((counts.free, counts.reserved), (10, 0));
    }
}

#[test]
fn a_fork_shares_and_unmapped_promises_end() {
    for sync in ALL {
        let world = world(2 * LEAF as u32, sync);
        let file = world.file(LEAF);
        let (parent, child) = (world.space(), world.space());
        map(&parent, &file, 0..LEAF);
        world.write(&parent, 5, 1).unwrap();
        parent.fork(&child).unwrap();
        assert_eq!(world.read(&child, 5), Ok(1));
        world.write(&child, 5, 2).unwrap();
        assert_eq!(world.read(&parent, 5), Ok(2));
        assert_eq!(file.sharers(0), 2);
        parent.exit(|_, _| {});
        assert_eq!(world.pool.counts().reserved, LEAF - 1);
        child.exit(|_, _| {});
        assert_eq!(world.pool.counts().reserved, 0);
        assert_eq!(file.pages(), 1);
    }
}

/// Linux's tables and faults, but for the lock.
fn as_linux(sync: ShareSync) -> HugePolicies {
    HugePolicies {
        sync,
        around: HugeAround::No,
        join: HugeJoin::FaultMutex,
        left: LeftLeaf::Freed,
    }
}

#[test]
fn as_linux_each_page_is_a_fault_with_its_mutex_and_the_last_mapping_frees_the_leaf() {
    for sync in ALL {
        let world = world(LEAF as u32, as_linux(sync));
        let file = world.file(LEAF);
        let (one, other) = (world.space(), world.space());
        let mappings = [&one, &other].map(|space| map(space, &file, 0..LEAF));
        let upper = world.pool.table_bytes();
        for index in 0..LEAF {
            world.write(&one, index, index as u8).unwrap();
        }
        assert_eq!(world.read(&other, 77), Ok(77));
        let stats = world.pool.stats();
        assert_eq!((stats.faults, stats.locked), (LEAF + 1, LEAF + 1));
        for space in [&one, &other] {
            space.munmap(range(0..LEAF), |_, _| {}).unwrap();
        }
        assert_eq!(world.pool.table_bytes(), upper);
        drop(mappings);
        map(&one, &file, 0..LEAF);
        for index in 0..LEAF {
            assert_eq!(world.read(&one, index), Ok(index as u8));
        }
        let stats = world.pool.stats();
        assert_eq!((stats.faults, stats.filled), (2 * LEAF + 1, LEAF));
        one.exit(|_, _| {});
        other.exit(|_, _| {});
        drop(file);
        assert_eq!(world.pool.table_bytes(), 0);
    }
}

/// Mapping and unmapping take it for writing, under every policy.
#[test]
fn which_faults_take_i_mmap_for_reading() {
    for (sync, first, again) in [
        (ShareSync::IMmapRwsem, 1, 1),
        (ShareSync::Document, 1, 0),
        (ShareSync::VmaLock, 0, 0),
    ] {
        for policies in [sync.into(), as_linux(sync)] {
            let world = world(LEAF as u32, policies);
            let file = world.file(LEAF);
            let space = world.space();
            let mapping = map(&space, &file, 0..LEAF);
            let reads = || file.i_mmap_waits()[0].count;
            world.write(&space, 0, 1).unwrap();
            assert_eq!(reads(), first, "{policies:?}");
            // Beyond the pages that the first fault has mapped around its page.
            world.write(&space, 100, 1).unwrap();
            assert_eq!(reads(), first + again, "{policies:?}");
            // A part of a span is nobody else's.
            space.munmap(range(0..1), |_, _| {}).unwrap();
            let before = reads();
            world.write(&space, 200, 1).unwrap();
            assert_eq!(reads(), before + again, "{policies:?}");
            drop(mapping);
            space.exit(|_, _| {});
        }
    }
}
