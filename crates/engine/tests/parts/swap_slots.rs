//! Swap slots against a map of their owners.

use proptest::prelude::*;
use softfault_engine::budget::Budget;
use softfault_engine::swap::{CLUSTER, Slots};
use softfault_oracle::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier};
use std::thread;

/// Slots of a cluster, where the tests want many.
const SMALL: u32 = 8;
/// Words of slots in a page of the table.
const WORDS: u32 = 1024;

#[derive(Debug, Clone)]
enum Op {
    Alloc { most: u32 },
    Get { which: usize },
    Put { which: usize },
    Inherit,
    ChildrenGone,
}

fn any_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (1..=12_u32).prop_map(|most| Op::Alloc { most }),
        1 => Just(Op::Alloc { most: 1 }),
        2 => any::<usize>().prop_map(|which| Op::Get { which }),
        12 => any::<usize>().prop_map(|which| Op::Put { which }),
    ]
}

/// With children now and then.
fn any_op_or_fork() -> impl Strategy<Value = Op> {
    prop_oneof![
        30 => any_op(),
        1 => Just(Op::Inherit),
        1 => Just(Op::ChildrenGone),
    ]
}

/// The expected state.
struct Model {
    range: Range<u32>,
    cluster: u32,
    /// How many pages have a slot; none may have one that was inherited.
    pages: BTreeMap<u32, u32>,
    inherited: BTreeSet<u32>,
}

impl Model {
    fn new(range: Range<u32>, cluster: u32) -> Self {
        Self {
            range,
            cluster,
            pages: BTreeMap::new(),
            inherited: BTreeSet::new(),
        }
    }

    fn is_used(&self, slot: u32) -> bool {
        self.pages.contains_key(&slot) || self.inherited.contains(&slot)
    }

    fn used(&self) -> u32 {
        let only_inherited = |slot: &&u32| !self.pages.contains_key(slot);
        let inherited = self.inherited.iter().filter(only_inherited).count();
        (self.pages.len() + inherited) as u32
    }

    fn number(&self, slot: u32) -> u32 {
        (slot - self.range.start) / self.cluster
    }

    /// True if a cluster of ordinary size is free.
    fn has_free_cluster(&self) -> bool {
        let starts = self.range.clone().step_by(self.cluster as usize);
        let mut clusters = starts.map(|start| start..start + self.cluster);
        clusters
            .any(|mut slots| slots.end <= self.range.end && slots.all(|slot| !self.is_used(slot)))
    }

    /// Enters a run that was given out.
    fn enter(&mut self, run: Range<u32>) {
        for slot in run {
            assert!(self.range.contains(&slot), "slot {slot} is not there");
            assert!(!self.is_used(slot), "slot {slot} was given out twice");
            self.pages.insert(slot, 1);
        }
    }

    fn some(&self, which: usize) -> Option<u32> {
        let count = self.pages.len().max(1);
        self.pages.keys().nth(which % count).copied()
    }

    /// One page less has it; true if it is free now.
    fn leave(&mut self, slot: u32) -> bool {
        let pages = self.pages.get_mut(&slot).unwrap();
        *pages -= 1;
        if *pages > 0 {
            return false;
        }
        self.pages.remove(&slot);
        !self.inherited.contains(&slot)
    }
}

/// Does it to both, and compares.
fn apply(slots: &Slots, model: &mut Model, op: Op) {
    match op {
        Op::Alloc { most } => {
            let has_free_cluster = model.has_free_cluster();
            let Some(run) = slots.alloc(most) else {
                assert_eq!(model.used(), slots.count(), "a slot is lost");
                return;
            };
            assert!(!run.is_empty() && run.len() <= most as usize, "{run:?}");
            assert_eq!(model.number(run.start), model.number(run.end - 1));
            // The short one at the end may be the one that is free.
            let least = most.min(model.cluster / 4);
            let is_long = run.len() >= least as usize || run.end == model.range.end;
            assert!(is_long || !has_free_cluster, "{run:?} of {most}");
            model.enter(run);
        }
        Op::Get { which } => {
            if let Some(slot) = model.some(which) {
                slots.get(slot);
                *model.pages.get_mut(&slot).unwrap() += 1;
            }
        }
        Op::Put { which } => {
            if let Some(slot) = model.some(which) {
                let mut discarded = false;
                let is_free = slots.put(slot, || {
                    assert!(slots.is_used(slot), "slot {slot} is others' already");
                    discarded = true;
                });
                assert_eq!(is_free, model.leave(slot), "slot {slot}");
                assert_eq!(discarded, is_free);
            }
        }
        Op::Inherit => {
            slots.inherit();
            let all: Vec<u32> = model.pages.keys().copied().collect();
            model.inherited.extend(all);
        }
        Op::ChildrenGone => {
            slots.children_gone(|_| ());
            model.inherited.clear();
        }
    }
    assert_eq!(slots.used(), model.used());
}

/// Gives out all free slots, checks their number, and gives everything back.
fn end(slots: &Slots, model: &mut Model) {
    while let Some(run) = slots.alloc(u32::MAX) {
        model.enter(run);
    }
    assert_eq!(model.used(), slots.count(), "a slot is lost");
    assert!(model.range.clone().all(|slot| slots.is_used(slot)));
    apply(slots, model, Op::ChildrenGone);
    while let Some(slot) = model.some(0) {
        assert_eq!(slots.put(slot, || {}), model.leave(slot));
    }
    assert_eq!(slots.used(), 0);
    assert!(model.range.clone().all(|slot| !slots.is_used(slot)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn slots_are_given_once_and_never_lost(
        first in 0..3_000_u32,
        count in 1..200_u32,
        cluster in prop_oneof![Just(1_u32), Just(2), Just(SMALL), Just(64)],
        ops in proptest::collection::vec(any_op_or_fork(), 1..400),
    ) {
        let budget = Budget::new(1_000);
        let range = first..first + count;
        let slots = Slots::with_clusters(range.clone(), cluster, budget.clone()).unwrap();
        let mut model = Model::new(range, cluster);
        for op in ops {
            apply(&slots, &mut model, op);
        }
        end(&slots, &mut model);
        drop(slots);
        prop_assert_eq!(budget.charged(), 0);
    }

    /// Most of the time there is no free slot.
    #[test]
    fn a_full_device_gives_out_freed_slots(
        ops in proptest::collection::vec(any_op_or_fork(), 1..400),
    ) {
        let slots = Slots::with_clusters(0..100, SMALL, Budget::new(1_000)).unwrap();
        let mut model = Model::new(0..100, SMALL);
        while let Some(run) = slots.alloc(SMALL) {
            model.enter(run);
        }
        for op in ops {
            apply(&slots, &mut model, op);
            apply(&slots, &mut model, Op::Alloc { most: 3 });
        }
        end(&slots, &mut model);
    }
}

fn device(clusters: u32) -> Slots {
    Slots::new(0..clusters * CLUSTER, Budget::new(1_000)).unwrap()
}

/// Takes all there is, by runs of `most`.
fn take_all(slots: &Slots, most: u32) -> Vec<Range<u32>> {
    std::iter::from_fn(|| slots.alloc(most)).collect()
}

#[test]
fn batches_are_written_one_behind_the_other() {
    let slots = device(4);
    let runs = take_all(&slots, 256);
    let expected: Vec<_> = (0..8).map(|n| n * 256..(n + 1) * 256).collect();
    assert_eq!(runs, expected);
    // Single pages too.
    (0..4 * CLUSTER).for_each(|slot| assert!(slots.put(slot, || {})));
    let singles = take_all(&slots, 1);
    let neighbours = singles
        .windows(2)
        .filter(|pair| pair[0].end == pair[1].start);
    assert_eq!(
        neighbours.count() as u32,
        4 * (CLUSTER - 1) + jumps(&singles)
    );
}

/// Times that a cluster follows the one before.
fn jumps(singles: &[Range<u32>]) -> u32 {
    let pairs = singles.windows(2);
    let followed = pairs.filter(|pair| pair[0].end == pair[1].start);
    let between = followed.filter(|pair| pair[1].start % CLUSTER == 0);
    between.count() as u32
}

#[test]
fn holes_are_not_filled_while_a_cluster_is_free() {
    let slots = device(8);
    // Holes of one slot in the first four.
    while slots.used() < 4 * CLUSTER {
        slots.alloc(CLUSTER).unwrap();
    }
    for slot in (0..4 * CLUSTER).step_by(2) {
        assert!(slots.put(slot, || {}));
    }
    for free in (0..4).rev() {
        assert_eq!(slots.alloc(256).unwrap().len(), 256);
        assert_eq!(slots.alloc(256).unwrap().len(), 256, "{free} are free");
    }
    // Then, all of them.
    let holes = take_all(&slots, 256);
    assert!(holes.iter().all(|run| run.len() == 1 && run.start % 2 == 0));
    assert_eq!(holes.len() as u32, 2 * CLUSTER);
    assert_eq!(slots.used(), slots.count());
}

#[test]
fn the_longest_run_goes_first() {
    let slots = device(6);
    take_all(&slots, CLUSTER);
    // More is free in the others than in the fourth, but no two in a row.
    for number in [0, 1, 2, 4, 5] {
        for slot in (number * CLUSTER..(number + 1) * CLUSTER).step_by(2) {
            assert!(slots.put(slot, || {}));
        }
    }
    let long = 3 * CLUSTER + 100..3 * CLUSTER + 150;
    long.clone()
        .for_each(|slot| assert!(slots.put(slot, || {})));
    assert_eq!(slots.alloc(256), Some(long));
    assert_eq!(take_all(&slots, 256).len() as u32, 5 * CLUSTER / 2);
}

#[test]
fn a_run_that_is_long_enough_is_the_shortest_such() {
    let slots = device(3);
    take_all(&slots, CLUSTER);
    for (number, length) in [(0, 300), (1, 40), (2, 130)] {
        let start = number * CLUSTER + 7;
        (start..start + length).for_each(|slot| assert!(slots.put(slot, || {})));
    }
    let number = |run: Range<u32>| (run.start / CLUSTER, run.len());
    assert_eq!(slots.alloc(30).map(number), Some((1, 30)));
    assert_eq!(slots.alloc(100).map(number), Some((2, 100)));
    assert_eq!(slots.alloc(256).map(number), Some((0, 256)));
    // No longer one is left.
    let mut rest: Vec<usize> = take_all(&slots, 256).iter().map(Range::len).collect();
    rest.sort();
    assert_eq!(rest, [10, 30, 44]);
}

/// Slots that come and go one by one leave no cluster free as a whole: the table grows no further than it has to.
#[test]
fn the_table_stays_in_its_part_of_the_budget() {
    const LIVE: u32 = 20 * CLUSTER;
    let limit = 8 * 40;
    let budget = Budget::new(limit);
    let slots = Slots::new(0..1000 * CLUSTER, budget.clone()).unwrap();
    let mut live: Vec<u32> = take_all_of(&slots, LIVE);
    let mut random = Random::new(1);
    for _ in 0..20 * LIVE {
        let which = random.below(live.len());
        assert!(slots.put(live[which], || {}));
        live[which] = slots.alloc(1).unwrap().start;
    }
    assert!(budget.charged() <= limit / 8, "{}", budget.charged());
    // More than that is in use.
    live.extend(take_all_of(&slots, 100 * CLUSTER - LIVE));
    assert_eq!(slots.used(), 100 * CLUSTER);
    assert!(budget.charged() > limit / 8);
}

fn take_all_of(slots: &Slots, count: u32) -> Vec<u32> {
    let mut taken = Vec::new();
    while taken.len() < count as usize {
        taken.extend(slots.alloc(count - taken.len() as u32).unwrap());
    }
    taken
}

#[test]
fn the_table_is_charged_by_the_page_and_paid_back() {
    let budget = Budget::new(2);
    let slots = Slots::new(0..4 * WORDS, budget.clone()).unwrap();
    assert_eq!(budget.charged(), 0);
    // A page of words, and one of records.
    let runs = take_all(&slots, CLUSTER);
    assert_eq!(runs, [0..CLUSTER, CLUSTER..WORDS]);
    assert_eq!((budget.charged(), slots.used()), (2, WORDS));
    assert!(slots.alloc(1).is_none() && !slots.prepare());
    assert_eq!((budget.charged(), slots.used()), (2, WORDS));
    // Charged pages can be had again.
    assert!(slots.put(5, || {}) && slots.put(6, || {}));
    assert_eq!(slots.alloc(9), Some(5..7));
    // Paid in advance, and not twice.
    budget.set_limit(3);
    assert!(slots.prepare() && slots.prepare());
    assert_eq!(budget.charged(), 3);
    budget.set_limit(0);
    assert_eq!(slots.alloc(CLUSTER), Some(WORDS..WORDS + CLUSTER));
    assert!(slots.prepare());
    assert_eq!(slots.alloc(CLUSTER), Some(WORDS + CLUSTER..2 * WORDS));
    assert!(slots.alloc(1).is_none());
    assert_eq!((budget.charged(), slots.used()), (3, 2 * WORDS));
    budget.set_limit(100);
    assert_eq!(take_all(&slots, CLUSTER).len(), 4);
    assert!(slots.prepare());
    assert_eq!(budget.charged(), 5);
    drop(slots);
    assert_eq!(budget.charged(), 0);
    // In advance, and for nothing.
    let slots = Slots::new(0..WORDS, budget.clone()).unwrap();
    assert!(slots.prepare());
    assert_eq!((budget.charged(), slots.used()), (2, 0));
    drop(slots);
    assert_eq!(budget.charged(), 0);
}

#[test]
fn a_slot_that_is_discarded_is_nobodys_yet() {
    let slots = Slots::new(7..8, Budget::new(10)).unwrap();
    assert_eq!(slots.alloc(3), Some(7..8));
    slots.get(7);
    assert!(!slots.put(7, || panic!("another has it")));
    assert!(slots.put(7, || {
        assert_eq!(slots.alloc(1), None);
        // Nor a child's.
        slots.inherit();
        assert_eq!(slots.used(), 1);
    }));
    assert_eq!(slots.used(), 0);
    assert_eq!(slots.alloc(1), Some(7..8));
}

#[test]
fn foreign_signals_are_left_alone() {
    let slots = Slots::new(1_000..1_004, Budget::new(10)).unwrap();
    for slot in [0, 999, 1_004, u32::MAX] {
        slots.get(slot);
        assert!(!slots.put(slot, || panic!()));
        assert!(!slots.is_used(slot));
    }
    assert_eq!(slots.alloc(0), None);
    assert_eq!(slots.alloc(9), Some(1_000..1_004));
    let none = Slots::new(5..5, Budget::new(10)).unwrap();
    assert_eq!((none.alloc(1), none.used(), none.count()), (None, 0, 0));
    assert!(none.prepare());
}

#[test]
fn the_largest_device_costs_only_its_used_part() {
    let budget = Budget::new(1_000);
    let slots = Slots::new(0..1 << 30, budget.clone()).unwrap();
    assert_eq!(slots.alloc(CLUSTER), Some(0..CLUSTER));
    assert_eq!((slots.used(), budget.charged()), (CLUSTER, 2));
    assert!(!slots.is_used((1 << 30) - 1));
}

#[test]
fn a_slot_that_is_put_twice_is_a_bug() {
    let slots = device(1);
    slots.alloc(1).unwrap();
    assert!(slots.put(0, || {}));
    let again = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| slots.put(0, || {})));
    assert!(again.is_err());
}

/// A device, and the owner of each slot: 0 if there is none.
struct Owned {
    slots: Slots,
    owner: Vec<AtomicU32>,
}

impl Owned {
    fn new(count: u32, cluster: u32) -> Self {
        Self {
            slots: Slots::with_clusters(0..count, cluster, Budget::new(1_000)).unwrap(),
            owner: (0..count).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    fn take(&self, most: u32, by: u32) -> Option<Range<u32>> {
        let run = self.slots.alloc(most)?;
        for slot in run.clone() {
            let before = self.owner[slot as usize].swap(by, SeqCst);
            assert_eq!(before, 0, "slot {slot} is given to {by} too");
        }
        Some(run)
    }

    fn give(&self, slot: u32, by: u32) -> bool {
        assert_eq!(self.owner[slot as usize].swap(0, SeqCst), by);
        self.slots.put(slot, || {})
    }
}

const THREADS: u32 = 4;
const ROUNDS: usize = 20_000;

#[test]
fn many_threads_take_and_give() {
    for (count, cluster) in [(256, 8), (4 * CLUSTER, CLUSTER), (20, 4)] {
        let owned = Owned::new(count, cluster);
        thread::scope(|scope| {
            for by in 1..=THREADS {
                let owned = &owned;
                scope.spawn(move || {
                    let mut random = Random::new(by.into());
                    let mut mine: Vec<u32> = Vec::new();
                    for _ in 0..ROUNDS {
                        if random.below(2) == 0 {
                            let most = 1 + random.below(cluster as usize);
                            mine.extend(owned.take(most as u32, by).into_iter().flatten());
                        }
                        for _ in 0..random.below(cluster as usize) {
                            if !mine.is_empty() {
                                let slot = mine.swap_remove(random.below(mine.len()));
                                assert!(owned.give(slot, by));
                            }
                        }
                    }
                    mine.into_iter().for_each(|slot| {
                        owned.give(slot, by);
                    });
                });
            }
        });
        assert_eq!(owned.slots.used(), 0);
        let all: usize = take_all(&owned.slots, cluster).iter().map(Range::len).sum();
        assert_eq!(all as u32, count, "a slot is lost");
    }
}

#[test]
fn the_last_of_many_sharers_is_told() {
    const SHARED: u32 = 64;
    let owned = Owned::new(SHARED, 16);
    for _ in 0..200 {
        let all: Vec<u32> = take_all(&owned.slots, 16).into_iter().flatten().collect();
        assert_eq!(all.len() as u32, SHARED);
        for &slot in &all {
            (1..THREADS).for_each(|_| owned.slots.get(slot));
        }
        let told = AtomicUsize::new(0);
        let barrier = Barrier::new(THREADS as usize);
        thread::scope(|scope| {
            for _ in 0..THREADS {
                let (slots, told, barrier) = (&owned.slots, &told, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    for slot in 0..SHARED {
                        let is_last = slots.put(slot, || {});
                        told.fetch_add(is_last.into(), SeqCst);
                    }
                });
            }
        });
        assert_eq!(told.into_inner() as u32, SHARED);
        assert_eq!(owned.slots.used(), 0);
    }
}

#[test]
fn slots_that_children_may_read_are_not_given_out() {
    const MINE: u32 = 100;
    let owned = Arc::new(Owned::new(512, 16));
    let stop = Arc::new(AtomicUsize::new(0));
    let others: Vec<_> = (1..THREADS)
        .map(|by| {
            let (owned, stop) = (Arc::clone(&owned), Arc::clone(&stop));
            thread::spawn(move || {
                let mut random = Random::new(by.into());
                while stop.load(SeqCst) == 0 {
                    let run = owned.take(1 + random.below(16) as u32, by);
                    for slot in run.into_iter().flatten() {
                        owned.give(slot, by);
                    }
                }
            })
        })
        .collect();
    for _ in 0..300 {
        let mine: Vec<u32> = (0..8)
            .filter_map(|_| owned.take(4, MINE))
            .flatten()
            .collect();
        owned.slots.inherit();
        // Put, and still not free: nobody else gets it, or `take` says so.
        for &slot in &mine {
            assert!(!owned.slots.put(slot, || {}));
            assert!(owned.slots.is_used(slot));
        }
        thread::yield_now();
        for &slot in &mine {
            assert_eq!(owned.owner[slot as usize].swap(0, SeqCst), MINE);
        }
        owned.slots.children_gone(|_| ());
    }
    stop.store(1, SeqCst);
    others.into_iter().for_each(|other| other.join().unwrap());
    owned.slots.children_gone(|_| ());
    assert_eq!(owned.slots.used(), 0);
    let all: usize = take_all(&owned.slots, 16).iter().map(Range::len).sum();
    assert_eq!(all, 512, "a slot is lost");
}
