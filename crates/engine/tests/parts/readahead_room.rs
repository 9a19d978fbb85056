//! Read-ahead over a node: its plans find room, and pages that find none are planned again.

use crate::files::{AlwaysInterrupted, pages, random};
use crate::readahead_model::Rng;
use softfault_engine::PAGE_SIZE;
use softfault_engine::budget::Budget;
use softfault_engine::fault::{self, FaultFlags, Outcome, StartedFault};
use softfault_oracle::{Rig, TestStore};
use std::ops::Range;

/// All pages of a range, in groups that are shuffled, by several readers in turn.
pub fn shuffled(pages: Range<u64>, group: usize, readers: usize) -> Vec<u64> {
    let mut rng = Rng(1);
    let mut order: Vec<u64> = pages.collect();
    for group in order.chunks_mut(group) {
        for at in (1..group.len()).rev() {
            group.swap(at, rng.below(at as u64 + 1) as usize);
        }
    }
    let part = order.len() / readers;
    let turn = |at: usize| order.chunks(part).map(move |part| part[at]);
    (0..part).flat_map(turn).collect()
}

/// The cost of reading a file in an order.
struct Cost {
    /// Touches that waited for a read of their own.
    misses: u64,
    reads: usize,
}

/// The file is read in this order through a queue of so many reads.
fn cost(budget: u64, queue: usize, order: &[u64]) -> Cost {
    let rig = Rig::new(budget);
    let file = order.iter().max().expect("an order") + 1;
    let store = TestStore::with_queue(pages(file as usize), queue);
    let cache = rig.map(&store);
    let start = cache.addresses().start;
    for &page in order {
        let found = rig.touch(start + page as usize * PAGE_SIZE);
        assert_eq!(found, Ok(store.byte(pages(page as usize))));
    }
    let cost = Cost {
        misses: rig.node.stats.major_faults.get(),
        reads: store.reads().len(),
    };
    drop(cache);
    rig.finish();
    cost
}

fn misses(budget: u64, queue: usize, order: &[u64]) -> u64 {
    cost(budget, queue, order).misses
}

/// Four readers of groups of 4,096 in no order: half of each first group is read page by page, each in a folio of its own.
#[test]
fn neighbours_that_are_read_page_by_page_are_one_read() {
    let order = shuffled(0..32768, 4096, 4);
    let cost = cost(1 << 16, 128, &order);
    let ahead = cost.reads - cost.misses as usize;
    assert!(
        ahead <= 5000,
        "{ahead} reads ahead, {} misses, of {} touches",
        cost.misses,
        order.len()
    );
}

/// A file that was read at random is read in order afterwards.
#[test]
fn an_order_after_misses_at_random_is_seen() {
    let mut rng = Rng(1);
    let random: Vec<u64> = (0..500).map(|_| rng.below(1 << 18)).collect();
    let before = misses(1 << 16, 128, &random);
    let behind = (1 << 18)..(1 << 18) + 4096;
    let order: Vec<u64> = random.into_iter().chain(behind).collect();
    let more = misses(1 << 16, 128, &order) - before;
    assert!(more < 100, "{more} misses of 4,096 pages in order");
}

/// Sixteen readers of groups that are as large as memory together: pages all but certain to be used are read into memory
/// that is full of mapped pages, and the pool grows for it, which leaves others more of the budget than a guess does.
#[test]
fn sure_reads_find_frames_in_full_memory() {
    const MEMORY: u64 = 1 << 16;
    let order = shuffled(0..4 * MEMORY, 4096, 16);
    let misses = misses(MEMORY, 128, &order);
    assert!(misses <= 65_000, "{misses} of {} touches", order.len());
}

/// A store that takes few reads at a time refuses most of each plan.
#[test]
fn refused_pages_are_planned_again() {
    let order = shuffled(0..16384, 64, 1);
    let few = misses(4096, 4, &order);
    assert!(few <= 700, "{few} of {} touches", order.len());
    let order = shuffled(0..16384, 64, 4);
    let fewer = misses(4096, 2, &order);
    assert!(fewer <= 3500, "{fewer} of {} touches", order.len());
}

/// A touch of this page: the pages that it read ahead, if it was a miss.
fn read_ahead(rig: &Rig, store: &TestStore, page: usize, addr: usize) -> Vec<u64> {
    let before = store.reads().len();
    assert_eq!(rig.touch(addr), Ok(store.byte(pages(page))));
    let reads = store.reads().split_off(before);
    let page = page as u64;
    if !reads.iter().any(|read| read.contains(&page)) {
        return Vec::new();
    }
    let ahead = reads.into_iter().flatten();
    ahead.filter(|&read| read != page).collect()
}

/// Frames that a pool begins with.
const CHUNK_PAGES: usize = 512;

/// More pages than a stream reads ahead that begins by chance.
const MUCH: usize = 16;

/// Reads a file in an order up to the first touch that reads much ahead; returns its number, and the pages. If that touch is `refused`, it
/// finds no frame, and comes back when there are some.
fn first_ahead(order: &[u64], refused: Option<usize>) -> (usize, Vec<u64>) {
    let parent = Budget::new(1 << 20);
    let rig = Rig::within(1 << 14, &parent);
    let store = TestStore::with_queue(pages(16384), 128);
    let cache = rig.map(&store);
    let start = cache.addresses().start;
    let others = TestStore::new(pages(2048));
    let (others_cache, others_start) = random(&rig, &others);
    let mut found = None;
    for (number, &page) in order.iter().enumerate() {
        let addr = start + page as usize * PAGE_SIZE;
        if refused == Some(number) {
            // Reads of others in all frames, and no memory for more.
            let taken = parent.free() - 200;
            assert!(parent.try_charge(taken, 0));
            let mut reads = Vec::new();
            for page in 0..CHUNK_PAGES - rig.node.frames_in_use() {
                let addr = others_start + page * PAGE_SIZE;
                match fault::begin(&rig.space, addr, FaultFlags::default()) {
                    StartedFault::Read(read) => reads.push(read),
                    StartedFault::Over(outcome) => panic!("{outcome:?}"),
                    StartedFault::Waits(_) => panic!("there are frames"),
                }
            }
            let outcome =
                fault::handle(&rig.space, addr, FaultFlags::default(), &AlwaysInterrupted);
            assert_eq!(outcome, Outcome::Interrupted);
            drop(reads);
            parent.uncharge(taken);
        }
        let ahead = read_ahead(&rig, &store, page as usize, addr);
        if ahead.len() >= MUCH {
            found = Some((number, ahead));
            break;
        }
    }
    drop((cache, others_cache));
    rig.finish();
    found.expect("a miss that reads much ahead")
}

/// A miss for which there is no frame comes back with the plan that it had: what was planned the first time is not taken for read.
#[test]
fn the_plan_of_a_miss_without_a_frame_is_made_again() {
    for group in [64, 512] {
        let order = shuffled(0..4096, group, 1);
        let (number, ahead) = first_ahead(&order, None);
        let (again, found) = first_ahead(&order, Some(number));
        // Pages that were read ahead before were evicted, and may be read again.
        let all = ahead.iter().all(|page| found.contains(page));
        assert!(
            all && again == number,
            "groups of {group}: {ahead:?} at {number}, {found:?} at {again}"
        );
    }
}
