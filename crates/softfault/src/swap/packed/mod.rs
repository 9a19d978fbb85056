//! Slots that are stored compressed, one behind the other.
//!
//! ```text
//!   slot ──places──► (grain, bytes) ──► ┌────┬──┬───────────────┬─┐
//!                                       │ 0  │1 │ 3 (as it is)  │4│  one write
//!                                       └────┴──┴───────────────┴─┘
//!                                       grains of 512 bytes
//! ```
//!
//! The pages of one write are compressed in the calling thread, packed, and written
//! in one go wherever there is room. `lz4_flex` needs no heap for this: its table
//! is made once. A page that does not get smaller by a grain is stored as it is.
//!
//! The file is as long as two times all slots, of which the second half is there
//! for one case only: each live slot has at most 8 grains in a row, so among 16
//! grains a slot there always is a gap for one more, however the others lie.

mod bounce;
mod compressor;
mod plan;
mod space;

pub(super) use bounce::Bounces;
pub(super) use plan::Plan;

use self::compressor::{Compressor, Fit};
use self::space::PackedSpace;
use super::clusters::{CLUSTER, Clusters, parts};
use super::table::SlotWords;
use crate::store::Descriptor;
use core::ops::Range;
use core::sync::atomic::Ordering::{AcqRel, Acquire};
use softfault_engine::PAGE_SIZE;
use softfault_engine::lock::{Mutex, MutexGuard};

/// The unit in which space is given out, in bytes.
pub(super) const GRAIN: usize = 512;
/// How much longer the file is than its slots.
pub(super) const TIMES_LONGER: u64 = 2;

/// Where a slot's bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PackedPlace {
    grain: u64,
    /// Compressed; those of a page: it is not.
    bytes: usize,
}

/// Bits of a word that are the place's bytes.
const BYTES_BITS: u32 = 13;

impl PackedPlace {
    fn from_word(word: u64) -> Option<Self> {
        (word != 0).then_some(Self {
            grain: word >> BYTES_BITS,
            bytes: (word & ((1 << BYTES_BITS) - 1)) as usize,
        })
    }

    fn word(self) -> u64 {
        self.grain << BYTES_BITS | self.bytes as u64
    }

    fn grains(self) -> Range<u64> {
        self.grain..self.grain + grains(self.bytes)
    }
}

/// Grains that so many bytes take.
fn grains(bytes: usize) -> u64 {
    bytes.div_ceil(GRAIN) as u64
}

/// Which slots are where.
pub(super) struct Packed {
    /// A word a slot: its [`PackedPlace`], or 0.
    places: SlotWords,
    space: Mutex<PackedSpace>,
    compressors: [Mutex<Compressor>; 4],
    /// Immutable. Where reads and writes begin and end.
    align: usize,
}

impl Packed {
    /// `None` where the system has no memory.
    pub(super) fn new(slots: u64, align: usize) -> Option<Self> {
        let compressor = || Some(Mutex::new(Compressor::new()?));
        Some(Self {
            places: SlotWords::new(slots as usize)?,
            space: Mutex::new(PackedSpace::new(slots, align)?),
            compressors: [compressor()?, compressor()?, compressor()?, compressor()?],
            align,
        })
    }

    fn compressor(&self, slot: u64) -> MutexGuard<'_, Compressor> {
        let free = self.compressors.iter().find_map(Mutex::try_lock);
        free.unwrap_or_else(|| self.compressors[slot as usize % self.compressors.len()].lock())
    }

    /// Writes pages to slots from `slot` on; answers how many bytes that took.
    /// `settle` is called for the written pages, before any thread may read them.
    ///
    /// # Safety
    /// Each page is readable, and nobody writes to it meanwhile.
    pub(super) unsafe fn write(
        &self,
        file: &Descriptor,
        clusters: &Clusters,
        mut slot: u64,
        pages: &[*const u8],
        settle: &dyn Fn(u64, usize) -> Result<(), i32>,
    ) -> Result<u64, i32> {
        let mut compressor = self.compressor(slot);
        let (mut left, mut bytes) = (pages, 0);
        while !left.is_empty() {
            // SAFETY: the caller's promise.
            left = unsafe { compressor.fill(left)? };
            while let Some((first, all)) = compressor.left() {
                let run = self.space.lock().take(first, all).ok_or(libc::ENOSPC)?;
                let mut written = self.write_run(file, clusters, run, &mut compressor, settle);
                if let Err(full @ (libc::ENOSPC | libc::EDQUOT)) = written {
                    // The disk is full; a gap in our part may have room.
                    let has_space = |cluster| clusters.has_space(cluster * CLUSTER);
                    let run = (self.space.lock()).take_where(first, all, &has_space);
                    let run = run.ok_or(full)?;
                    written = self.write_run(file, clusters, run, &mut compressor, settle);
                }
                let (start, fit) = written?;
                bytes += fit.aligned as u64;
                for place in compressor.places(start, &fit) {
                    // Release pairs with the Acquire in `place`.
                    let before = self.places[slot as usize].swap(place.word(), AcqRel);
                    if let Some(before) = PackedPlace::from_word(before) {
                        self.free(clusters, before.grains());
                    }
                    slot += 1;
                }
                compressor.advance(&fit);
            }
        }
        Ok(bytes)
    }

    /// Writes as many pages as fit into `run`, all of which is taken; gives the
    /// others' grains back, or all if it fails.
    fn write_run(
        &self,
        file: &Descriptor,
        clusters: &Clusters,
        run: Range<u64>,
        compressor: &mut Compressor,
        settle: &dyn Fn(u64, usize) -> Result<(), i32>,
    ) -> Result<(u64, Fit), i32> {
        let fit = compressor.fit(run.end - run.start, self.align);
        let used = run.start..run.start + fit.grains;
        // The bytes after the last page up to the alignment are written, but belong to no page.
        self.space.lock().put(used.end..run.end);
        let mut result = Ok(());
        for part in parts(used.clone(), GRAINS) {
            let count = (part.end - part.start) as u32;
            let held = clusters.hold(part.start * GRAIN as u64..part.end * GRAIN as u64, count);
            result = result.and(held);
        }
        let start = used.start * GRAIN as u64;
        let result = result
            .and_then(|()| {
                let (bytes, mut offset) = (compressor.bytes(&fit), start);
                let mut piece = [libc::iovec {
                    iov_base: bytes.as_mut_ptr().cast(),
                    iov_len: bytes.len(),
                }];
                // SAFETY: the bytes are the compressor's, which is locked.
                unsafe { super::write::write_all(file, &mut offset, &mut piece) }
            })
            .and_then(|()| settle(start, fit.aligned));
        if let Err(errno) = result {
            self.free(clusters, used);
            return Err(errno);
        }
        Ok((run.start, fit))
    }

    /// Nobody will ask for these slots until they are written again.
    pub(super) fn discard(&self, clusters: &Clusters, slots: Range<u64>) {
        for slot in slots {
            // AcqRel: Acquire pairs with the Release of the writer.
            let before = self.places[slot as usize].swap(0, AcqRel);
            if let Some(place) = PackedPlace::from_word(before) {
                self.free(clusters, place.grains());
            }
        }
    }

    /// Gives grains back that are held.
    fn free(&self, clusters: &Clusters, run: Range<u64>) {
        self.space.lock().put(run.clone());
        for part in parts(run, GRAINS) {
            clusters.release(part.start * GRAIN as u64, (part.end - part.start) as u32);
        }
    }

    fn place(&self, slot: u64) -> Option<PackedPlace> {
        // Acquire pairs with the Release in `write`.
        PackedPlace::from_word(self.places[slot as usize].load(Acquire))
    }

    /// How to read as many of `slots`, from the first on, as one read brings.
    /// `None` if the first was never written.
    pub(super) fn plan(&self, slots: Range<u64>) -> Option<Plan> {
        let mut plan = Plan::new(self.align);
        for slot in slots {
            match self.place(slot) {
                Some(place) if plan.push(place) => {}
                _ => break,
            }
        }
        (plan.pages() > 0).then_some(plan)
    }
}

/// Grains of a cluster.
const GRAINS: u64 = CLUSTER / GRAIN as u64;
const _: () = assert!(PAGE_SIZE < 1 << BYTES_BITS);
