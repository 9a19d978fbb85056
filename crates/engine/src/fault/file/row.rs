//! Mapping a row: memory that was read ahead goes to the window as it is, a page table's span at a time, and nothing is copied.
//!
//! ```text
//!   read ahead into a chunk of frames, each block in its place     cache/row.rs, cache/frames.rs
//!     ──► all of it read, and a run that has proven itself: 32 folios locked, the span paid for, the chunk moved
//!     ──► evicted as a whole, or split first                       reclaim/whole.rs
//! ```
//!
//! The memory is not used for other pages afterwards: the kernel may have references to it that no call reports (`vmsplice`,
//! `MSG_ZEROCOPY`), and these must go on to show the file's bytes.

use super::around::follows_a_run;
use super::map::{refaulted, release};
use super::{Fault, FaultFlags, Wait};
use crate::budget::Need;
use crate::cache::folio::{BLOCK_BYTES, BLOCK_PAGES, Folio, NO_FOLIO, flag};
use crate::cache::frames::CHUNK_PAGES;
use crate::cache::reads::{ahead, read};
use crate::cache::row::{ROW, first_frame, span};
use crate::cache::window::{CountResult, TABLE_PAGES};
use crate::cache::{FolioRef, Node, PageCache};
use crate::mmu::Moved;
use crate::page::Advice;
use crate::readahead::Touch;
use core::ops::Range;
use sync::Arc;

/// Pages that are left to others when a row is paid for.
const RESERVE: u64 = BLOCK_PAGES as u64;

/// Maps the row that an uptodate folio is in. `None` where it is in none that can be moved: it is copied. Not inlined: the stack
/// of a fault that maps no row has no room for it.
#[inline(never)]
pub(super) fn map(
    cache: &Arc<PageCache>,
    folio: &Folio,
    (addr, advice): (usize, Advice),
    flags: FaultFlags,
) -> Option<Fault> {
    if !cache.window.takes_moves() || flags.write {
        return None;
    }
    let node = &cache.node;
    let first = first_frame(folio).filter(|&frame| node.frames.is_full_row(frame))?;
    let span = span(addr);
    let state = folio.state();
    let proven =
        state & flag::READAHEAD == 0 || state & flag::SURE != 0 || follows_a_run(cache, span.start);
    if !proven {
        return None;
    }
    if let Some(unread) = unread(cache, &span) {
        // Once: a fault that comes back without it copies.
        return (!flags.tried).then(|| Fault::Retry(Wait::folio(cache, unread)));
    }
    let need = CHUNK_PAGES + (TABLE_PAGES + RESERVE) as usize;
    if node.budget.free() < need as u64 {
        node.make_room_with_folios(Need::Pages(need));
    }
    let row = Locked::new(cache, span.clone(), first)?;
    let used = row.used();
    match row.install() {
        Moved::All => {}
        Moved::Lost => {
            node.stats.thp_lost.add(1);
            return Some(Fault::Again);
        }
        Moved::NotNow | Moved::Never => {
            node.stats.thp_move_failed.add(1);
            return None;
        }
    }
    node.stats.thp_moved.add(1);
    if !flags.tried {
        node.stats.minor_faults.add(1);
    }
    if used > 0 {
        node.stats.readahead_used.add(used);
        ahead::touched(cache, addr, span, Touch::FirstUse, advice);
    }
    Some(Fault::Mapped)
}

/// The last folio of a span that is on its way.
fn unread<'a>(cache: &'a Arc<PageCache>, span: &Range<usize>) -> Option<FolioRef<'a>> {
    let blocks = span.clone().step_by(BLOCK_BYTES).rev();
    let mut folios = blocks.filter_map(|block| cache.find(block));
    folios
        .find(|folio| folio.state() & (flag::LOCKED | flag::UPTODATE | flag::ERROR) == flag::LOCKED)
}

/// All folios of a row, locked.
struct Locked<'a> {
    cache: &'a Arc<PageCache>,
    span: Range<usize>,
    /// The frames' first.
    frame: u32,
    /// With a reference each; `NO_FOLIO` from the first that is none of the row.
    folios: [u32; ROW],
}

impl<'a> Locked<'a> {
    /// Locks them all, or none.
    fn new(cache: &'a Arc<PageCache>, span: Range<usize>, frame: u32) -> Option<Self> {
        let blocks = span.clone().step_by(BLOCK_BYTES);
        let mut row = Self {
            cache,
            span,
            frame,
            folios: [NO_FOLIO; ROW],
        };
        for (block, place) in blocks.zip(0..) {
            let folio = cache.find(block)?;
            if !folio.try_lock() {
                return None;
            }
            const BITS: u32 = flag::UPTODATE | flag::MAPPED | flag::DEAD | flag::ERROR | flag::HOLE;
            let is_ready = folio.state() & BITS == flag::UPTODATE;
            let is_in_row = first_frame(&folio) == Some(frame);
            row.folios[place] = folio.leak().id();
            if !is_ready || !is_in_row {
                return None;
            }
        }
        Some(row)
    }

    fn node(&self) -> &'a Node {
        &self.cache.node
    }

    /// Pages that were read ahead, and not touched.
    fn used(&self) -> u64 {
        let folios = self.folios.iter().map(|&id| self.node().folios.get(id));
        let ahead = folios.filter(|folio| folio.is(flag::READAHEAD));
        (ahead.count() * BLOCK_PAGES) as u64
    }

    /// Moves the chunk, and maps the folios. Where that was not to be all is as it was, or the folios are forgotten.
    fn install(mut self) -> Moved {
        let (node, window, start) = (self.node(), &self.cache.window, self.span.start);
        let budget = &node.budget;
        let pages = CHUNK_PAGES as u64;
        if !budget.try_charge(pages, RESERVE) {
            return Moved::NotNow;
        }
        if window.enter_whole(start, budget, RESERVE) != Some(CountResult::Counted) {
            budget.uncharge(pages);
            return Moved::NotNow;
        }
        let moved = self.cache.move_in(start, self.frame);
        if moved != Moved::All {
            if moved == Moved::Never {
                window.end_moves();
            }
            self.cache.leave(start, CHUNK_PAGES);
            budget.uncharge(pages);
            if moved == Moved::Lost {
                self.forget();
            }
            return moved;
        }
        for &id in &self.folios {
            let folio = node.folios.get(id);
            node.leave_frames(folio);
            let came_back = refaulted(self.cache, folio.range().start);
            folio.change(flag::MAPPED | came_back, flag::READAHEAD);
        }
        if !node.frames.give_away(self.frame) {
            let blocks = (self.frame..).step_by(BLOCK_PAGES).take(ROW);
            blocks.for_each(|frame| node.frames.free(frame, BLOCK_PAGES));
        }
        budget.notify_release();
        Moved::All
    }

    /// The folios have no bytes any more.
    fn forget(&mut self) {
        let node = self.node();
        for id in core::mem::replace(&mut self.folios, [NO_FOLIO; ROW]) {
            let folio = FolioRef::new(node, node.folios.get(id));
            read::discard(node, self.cache, &folio);
        }
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let node = self.node();
        for &id in self.folios.iter().take_while(|&&id| id != NO_FOLIO) {
            let folio = FolioRef::new(node, node.folios.get(id));
            release(self.cache, &folio);
        }
    }
}
