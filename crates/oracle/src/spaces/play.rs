//! Playing lists of operations, a thread each.

use super::shadow::LANES;
use super::world::World;
use crate::op::Op;
use crate::{Rig, TestStore, TestSwap, together};
use core::ops::Range;
use softfault_engine::PAGE_SIZE;
use softfault_engine::budget::FLOOR;
use softfault_engine::policy::{Policies, RetryPin};
use std::sync::atomic::Ordering;

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
    /// Pages of the budget that are left to private memory when the threads begin, and the floor besides, which pages of
    /// files may have; None: all.
    pub free: Option<u64>,
    /// Pages that are left to files, and so none to private memory as a rule; in place of `free`.
    pub free_to_files: Option<u64>,
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
            free_to_files: None,
            may_be_short: false,
            slots: 0,
            may_fail: false,
        }
    }
}

/// What came of lists.
#[derive(Debug, Clone, Default)]
pub struct Played {
    /// How often each operation of each list was obeyed, those of the setup first: others were left out, since they are not
    /// for what was there.
    pub obeyed: Vec<Vec<u64>>,
    /// Reads of the file that were begun, and not waited for.
    pub submitted: u64,
    /// Times that a thread has waited for memory.
    pub memory_waits: u64,
    /// Pages that were evicted while the threads ran.
    pub evicted: u64,
    /// Pages that went to swap meanwhile.
    pub pages_out: u64,
    /// Accesses that found no memory.
    pub short: u64,
    /// Budgets that were made so low that pages had to go.
    pub lowered: u64,
}

impl Played {
    /// That of other schedules too.
    pub fn add(&mut self, other: &Self) {
        if self.obeyed.is_empty() {
            self.obeyed = other
                .obeyed
                .iter()
                .map(|list| vec![0; list.len()])
                .collect();
        }
        for (all, list) in self.obeyed.iter_mut().zip(&other.obeyed) {
            all.iter_mut()
                .zip(list)
                .for_each(|(all, times)| *all += times);
        }
        self.submitted += other.submitted;
        self.memory_waits += other.memory_waits;
        self.evicted += other.evicted;
        self.pages_out += other.pages_out;
        self.short += other.short;
        self.lowered += other.lowered;
    }

    /// The counts of a world so far.
    fn of(world: &World) -> Self {
        let node = &world.rig.node;
        let swap = node.swap.as_ref();
        Self {
            obeyed: Vec::new(),
            submitted: world.store.submitted(),
            memory_waits: node.stats.memory_waits.get(),
            evicted: node.stats.evicted.get(),
            pages_out: swap.map_or(0, |swap| swap.stats.pages_out.get()),
            // Relaxed: the threads have not begun, or are over.
            short: world.short.load(Ordering::Relaxed),
            lowered: world.lowered.load(Ordering::Relaxed),
        }
    }

    /// What has come since `before`.
    fn since(self, before: &Self, obeyed: Vec<Vec<u64>>) -> Self {
        Self {
            obeyed,
            submitted: self.submitted - before.submitted,
            memory_waits: self.memory_waits - before.memory_waits,
            evicted: self.evicted - before.evicted,
            pages_out: self.pages_out - before.pages_out,
            short: self.short - before.short,
            lowered: self.lowered - before.lowered,
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
pub fn play_spaces(stage: &Stage, setup: &[Op], lists: &[Vec<Op>]) -> Played {
    let swap = (stage.slots > 0).then(|| TestSwap::with_queue(stage.slots, stage.queue));
    let rig = match &swap {
        Some(swap) => Rig::with_swap(BUDGET, stage.policies, swap),
        None => Rig::with_policies(BUDGET, stage.policies),
    };
    let store = TestStore::with_queue(stage.file_pages * PAGE_SIZE as u64, stage.queue);
    store.punch(stage.hole.clone());
    let world = World::new(rig, store, swap, stage);
    let mut first = world.player(None);
    let mut obeyed = vec![setup.iter().map(|op| u64::from(first.obey(op))).collect()];

    // Memory that cannot be had belongs to an outside user.
    let budget = world.rig.node.budget.clone();
    let left = stage.free_to_files.or(stage.free.map(|free| free + FLOOR));
    let taken = left.map_or(0, |left| budget.free().saturating_sub(left));
    assert!(budget.try_charge(taken, 0), "so much was free");
    if stage.reads != Reads::AtOnce {
        world.close();
    }

    let before = Played::of(&world);
    let play = |number, list: &[Op], obeyed: &mut Vec<u64>| {
        let mut player = world.player(Some(number));
        obeyed.extend(list.iter().map(|op| u64::from(player.obey(op))));
        player.assert_locked();
    };
    let release = |reads| {
        for _ in 0..reads {
            world.release(1);
            sync::thread::yield_now();
        }
        world.open();
    };
    obeyed.resize(1 + lists.len(), Vec::new());
    let mut jobs: Vec<Box<dyn FnOnce() + Send + '_>> = Vec::new();
    for ((number, list), obeyed) in lists.iter().enumerate().zip(&mut obeyed[1..]) {
        jobs.push(Box::new(move || play(number, list, obeyed)));
    }
    if let Reads::OneByOne(reads) = stage.reads {
        jobs.push(Box::new(move || release(reads)));
    }
    together(jobs);
    world.open();
    assert_kept(stage, &world, lists);
    let played = Played::of(&world).since(&before, obeyed);

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
    played
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
                | Op::MapCopy { .. }
                | Op::RemapPages { .. }
        )
    };
    let may_be = lists.iter().flatten().any(is_lost);
    if stage.policies.retry_pin == RetryPin::Yes && !may_be {
        let lost = world.rig.node.stats.retry_io_miss.get();
        assert_eq!(lost, 0, "folios were lost that a fault waited for");
    }
}
