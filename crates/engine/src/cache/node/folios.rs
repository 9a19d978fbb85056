//! Folios and their frames: had from the node, and given back.

use super::{MAX_WINDOW, Node};
use crate::budget::Need;
use crate::cache::PageCache;
use crate::cache::folio::{BLOCK_BYTES, BLOCK_PAGES, Folio, NO_FRAME, flag};
use crate::cache::frames::{CHUNK_PAGES, Frames};
use crate::mmu::TABLE_SPAN;
use crate::page::PAGE_SIZE;
use crate::slab::Slab;
use core::ops::Deref;
use sync::atomic::{AtomicUsize, Ordering};

/// All folios of a node.
pub(crate) struct Folios {
    slab: Slab<Folio>,
    /// Slots in use: as many as the budget has pages, at most. Relaxed: a bound, not a
    /// hand-over.
    used: AtomicUsize,
}

/// Why there is no folio.
enum NoFolio {
    /// There are as many as there may be.
    Bound,
    /// The system has no memory for another.
    Slot,
}

impl Folios {
    pub(super) fn new(most: u32) -> Self {
        Self {
            slab: Slab::new(most),
            used: AtomicUsize::new(0),
        }
    }

    /// Those that are not free, in the index or not.
    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    fn take(&self, most: usize) -> Result<&Folio, NoFolio> {
        if self.used.fetch_add(1, Ordering::Relaxed) >= most {
            self.used.fetch_sub(1, Ordering::Relaxed);
            return Err(NoFolio::Bound);
        }
        // Each page of a budget is charged with a folio.
        match self.slab.alloc_paid(most as u32) {
            Some(id) => Ok(self.slab.get(id)),
            None => {
                self.used.fetch_sub(1, Ordering::Relaxed);
                Err(NoFolio::Slot)
            }
        }
    }

    /// So many are free, and count no more.
    fn count_out(&self, count: usize) {
        if count > 0 {
            self.used.fetch_sub(count, Ordering::Relaxed);
        }
    }
}

impl Deref for Folios {
    type Target = Slab<Folio>;

    fn deref(&self) -> &Slab<Folio> {
        &self.slab
    }
}

/// The use of a folio's frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameUse {
    /// A fault waits.
    Demand,
    /// Nobody waits: only spare frames, so many pages of them in all.
    Readahead(usize),
    /// The same, and only in the row of a neighbour that has this frame, or in a new one.
    Row(usize, Option<u32>),
    /// These, which the caller has.
    Given(u32),
    /// No frames.
    Hole,
}

/// Pages that growth for those that may have `most` pages of frames leaves to others.
fn spare_reserve(most: usize) -> u64 {
    most as u64 / 16
}

impl Node {
    /// Makes the first folios before a fault needs one: that may come when the process can have no mapping more. Where
    /// there are folios, a fault that gets no further ones evicts, and takes those. False if there is no memory for them.
    pub fn prepare_folios(&self) -> bool {
        self.folios.prepare()
    }

    /// Folios that are not free, in the index or not.
    pub fn folios_in_use(&self) -> usize {
        self.folios.used()
    }

    /// Pages of frames that folios hold.
    pub fn frames_in_use(&self) -> usize {
        self.frames.counts().used
    }

    /// Pages that frames may take for demand faults.
    pub(crate) fn demand_frames(&self) -> usize {
        self.budget.limit() as usize / 4 * 3
    }

    /// Pages that frames may take for read-ahead.
    pub(crate) fn readahead_frames(&self) -> usize {
        let quarters = self.policies.miss_accounting.frame_quarters();
        self.budget.limit() as usize / 4 * quarters
    }

    /// Pages that frames may take for read-ahead that is all but certain to be used.
    pub(crate) fn sure_frames(&self) -> usize {
        (self.budget.limit() as usize / 4 * 3).max(self.readahead_frames())
    }

    /// Pages of a window, where read-ahead is as Linux has it.
    pub(crate) fn linux_window(&self) -> u32 {
        (self.readahead_frames() as u32 / 4).min(MAX_WINDOW)
    }

    /// A folio of `pages` pages at `addr`: locked, with frames (unless it is a
    /// hole), and not yet in the index. Or the need that there is no room for.
    pub(crate) fn alloc_folio(
        &self,
        cache: &PageCache,
        addr: usize,
        pages: usize,
        frames: FrameUse,
    ) -> Result<&Folio, Need> {
        debug_assert!(pages <= BLOCK_PAGES);
        let folio = match self.folios.take(self.budget.limit() as usize) {
            Ok(folio) => folio,
            Err(NoFolio::Bound) => return Err(Need::Folio),
            // The system has no memory for more slots: evict, and use those.
            Err(NoFolio::Slot) => {
                let more = self.budget.free() as usize + BLOCK_PAGES;
                return Err(Need::Pages(more));
            }
        };
        folio.init(cache, addr, pages);
        let frame = match frames {
            FrameUse::Hole => return Ok(folio),
            FrameUse::Given(frame) => Some(frame),
            FrameUse::Demand => self.frames.alloc(pages, self.demand_frames(), 0),
            FrameUse::Readahead(most) => self.spare_frames(pages, most, |frames, reserve| {
                frames.alloc(pages, most, reserve)
            }),
            FrameUse::Row(most, beside) => self.spare_frames(pages, most, |frames, reserve| {
                let block = addr % TABLE_SPAN / BLOCK_BYTES;
                frames.alloc_in_row(block, beside, most, reserve)
            }),
        };
        match frame {
            Some(frame) => {
                folio.frame.store(frame, Ordering::Relaxed);
                folio.frame_pages.store(pages as u8, Ordering::Relaxed);
                Ok(folio)
            }
            None => {
                self.abandon(folio);
                Err(Need::Frame)
            }
        }
    }

    /// Frames of those that may have `most` pages, and leave others a reserve.
    fn spare_frames(
        &self,
        pages: usize,
        most: usize,
        alloc: impl FnOnce(&Frames, u64) -> Option<u32>,
    ) -> Option<u32> {
        // Demand faults keep an eighth of the pool to themselves.
        let room = self.frames.counts().used + pages <= most / 8 * 7;
        room.then(|| alloc(&self.frames, spare_reserve(most)))
            .flatten()
    }

    /// Frames beside each other for so many pages of read-ahead, of those that the pool has: it does not grow for them.
    pub(crate) fn frames_in_a_run(&self, pages: usize, most: usize) -> Option<u32> {
        self.spare_frames(pages, most, |frames, _| frames.alloc_present(pages))
    }

    /// Pages of the budget that have to be free for the pool to grow by a chunk, for those that may have `most` pages.
    pub(crate) fn growth_of_spare(&self, most: usize) -> usize {
        CHUNK_PAGES + 1 + spare_reserve(most) as usize
    }

    /// Gives a folio back that was never in the index.
    pub(crate) fn abandon(&self, folio: &Folio) {
        self.free_frames(folio);
        folio.change(flag::DEAD, 0);
        folio.unlock();
        self.put(folio);
    }

    /// Gives a folio's frames back to the pool; the caller holds its lock.
    pub(crate) fn free_frames(&self, folio: &Folio) {
        let frame = folio.frame.swap(NO_FRAME, Ordering::Relaxed);
        if frame != NO_FRAME {
            let pages = folio.frame_pages.load(Ordering::Relaxed) as usize;
            self.frames.free(frame, pages);
            self.budget.notify_release();
        }
    }

    /// The folio has no frames any more, and another gives them back; the caller holds its lock.
    pub(crate) fn leave_frames(&self, folio: &Folio) {
        folio.frame.store(NO_FRAME, Ordering::Relaxed);
    }

    /// The bytes of a folio that is in frames; the caller holds its lock.
    pub(crate) fn frame_address(&self, folio: &Folio) -> *mut u8 {
        self.frames.address(folio.frame.load(Ordering::Relaxed))
    }

    /// All of a folio's bytes; as above.
    pub(crate) fn bytes_of(&self, folio: &Folio) -> *const [u8] {
        let start = self.frame_address(folio).cast_const();
        core::ptr::slice_from_raw_parts(start, folio.pages() * PAGE_SIZE)
    }

    /// Drops a reference; the last one frees a folio that left the index.
    pub(crate) fn put(&self, folio: &Folio) {
        let freed = self.put_uncounted(folio);
        self.count_put(usize::from(freed));
    }

    /// The same for a caller that gives many up, and calls [`count_put`](Self::count_put) for all that were the last reference. True
    /// for those. Until then there are fewer folios to be had than are free.
    pub(crate) fn put_uncounted(&self, folio: &Folio) -> bool {
        // AcqRel: all that others did with the folio comes before its reuse.
        let refs = folio.refs.fetch_sub(1, Ordering::AcqRel);
        assert!(refs > 0, "folio reference count");
        if refs == 1 {
            debug_assert!(folio.is(flag::DEAD));
            self.folios.slab.free(folio.id());
        }
        refs == 1
    }

    /// Counts folios whose last reference was put.
    pub(crate) fn count_put(&self, count: usize) {
        self.folios.count_out(count);
    }
}
