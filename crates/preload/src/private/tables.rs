//! Memory for the tables of private memory. It is the budget's, and is not evicted for as long as the mapping is there.

use crate::decide::PAGE;
use crate::ranges::Ranges;
use crate::tree;
use core::ops::Range;

/// Pages of memory whose places a page of tables says.
const PLACES: usize = 511;
/// Pages of memory in swap for a page of swap's tables, its records of clusters included.
const SLOTS: usize = 1013;

/// Pages of tables that the taken parts of a room come to, at most. One that is given back keeps its tables.
pub fn of_parts(room: &Range<usize>, parts: &Ranges) -> u64 {
    let table = |addr: usize| (addr - room.start) / (PLACES * PAGE);
    let (mut tables, mut next) = (0, 0);
    for part in parts.iter().filter(|part| !part.is_empty()) {
        let first = table(part.start).max(next);
        next = table(part.end - 1) + 1;
        tables += next.saturating_sub(first);
    }
    (tables + parts.len().div_ceil(PAGE * SLOTS)) as u64
}

/// Pages of tables that addresses cost, touched or not.
pub fn of_room(room: &Range<usize>) -> u64 {
    (room.len() >> 30) as u64 + 2
}

/// True if so many pages of tables leave half of `memory` for the memory itself: where tables take all of it, no fault can be
/// served. In a tree of processes it is as much as this process could have.
pub fn fit(pages: u64, memory: u64) -> bool {
    let is_in_half = |memory: u64| pages <= memory / PAGE as u64 / 2;
    is_in_half(memory) || tree::could_have().is_some_and(is_in_half)
}
