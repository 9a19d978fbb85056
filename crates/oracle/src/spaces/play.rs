//! Playing lists of operations, a thread each.

use super::shadow::LANES;
use super::world::World;
use crate::op::Op;
use crate::{Rig, TestStore, TestSwap, together};
use core::ops::Range;
use softfault_engine::PAGE_SIZE;
use softfault_engine::budget::FLOOR;
use softfault_engine::policy::{Policies, RetryPin};

/// When the reads of a store end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reads {
    /// At once.
    #[default]
    AtOnce,
    /// So many one by one, each when the schedule says so; then at once.
    OneByOne(usize),
    /// When [`Op::Release`] says so; those of the setup at once.
    ByOperation,
}

/// Where lists are played.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stage {
    /// Spaces at the start.
    pub spaces: usize,
    /// Pages of each that operations are about.
    pub pages: usize,
    /// Pages of the file.
    pub file_pages: u64,
    /// Pages of it that were never written.
    pub hole: Range<u64>,
    /// Of the engine.
    pub policies: Policies,
    /// Asynchronous reads that the store takes at a time.
    pub queue: usize,
    /// When reads end.
    pub reads: Reads,
    /// Pages of the budget that are left when the threads begin; None: all.
    pub free: Option<u64>,
    /// An access may fail for want of memory.
    pub may_be_short: bool,
    /// Slots of swap; 0: there is none.
    pub slots: usize,
    /// An access may fail since swap does.
    pub may_fail: bool,
}

impl Default for Stage {
    fn default() -> Self {
        Self {
            spaces: 1,
            pages: 16,
            file_pages: 8,
            hole: 0..0,
            policies: Policies::default(),
            queue: 0,
            reads: Reads::AtOnce,
            free: None,
            may_be_short: false,
            slots: 0,
            may_fail: false,
        }
    }
}

/// The least budget, in pages.
const BUDGET: u64 = 2048;

impl Stage {
    /// One space of so many pages, and all else as by default.
    pub fn of_pages(pages: usize) -> Self {
        Self {
            pages,
            ..Self::default()
        }
    }

    /// One of all combinations of the policies that faults go by.
    pub fn with_policies_of(mut self, seed: u64) -> Self {
        let locks = ["refcount", "rwsem", "biased"];
        let retries = ["vma-lock", "mmap-lock", "held"];
        let pins = ["yes", "no"];
        let pick = |names: &[&'static str], unit: u64| names[(seed / unit) as usize % names.len()];
        let queues = ["steal", "phase-fair", "linux"];
        let (lock, retry, pin) = (pick(&locks, 1), pick(&retries, 3), pick(&pins, 9));
        let (mmap, reuse) = (pick(&queues, 18), pick(&["typesafe", "rcu"], 54));
        let verbs = pick(&["shared", "alone"], 108);
        let text =
            format!("lock={lock}+reuse={reuse}+mmap={mmap}+verbs={verbs}+retry={retry}+pin={pin}");
        self.policies = text.parse().expect("names of policies");
        self
    }
}

/// Lets one thread play `setup`, then a thread each of `lists`, and asserts that
/// every touch showed bytes that were there at some moment of it, that at the end every
/// page has its expected bytes, and that nothing is left when all is taken down.
pub fn play_spaces(stage: &Stage, setup: &[Op], lists: &[Vec<Op>]) {
    let swap = (stage.slots > 0).then(|| TestSwap::with_queue(stage.slots, stage.queue));
    let rig = match &swap {
        Some(swap) => Rig::with_swap(BUDGET, stage.policies, swap),
        None => Rig::with_policies(BUDGET, stage.policies),
    };
    let store = TestStore::with_queue(stage.file_pages * PAGE_SIZE as u64, stage.queue);
    store.punch(stage.hole.clone());
    let world = World::new(rig, store, swap, stage);
    let mut first = world.player(None);
    setup.iter().for_each(|op| first.obey(op));

    // Memory that cannot be had belongs to an outside user.
    let budget = world.rig.node.budget.clone();
    let taken = stage
        .free
        .map_or(0, |free| budget.free().saturating_sub(free + FLOOR));
    assert!(budget.try_charge(taken, 0), "so much was free");
    if stage.reads != Reads::AtOnce {
        world.close();
    }

    let play = |(number, list): (usize, &Vec<Op>)| {
        let mut player = world.player(Some(number));
        list.iter().for_each(|op| player.obey(op));
        player.assert_locked();
    };
    let release = |reads| {
        for _ in 0..reads {
            world.release(1);
            sync::thread::yield_now();
        }
        world.open();
    };
    let mut jobs: Vec<Box<dyn FnOnce() + Send + '_>> = Vec::new();
    for list in lists.iter().enumerate() {
        jobs.push(Box::new(move || play(list)));
    }
    if let Reads::OneByOne(reads) = stage.reads {
        jobs.push(Box::new(move || release(reads)));
    }
    together(jobs);
    world.open();
    assert_kept(stage, &world, lists);

    budget.uncharge(taken);
    // From now on there is no excuse: a page that cannot be read is lost.
    world.lift_shortage();
    first.is_sure = true;
    let spaces = world.shadow().spaces();
    for space in 0..spaces {
        for lane in 0..LANES.len() {
            let bytes = lane * PAGE_SIZE.div_ceil(LANES.len())..stage.pages * PAGE_SIZE;
            let space = space as u8;
            first.obey(&Op::ReadBytes { space, bytes });
        }
    }
    drop(first);
    drop(budget);
    world.finish();
}

/// A fault that keeps the folio which it waits for finds it again, unless
/// somebody cut it off or had it forgotten, or the address shows another page.
fn assert_kept(stage: &Stage, world: &World, lists: &[Vec<Op>]) {
    let is_lost = |op: &Op| {
        matches!(
            op,
            Op::Truncate { .. }
                | Op::InvalidateFile { .. }
                | Op::MapFile { .. }
                | Op::RemapPages { .. }
        )
    };
    let may_be = lists.iter().flatten().any(is_lost);
    if stage.policies.retry_pin == RetryPin::Yes && !may_be {
        let lost = world.rig.node.stats.retry_io_miss.get();
        assert_eq!(lost, 0, "folios were lost that a fault waited for");
    }
}
