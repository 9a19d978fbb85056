//! Random operations on anonymous memory over the soft page tables: every byte
//! and error is the model's, so is the number of pages that are paid for, and
//! nothing is left at the end.

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use softfault_engine::PAGE_SIZE;
use softfault_engine::anon::Anonymous;
use softfault_engine::fault::{self, FaultError, NeverInterrupted, Stop, Stopped};
use softfault_engine::mm::{AddressSpace, Attributes, Backing, MmError, Protection};
use softfault_engine::mmu::Core;
use softfault_engine::policy::Policies;
use softfault_oracle::{Access, AnonWorld, Expected, Op, Rig, any_anon_op, play_anon};
use std::collections::BTreeMap;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex};

/// Address of the arena in every space.
const ARENA: usize = 0x7000_0000_0000 + 5 * PAGE_SIZE;

fn addresses(pages: &Range<usize>) -> Range<usize> {
    ARENA + pages.start * PAGE_SIZE..ARENA + pages.end * PAGE_SIZE
}

struct SoftWorld {
    rig: Rig,
    spaces: BTreeMap<usize, AddressSpace>,
    /// What nobody uses at the moment. Kept from one operation to the next:
    /// they remember where pages were.
    cores: Mutex<Vec<Core>>,
}

impl SoftWorld {
    fn new(policies: Policies) -> Self {
        let rig = Rig::with_policies(16_384, policies);
        let spaces = BTreeMap::from([(0, rig.another_space())]);
        Self {
            rig,
            spaces,
            cores: Mutex::default(),
        }
    }

    fn finish(self) {
        for space in self.spaces.values() {
            space.exit(|_, _| {});
        }
        drop((self.spaces, self.cores));
        self.rig.finish();
    }
}

struct Way<'a> {
    world: &'a SoftWorld,
    /// None only while dropping.
    core: Option<Core>,
}

impl Way<'_> {
    fn parts(&mut self, space: usize) -> (&mut Core, &AddressSpace) {
        (self.core.as_mut().unwrap(), &self.world.spaces[&space])
    }
}

impl Drop for Way<'_> {
    fn drop(&mut self) {
        self.world.cores.lock().unwrap().extend(self.core.take());
    }
}

fn expected(result: Result<(), Stopped>) -> Expected {
    match result.map_err(|stopped| stopped.why) {
        Ok(()) => Expected::Done,
        Err(Stop::Error(FaultError::NotMapped)) => Expected::Unmapped,
        Err(Stop::Error(FaultError::Protection)) => Expected::Forbidden,
        Err(why) => panic!("{why:?}"),
    }
}

impl Access for Way<'_> {
    fn read(&mut self, space: usize, at: usize, bytes: &mut [u8]) -> Expected {
        let (core, space) = self.parts(space);
        let addr = ARENA + at;
        expected(fault::read_at(core, space, addr, bytes, &NeverInterrupted))
    }

    fn write(&mut self, space: usize, at: usize, bytes: &[u8]) -> Expected {
        let (core, space) = self.parts(space);
        let addr = ARENA + at;
        expected(fault::write_at(core, space, addr, bytes, &NeverInterrupted))
    }
}

impl AnonWorld for SoftWorld {
    fn access(&self) -> Box<dyn Access + '_> {
        let known = self.cores.lock().unwrap().pop();
        let core = known.or_else(|| self.rig.mmu.core());
        Box::new(Way {
            world: self,
            core: Some(core.unwrap()),
        })
    }

    fn map(&mut self, space: usize, pages: Range<usize>) -> Result<(), MmError> {
        // Every second one is a part of larger memory.
        let skipped = pages.len() % 2 * 77;
        let bytes = (skipped + pages.len() + 3) * PAGE_SIZE;
        let attributes = Attributes {
            backing: Backing::Anonymous(Anonymous::new(self.rig.node.clone(), bytes).unwrap()),
            pgoff: skipped as u64,
            protection: Protection::ReadWrite,
            ..Attributes::default()
        };
        self.spaces[&space].mmap(addresses(&pages), attributes)
    }

    fn unmap(&mut self, space: usize, pages: Range<usize>) {
        let unmapped = self.spaces[&space].munmap(addresses(&pages), |_, _| {});
        unmapped.unwrap();
    }

    fn is_whole(&self) -> bool {
        true
    }

    fn protect(
        &mut self,
        space: usize,
        pages: Range<usize>,
        protection: Protection,
    ) -> Result<(), MmError> {
        self.spaces[&space].mprotect(addresses(&pages), protection)
    }

    fn remap(&mut self, space: usize, pages: Range<usize>, to: usize) -> Result<(), MmError> {
        self.spaces[&space].mremap(addresses(&pages), ARENA + to * PAGE_SIZE)
    }

    fn fork(&mut self, space: usize, child: usize) {
        let copy = self.rig.another_space();
        self.spaces[&space].fork(&copy).unwrap();
        self.spaces.insert(child, copy);
    }

    fn exit(&mut self, space: usize) {
        let space = self.spaces.remove(&space).unwrap();
        space.exit(|_, _| {});
    }

    fn check(&self, space: usize, resident: usize) {
        let space = &self.spaces[&space];
        let mmap = space.mmap_lock().read();
        // Two VMAs may be of one memory.
        let mut memory: Vec<Arc<Anonymous>> = Vec::new();
        space.for_each_vma(&mmap, 0..usize::MAX, |vma| {
            if let Backing::Anonymous(anon) = vma.attributes(&mmap).backing
                && !memory.iter().any(|known| Arc::ptr_eq(known, &anon))
            {
                memory.push(anon);
            }
        });
        let paid: usize = memory.iter().map(|anon| anon.resident_pages()).sum();
        assert_eq!(paid, resident);
        drop(memory);
        drop(mmap);
        // Which looks at the slots of all spaces.
        space.validate(&space.mmap_lock().read());
    }
}

fn run(policies: Policies, ops: &[Op]) {
    let mut world = ManuallyDrop::new(SoftWorld::new(policies));
    let played = catch_unwind(AssertUnwindSafe(|| {
        play_anon(&mut [&mut *world], ops);
    }));
    match played {
        Ok(()) => ManuallyDrop::into_inner(world).finish(),
        // What is half done cannot be dropped.
        Err(panic) => resume_unwind(panic),
    }
}

/// Seeds that failed once are kept beside the sources, and tried first.
fn config(cases: u32) -> ProptestConfig {
    let kept = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/proptest-regressions/anon_oracle.txt"
    );
    ProptestConfig {
        cases,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(kept))),
        max_shrink_iters: 2000,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config(80))]

    #[test]
    fn every_byte_and_page_is_the_models(
        policies in prop_oneof![Just(""), Just("lock=rwsem+retry=mmap-lock"), Just("retry=held"), Just("lock=biased")],
        ops in proptest::collection::vec(any_anon_op(), 1..80),
    ) {
        let first = Op::MapZeros { space: 0, pages: 300..1500 };
        let ops: Vec<_> = std::iter::once(first).chain(ops).collect();
        run(policies.parse().unwrap(), &ops);
    }
}
