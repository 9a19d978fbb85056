//! Models of huge pages: faults of two spaces on one file, and on one leaf table, against
//! each other and against hole punch, truncate, unmap and reservations. Leaves have two
//! entries here.
//!
//! A fault goes all its way, so that one to three preemptions can be explored; the
//! first two models were through with three as well, in six minutes. Pages are fresh: nobody
//! clears any, and no bytes are touched. The models show that counts are right
//! (sharers, pages, promises, mapped entries: `HugePool::give` refuses a page that a leaf
//! has), and that nobody waits for ever.

use std::mem::ManuallyDrop;
use std::sync::Arc;

use crate::model::spawn;
use crate::model::{Still, explore};
use softfault_engine_loom::PAGE_SIZE;
use softfault_engine_loom::fault::{self, FaultError, FaultFlags, NeverInterrupted, Outcome};
use softfault_engine_loom::huge::{HugeFile, HugeMapping, HugePool, HugeSize, Reserve, Shape};
use softfault_engine_loom::mm::{AddressSpace, Attributes, Backing, Protection, VmaSlabs};
use softfault_engine_loom::mmu::SoftMmu;
use softfault_engine_loom::policy::{HugeAround, HugeJoin, HugePolicies, LeftLeaf, ShareSync};

const HUGE: usize = 2 << 20;
const START: usize = 0x4000_0000_0000;
/// Pages of a leaf, and of a file.
const LEAF: u64 = 2;

/// A file that two spaces map.
struct World {
    pool: Arc<HugePool>,
    file: Arc<HugeFile>,
    spaces: [ManuallyDrop<AddressSpace>; 2],
}

impl World {
    /// With so many pages in the pool.
    fn new(pages: u32, policies: HugePolicies, reserve: Reserve) -> Arc<Self> {
        let mmu = SoftMmu::with_huge_memory(4 * PAGE_SIZE, pages as usize * HUGE).unwrap();
        let shape = Shape {
            leaf_pages: LEAF as usize,
            fault_mutexes: 2,
        };
        let (mmu, size) = (Arc::new(mmu), HugeSize::TwoMiB);
        let pool =
            HugePool::with_shape(mmu, Arc::new(Still), size, pages, policies, shape).unwrap();
        let file = HugeFile::new(&pool, LEAF).unwrap();
        let slabs = VmaSlabs::new(16);
        let spaces = [(); 2].map(|()| {
            let space = AddressSpace::new(slabs.clone(), Arc::new(Still)).unwrap();
            let mapping = HugeMapping::new(&file, 0..LEAF, reserve).unwrap();
            let attributes = Attributes {
                backing: Backing::from(mapping),
                protection: Protection::ReadWrite,
                ..Attributes::default()
            };
            space
                .mmap(START..START + LEAF as usize * HUGE, attributes)
                .unwrap();
            ManuallyDrop::new(space)
        });
        Arc::new(Self { pool, file, spaces })
    }

    fn fault(&self, space: usize, index: usize) -> Outcome {
        let flags = FaultFlags {
            write: true,
            ..FaultFlags::default()
        };
        let addr = START + index * HUGE;
        fault::handle(&self.spaces[space], addr, flags, &NeverInterrupted)
    }

    fn unmap(&self, space: usize, indexes: core::ops::Range<usize>) {
        let range = START + indexes.start * HUGE..START + indexes.end * HUGE;
        self.spaces[space].munmap(range, |_, _| {}).unwrap();
    }

    /// Pages in the file, and promised ones.
    fn has(&self) -> (u64, u64) {
        let counts = self.pool.counts();
        assert_eq!(counts.free + self.file.pages(), counts.total);
        (self.file.pages(), counts.reserved)
    }

    fn finish(self: Arc<Self>) {
        let Ok(Self { pool, file, spaces }) = Arc::try_unwrap(self) else {
            panic!("both threads have ended");
        };
        for space in spaces {
            ManuallyDrop::into_inner(space).exit(|_, _| {});
        }
        drop(file);
        let counts = pool.counts();
        assert_eq!((counts.free, counts.reserved), (counts.total, 0));
        assert_eq!(pool.table_bytes(), 0);
    }
}

const BEYOND_END: Outcome = Outcome::Error(FaultError::BeyondEnd);

/// As Linux with document 001.
const DOCUMENT: HugePolicies = HugePolicies {
    sync: ShareSync::Document,
    around: HugeAround::No,
    join: HugeJoin::FaultMutex,
    left: LeftLeaf::Freed,
};

/// Explores `one` beside `other` under our policies, with the baseline's lock, and as in
/// the document, with so many preemptions; then asks `after`.
fn beside(
    preemptions: usize,
    (pages, reserve): (u32, Reserve),
    one: fn(&World),
    other: fn(&World),
    after: fn(&World),
) {
    let others = [ShareSync::VmaLock, ShareSync::IMmapRwsem].map(HugePolicies::from);
    for policies in others.into_iter().chain([DOCUMENT]) {
        explore(Some(preemptions), move || {
            let world = World::new(pages, policies, reserve);
            // Neither is the main thread, so that either may begin for nothing.
            let threads = [one, other].map(|play| {
                let world = Arc::clone(&world);
                spawn(move || play(&world))
            });
            for thread in threads {
                thread.join().unwrap();
            }
            after(&world);
            world.finish();
        });
    }
}

#[test]
fn two_spaces_begin_to_share() {
    beside(
        2,
        (2, Reserve::Yes),
        |world| assert_eq!(world.fault(0, 0), Outcome::Mapped),
        |world| assert_eq!(world.fault(1, 1), Outcome::Mapped),
        |world| {
            assert_eq!(world.file.sharers(0), 2);
            assert_eq!(world.has(), (2, 0));
        },
    );
}

#[test]
fn two_faults_on_one_page_fill_it_once() {
    beside(
        2,
        (2, Reserve::Yes),
        |world| assert_eq!(world.fault(0, 0), Outcome::Mapped),
        |world| assert_eq!(world.fault(1, 0), Outcome::Mapped),
        |world| {
            assert_eq!(world.pool.stats().filled, 1);
            assert_eq!(world.has(), (1, 1));
        },
    );
}

#[test]
fn a_fault_against_a_hole() {
    beside(
        1,
        (2, Reserve::Yes),
        |world| assert_eq!(world.fault(0, 0), Outcome::Mapped),
        |world| {
            assert_eq!(world.fault(1, 1), Outcome::Mapped);
            world.file.punch_hole(0..LEAF).unwrap();
        },
        |world| {
            // All pages are promised, present or not.
            let (pages, reserved) = world.has();
            assert_eq!(pages + reserved, 2);
        },
    );
}

#[test]
fn a_huge_fault_against_truncate() {
    beside(
        3,
        (2, Reserve::Yes),
        |world| {
            let outcome = world.fault(0, 1);
            assert!(
                matches!(outcome, Outcome::Mapped | BEYOND_END),
                "{outcome:?}"
            );
        },
        |world| world.file.truncate(1).unwrap(),
        |world| {
            assert_eq!(world.has(), (0, 1));
            assert_eq!(world.fault(0, 1), BEYOND_END);
        },
    );
}

/// The mapping that goes shares the leaf that the other faults in.
#[test]
fn a_fault_against_the_unmap_of_a_sharer() {
    beside(
        1,
        (2, Reserve::Yes),
        |world| assert_eq!(world.fault(0, 0), Outcome::Mapped),
        |world| {
            assert_eq!(world.fault(1, 1), Outcome::Mapped);
            world.unmap(1, 0..1);
        },
        |world| {
            assert_eq!(world.file.sharers(0), 1);
            assert_eq!(world.has(), (2, 0));
        },
    );
}

/// A mapping whose pages are all promised needs no more, also while pages are being filled.
#[test]
fn a_promise_against_a_fault() {
    beside(
        1,
        (2, Reserve::Yes),
        |world| assert_eq!(world.fault(0, 0), Outcome::Mapped),
        |world| {
            let third = HugeMapping::new(&world.file, 0..LEAF, Reserve::Yes);
            assert!(third.is_ok(), "all is promised already");
        },
        |world| assert_eq!(world.has(), (1, 1)),
    );
}

/// One page, and no promise: one of the two has it.
#[test]
fn a_fault_without_a_promise_against_a_reservation() {
    beside(
        1,
        (1, Reserve::No),
        |world| {
            let outcome = world.fault(0, 0);
            let none = Outcome::Error(FaultError::NoMemory);
            assert!(outcome == Outcome::Mapped || outcome == none, "{outcome:?}");
        },
        |world| {
            drop(HugeMapping::new(&world.file, 0..1, Reserve::Yes));
            drop(HugeMapping::new(&world.file, 1..2, Reserve::Yes));
        },
        |world| assert_eq!(world.has().1, 0),
    );
}
