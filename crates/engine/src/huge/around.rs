//! Mapping a file's pages next to one that was missing: Linux's `do_fault_around`,
//! which it has for pages of ordinary files.
//!
//! Otherwise a thread at a leaf that its last mapping has dropped would fault once for each
//! of its 512 pages. The threads behind it would catch up, and then wait at
//! the same fault mutexes all the way to the end of the file.
//!
//! A neighbour is entered with its fault mutex held, as by a fault of its own: so it is
//! not being taken out of the file. The mutex is tried, because leaf and other mutexes
//! are taken in the other order everywhere else; a neighbour whose mutex is held is
//! left to its holder.

use super::file::{FileSlot, HugeFile};
use super::tables::Leaf;
use core::ops::Range;

/// Pages of a block, all in one span: as many as Linux's `fault_around_bytes` has.
const BLOCK: u64 = 16;

/// Enters the pages of `index`'s block that the file has, and the VMA shows.
pub(super) fn map(file: &HugeFile, leaf: &Leaf, index: u64, shown: &Range<u64>) {
    let pool = &file.pool;
    let block = BLOCK.min(pool.shape.leaf_pages as u64);
    let first = index - index % block;
    let block = first.max(shown.start)..(first + block).min(shown.end).min(file.capacity());
    let mapped = leaf.map_more(pool, block, |index| {
        let FileSlot::Page(_) = file.at(index) else {
            return None;
        };
        let mutex = pool.mutexes.of(file.id, index).lock.try_lock()?;
        match file.at(index) {
            FileSlot::Page(page) => Some((mutex, page)),
            _ => None,
        }
    });
    pool.stats.around.add(mapped);
}
