//! Read-ahead over a node: its plans find room, and pages that find none are planned again.

use crate::files::pages;
use crate::readahead_model::Rng;
use softfault_engine::PAGE_SIZE;
use softfault_oracle::{Rig, TestStore};
use std::ops::Range;

/// All pages of a range, in groups that are shuffled, by several readers in turn.
fn shuffled(pages: Range<u64>, group: usize, readers: usize) -> Vec<u64> {
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
