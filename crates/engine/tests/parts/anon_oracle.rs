//! Random operations on anonymous memory over the soft page tables, with and
//! without swap: every byte and error is the model's, so is the number of pages
//! that are paid for, and nothing is left at the end.
//!
//! ```text
//!   SOFTFAULT_ORACLE_OPERATIONS=1_000_000   so many operations in `a_long_run`
//! ```

use proptest::prelude::*;
use softfault_engine::PAGE_SIZE;
use softfault_engine::anon::Anonymous;
use softfault_engine::fault::{self, FaultError, NeverInterrupted, Stop, Stopped};
use softfault_engine::mm::ForkError;
use softfault_engine::mm::{AddressSpace, Attributes, Backing, MmError, Protection};
use softfault_engine::mmu::Core;
use softfault_engine::policy::Policies;
use softfault_oracle::{Access, AnonWorld, COPIED_PAGES, Expected, Managed, MemoryVerb, Op, Paid};
use softfault_oracle::{Rig, TestStore, TestSwap, any_anon_op, any_swap_op};
use softfault_oracle::{cases, is_resident, long_run, manage, play_anon, private_copy};
use std::collections::BTreeMap;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex};

/// Address of the arena in every space.
const ARENA: usize = 0x7000_0000_0000 + 5 * PAGE_SIZE;

/// Pages of a budget that is smaller than the mapped memory; more than half of it is
/// somebody else's.
const BUDGET: u64 = 2048;
/// The error of failing swap.
const EIO: i32 = 5;

fn addresses(pages: &Range<usize>) -> Range<usize> {
    ARENA + pages.start * PAGE_SIZE..ARENA + pages.end * PAGE_SIZE
}

/// The state of a run.
#[derive(Debug, Clone, Default)]
struct Setting {
    policies: Policies,
    /// Slots of swap; 0: there is none.
    slots: usize,
    /// Asynchronous reads at a time.
    queue: usize,
    /// Pages of the budget that it may use; None: more than it needs.
    free: Option<u64>,
    /// Swap fails when told to, or is full.
    may_fail: bool,
}

struct SoftWorld {
    rig: Rig,
    setting: Setting,
    swap: Option<Arc<TestSwap>>,
    store: Arc<TestStore>,
    /// Pages of the budget that somebody else has.
    taken: u64,
    spaces: BTreeMap<usize, AddressSpace>,
    /// Things that are not in use at the moment. Kept from one operation to the next:
    /// they remember where pages were.
    cores: Mutex<Vec<Core>>,
}

impl SoftWorld {
    fn new(setting: Setting) -> Self {
        let pages = setting.free.map_or(16_384, |_| BUDGET);
        let (policies, queue) = (setting.policies, setting.queue);
        let swap = (setting.slots > 0).then(|| TestSwap::with_queue(setting.slots, queue));
        let rig = match &swap {
            Some(swap) => Rig::with_swap(pages, policies, swap),
            None => Rig::with_policies(pages, policies),
        };
        let budget = &rig.node.budget;
        let taken = setting.free.map_or(0, |free| budget.free() - free);
        assert!(budget.try_charge(taken, 0), "so much was free");
        let spaces = BTreeMap::from([(0, rig.another_space())]);
        Self {
            store: TestStore::new((COPIED_PAGES * PAGE_SIZE) as u64),
            cores: Mutex::default(),
            rig,
            setting,
            swap,
            taken,
            spaces,
        }
    }

    fn finish(self) {
        for space in self.spaces.values() {
            space.exit(|_, _| {});
        }
        drop((self.spaces, self.cores, self.store));
        self.rig.node.budget.uncharge(self.taken);
        self.rig.finish();
    }
}

fn attributes(anon: Arc<Anonymous>, pgoff: u64) -> Attributes {
    Attributes {
        backing: Backing::from(anon),
        pgoff,
        protection: Protection::ReadWrite,
        ..Attributes::default()
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
        Err(Stop::Error(FaultError::Io(EIO) | FaultError::Short | FaultError::NoMemory)) => {
            Expected::Failed
        }
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
        let anon = Anonymous::new(self.rig.node.clone(), bytes).unwrap();
        self.spaces[&space].mmap(addresses(&pages), attributes(anon, skipped as u64))
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

    fn fork(&mut self, space: usize, child: usize) -> bool {
        let copy = self.rig.another_space();
        match self.spaces[&space].fork(&copy) {
            Ok(()) => self.spaces.insert(child, copy).is_none(),
            Err(ForkError::Budget) => false,
            Err(error) => panic!("{error:?}"),
        }
    }

    fn exit(&mut self, space: usize) {
        let space = self.spaces.remove(&space).unwrap();
        space.exit(|_, _| {});
    }

    fn is_managed(&self) -> bool {
        true
    }

    fn map_copy(&mut self, space: usize, pages: Range<usize>, from: usize) -> Result<(), MmError> {
        let bytes = pages.len() * PAGE_SIZE;
        let copy = private_copy(self.rig.node.clone(), bytes, &self.store, from);
        self.spaces[&space].mmap(addresses(&pages), attributes(copy, 0))
    }

    fn manage(&mut self, space: usize, pages: Range<usize>, verb: MemoryVerb) -> Expected {
        match manage(&self.spaces[&space], addresses(&pages), verb) {
            Managed::Done => Expected::Done,
            Managed::NoMemory | Managed::Io => Expected::Failed,
            Managed::Refused => Expected::Forbidden,
        }
    }

    fn beneath(&mut self, op: &Op) {
        match (op, &self.swap) {
            (Op::Evict, _) => self.rig.evict_all(),
            (Op::Memory { more }, _) => {
                let pages = self.rig.node.budget.limit().min(BUDGET) + u64::from(*more);
                self.rig.change_memory(pages);
            }
            (Op::FailSwapReads { reads }, Some(swap)) => swap.fail_reads((*reads).into(), EIO),
            (Op::FailSwapWrites { writes }, Some(swap)) => swap.fail_writes((*writes).into(), EIO),
            _ => {}
        }
    }

    fn lift_shortage(&mut self) {
        if let Some(swap) = &self.swap {
            swap.fail_reads(0, EIO);
            swap.fail_writes(0, EIO);
        }
        let limit = self.rig.node.budget.limit();
        self.rig.change_memory(limit.max(BUDGET + self.taken));
    }

    fn may_fail(&self) -> bool {
        self.setting.may_fail
    }

    fn most_locked(&self) -> usize {
        self.setting.free.map_or(1000, |free| free as usize / 4)
    }

    fn absent(&self, space: usize, pages: &[usize]) -> Option<usize> {
        let space = &self.spaces[&space];
        let is_absent = |page: &&usize| !is_resident(space, ARENA + *page * PAGE_SIZE);
        pages.iter().find(is_absent).copied()
    }

    fn check_all(&self) {
        if self.swap.is_some() {
            // Every charge has an owner.
            let node = &self.rig.node;
            let charged = node.budget.charged() - self.taken;
            assert_eq!(charged, node.charged_pages(), "pages that are charged");
        }
    }

    fn check(&self, space: usize, paid: Paid) {
        let space = &self.spaces[&space];
        let mmap = space.mmap_lock().read();
        // Two VMAs may be of one memory.
        let mut memory: Vec<Arc<Anonymous>> = Vec::new();
        space.for_each_vma(&mmap, 0..usize::MAX, |vma| {
            if let Some(anon) = Anonymous::shown(&vma.attributes(&mmap).backing)
                && !memory.iter().any(|known| Arc::ptr_eq(known, anon))
            {
                memory.push(anon.clone());
            }
        });
        let resident: usize = memory.iter().map(|anon| anon.resident_pages()).sum();
        let least = if self.swap.is_some() { 0 } else { paid.least };
        // Where writes run on, some were filled that nobody wrote to.
        let ahead = self.rig.node.stats.filled_ahead.get() as usize;
        let most = paid.most.saturating_add(ahead);
        assert!((least..=most).contains(&resident), "{resident} of {paid:?}");
        drop(memory);
        drop(mmap);
        // Which looks at the slots of all spaces.
        space.validate(&space.mmap_lock().read());
    }
}

fn run(setting: Setting, ops: &[Op]) {
    let mut world = ManuallyDrop::new(SoftWorld::new(setting));
    let played = catch_unwind(AssertUnwindSafe(|| {
        play_anon(&mut [&mut *world], ops);
    }));
    match played {
        Ok(()) => ManuallyDrop::into_inner(world).finish(),
        // Half-done work cannot be dropped.
        Err(panic) => resume_unwind(panic),
    }
}

fn config(count: u32) -> ProptestConfig {
    let kept = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/proptest-regressions/anon_oracle.txt"
    );
    ProptestConfig {
        max_shrink_iters: 2000,
        ..cases(kept, count)
    }
}

fn any_policies() -> impl Strategy<Value = Policies> {
    let locks = prop_oneof![Just("refcount"), Just("rwsem"), Just("biased")];
    let retries = prop_oneof![Just("vma-lock"), Just("mmap-lock"), Just("held")];
    let pins = prop_oneof![Just("yes"), Just("no")];
    let accounting =
        prop_oneof![3 => Just(""), 1 => Just("+miss=baseline"), 1 => Just("+miss=both")];
    (locks, retries, pins, accounting).prop_map(|(lock, retry, pin, accounting)| {
        let text = format!("lock={lock}+retry={retry}+pin={pin}{accounting}");
        text.parse().unwrap()
    })
}

/// Swap, and a budget of a half to an eighth of the mapped pages. The record of where pages
/// are stays in memory: it grows with the list, by ten pages a map and a space.
fn any_setting() -> impl Strategy<Value = Setting> {
    let free = prop_oneof![Just(400), Just(600), Just(900), Just(1200)];
    let queue = prop_oneof![Just(0), Just(2), Just(16)];
    (any_policies(), free, queue).prop_map(|(policies, free, queue)| Setting {
        policies,
        slots: 16_384,
        queue,
        free: Some(free),
        may_fail: false,
    })
}

fn with_first(ops: Vec<Op>) -> Vec<Op> {
    let first = Op::MapZeros {
        space: 0,
        pages: 300..1500,
    };
    std::iter::once(first).chain(ops).collect()
}

proptest! {
    #![proptest_config(config(80))]

    #[test]
    fn every_byte_and_page_is_the_models(
        policies in any_policies(),
        ops in proptest::collection::vec(any_anon_op(), 1..80),
    ) {
        let setting = Setting { policies, ..Setting::default() };
        run(setting, &with_first(ops));
    }

    #[test]
    fn so_it_is_where_everything_is_evicted(
        setting in any_setting(),
        ops in proptest::collection::vec(any_swap_op(false), 1..80),
    ) {
        run(setting, &with_first(ops));
    }

    #[test]
    fn so_it_is_where_swap_fails(
        setting in any_setting(),
        ops in proptest::collection::vec(any_swap_op(true), 1..80),
    ) {
        let setting = Setting { may_fail: true, ..setting };
        run(setting, &with_first(ops));
    }
}

proptest! {
    // A touch for which there is neither memory nor swap waits for a second.
    #![proptest_config(config(3))]

    #[test]
    fn so_it_is_where_swap_is_full(
        setting in any_setting(),
        slots in prop_oneof![Just(1), Just(40), Just(700)],
        ops in proptest::collection::vec(any_swap_op(false), 1..12),
    ) {
        let setting = Setting { may_fail: true, slots, ..setting };
        run(setting, &with_first(ops));
    }
}

/// As many operations as the environment says, in lists of a few hundred.
#[test]
fn a_long_run() {
    let lists = |length| {
        let list = proptest::collection::vec(any_swap_op(false), length);
        (any_setting(), list)
    };
    long_run(config(0), lists, |(setting, ops)| {
        let free = setting.free.map(|free| free.max(900));
        let setting = Setting { free, ..setting };
        run(setting, &with_first(ops));
    });
}
