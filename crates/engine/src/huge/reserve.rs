//! Reservations: the pages that a mapping was promised when it was made, so that no
//! fault of it ever finds the pool empty.
//!
//! A promise belongs to the index: the first fault there takes the page. It lasts as long
//! as a mapping wants it, also after a hole was punched there.

use super::HugeError;
use super::file::{FileSlot, HugeFile};
use super::tables::Tables;
use core::ops::Range;

impl HugeFile {
    /// Reserves those of `indexes` that are neither present nor reserved, or none. The mapping
    /// that wants it is in the list, and `resize` is held.
    pub(super) fn reserve(&self, indexes: Range<u64>) -> Result<(), HugeError> {
        if self.unfilled() == 0 {
            return Ok(());
        }
        let holes = || {
            indexes
                .clone()
                .filter(|&index| self.at(index) == FileSlot::Hole)
        };
        let wanted = holes().count() as u64;
        self.pool.reserve(wanted)?;
        // There are fewer holes by now, if any have been filled, and no new ones.
        let done = holes().filter(|&index| self.change(index, FileSlot::Hole, FileSlot::Reserved));
        self.pool.unreserve(wanted - done.count() as u64);
        Ok(())
    }

    /// Takes the promises of `tables` back that no other mapping wants. It has been taken
    /// from the list.
    pub(super) fn unreserve(&self, tables: &Tables) {
        if !tables.reserves || self.unfilled() == 0 {
            return;
        }
        // Held so that nobody promises for a mapping that goes.
        let mappings = self.i_mmap.mappings.lock();
        for index in tables.indexes.clone() {
            let wants = |other: &Tables| other.reserves && other.indexes.contains(&index);
            if self.at(index) == FileSlot::Reserved
                && !mappings.iter().any(|other| wants(other))
                && self.change(index, FileSlot::Reserved, FileSlot::Hole)
            {
                self.pool.unreserve(1);
            }
        }
    }

    /// Takes the page of an index out of the file, or its promise; nobody shows it any
    /// more, and the caller has its fault mutex. Within the file (`keeps`) it stays
    /// promised to the mappings that want it.
    pub(super) fn remove(&self, index: u64, keeps: bool) {
        let mappings = self.i_mmap.mappings.lock();
        let wants = |other: &Tables| other.reserves && other.indexes.contains(&index);
        let stays = keeps && mappings.iter().any(|other| wants(other));
        let after = match stays {
            true => FileSlot::Reserved,
            false => FileSlot::Hole,
        };
        loop {
            match self.at(index) {
                FileSlot::Page(page) => {
                    let changed = self.change(index, FileSlot::Page(page), after);
                    assert!(changed, "the fault mutex is held");
                    return self.pool.give(page, stays);
                }
                FileSlot::Reserved if !stays => {
                    if self.change(index, FileSlot::Reserved, FileSlot::Hole) {
                        return self.pool.unreserve(1);
                    }
                }
                FileSlot::Reserved | FileSlot::Hole => return,
                FileSlot::Filling => unreachable!("the fault mutex is held"),
            }
        }
    }
}
