//! A mapping that keeps page tables.
//!
//! Linux frees the page table of a span of huge pages when the last mapping that has it goes: a
//! program that maps, touches and unmaps shared buffers would fault once for each page
//! each time, and not once for each GiB. So the mapping of the first map that goes stays behind, with its tables, and
//! nobody touches anything in it: it begins to share the tables of later maps that go, while they are there. No page is
//! asked for and none is kept: pages that are punched or cut off leave it as they leave any
//! other mapping.
//!
//! It has to be alike in all flags, `MAP_NORESERVE` among them, or the kernel shares nothing. A new mapping with these flags
//! would do what a map does: reserve the pages again that a punch gave back.
//!
//! A mapping that was inherited by fork is not registered with userfaultfd any more, and so unlike the maps of the child: it does not
//! become the anchor there. An anchor that was inherited stays, and keeps no tables for the child.

use super::place::{SPAN, SharedMapping, WantedMapping};
use crate::generation::ProcessGeneration;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};
use libc::c_void;

/// The anchor of a memory, once it has one.
pub(super) struct Anchor(AtomicPtr<Anchored>);

struct Anchored {
    place: SharedMapping,
    offset: u64,
    protection: libc::c_int,
    flags: libc::c_int,
    generation: ProcessGeneration,
}

impl Anchor {
    /// Of a memory that nobody has mapped.
    pub(super) const fn new() -> Self {
        Self(AtomicPtr::new(null_mut()))
    }

    /// Keeps the tables of a map that goes, whose mapping is `place`. Where that cannot be, they are
    /// made again: nothing else depends on it. No lock is taken.
    pub(super) fn keep(&self, place: SharedMapping, wanted: &WantedMapping) {
        if wanted.bytes < SPAN {
            return;
        }
        // A mapping that is not left behind goes at the end of this, when its tables are shared.
        let (anchored, Some(_going)) = self.get_or_leave(place, wanted) else {
            return;
        };
        let alike = (anchored.protection, anchored.flags) == (wanted.protection, wanted.flags)
            && !anchored.generation.is_parents();
        let covers = anchored.offset <= wanted.offset
            && wanted.offset + wanted.bytes as u64
                <= anchored.offset + anchored.place.range().len() as u64;
        if !alike || !covers {
            return;
        }
        let distance = (wanted.offset - anchored.offset) as usize;
        let first = wanted.offset.next_multiple_of(SPAN as u64) - wanted.offset;
        let spans = (first as usize..).step_by(SPAN);
        for at in spans.take_while(|at| at + SPAN <= wanted.bytes) {
            let anchor = anchored.place.range().start + distance + at;
            // A page that is missing is not asked for.
            if has_page(anchor) {
                // SAFETY: maps a page in a mapping of ours, by the table that the map has.
                unsafe {
                    sync::kernel_calls::madvise(
                        anchor as *mut c_void,
                        wanted.page,
                        libc::MADV_POPULATE_READ,
                    )
                };
            }
        }
    }

    /// The anchor; and the mapping, if it has not become the anchor itself.
    fn get_or_leave(
        &self,
        place: SharedMapping,
        wanted: &WantedMapping,
    ) -> (&Anchored, Option<SharedMapping>) {
        // Acquire pairs with the Release below.
        let known = self.0.load(Ordering::Acquire);
        if !known.is_null() {
            // SAFETY: made below, and kept until this is dropped.
            return (unsafe { &*known }, Some(place));
        }
        let fresh = Box::into_raw(Box::new(Anchored {
            place,
            offset: wanted.offset,
            protection: wanted.protection,
            flags: wanted.flags,
            generation: ProcessGeneration::here(),
        }));
        let (set, failed) = (Ordering::AcqRel, Ordering::Acquire);
        match self.0.compare_exchange(null_mut(), fresh, set, failed) {
            // SAFETY: as above.
            Ok(_) => (unsafe { &*fresh }, None),
            Err(other) => {
                // SAFETY: nobody else has seen it.
                let fresh = unsafe { Box::from_raw(fresh) };
                // SAFETY: as above.
                (unsafe { &*other }, Some(fresh.place))
            }
        }
    }
}

/// True if the memory has the page that is shown there, mapped or not.
fn has_page(addr: usize) -> bool {
    /// The page size of mincore(2).
    const BASE: usize = 4096;
    let mut found = 0u8;
    // SAFETY: of a mapping of ours; fills the byte.
    let asked = unsafe { sync::kernel_calls::mincore(addr as *mut c_void, BASE, &raw mut found) };
    asked == 0 && found & 1 != 0
}

impl Drop for Anchor {
    fn drop(&mut self) {
        let known = *self.0.get_mut();
        if !known.is_null() {
            // SAFETY: nobody has the memory any more.
            drop(unsafe { Box::from_raw(known) });
        }
    }
}
