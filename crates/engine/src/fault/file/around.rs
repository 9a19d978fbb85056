//! Fault-around: a fault also maps cached pages that the program will soon
//! touch.

use super::map::{install, release};
use crate::PAGE_SIZE;
use crate::cache::folio::{BLOCK_BYTES, BLOCK_PAGES, Folio, NO_FOLIO, flag};
use crate::cache::reads::ahead;
use crate::cache::{FolioRef, PageCache};
use core::ops::Range;

/// The bits that a neighbour is chosen by.
const AROUND: u32 = flag::UPTODATE | flag::MAPPED | flag::LOCKED;

/// Maps the cached neighbours in the fault's block, except those marked with
/// `except`. They prove nothing about the access pattern and are not counted as
/// hits (document 003, first patch); pages that the policy has read ahead are left for
/// their own first use, by which the policy learns whether it was right; [`sure`] has the exception.
pub(super) fn neighbours(cache: &PageCache, addr: usize, except: u32) {
    let choose = |folio: &Folio| folio.state() & (AROUND | except) == flag::UPTODATE;
    of_block(cache, addr, choose, |pages| {
        let pages = (pages.end - pages.start) / PAGE_SIZE;
        cache.node.stats.fault_around.add(pages as u64);
    });
}

/// Maps those folios of a block that are chosen, as far as there is memory for them, and says which it has mapped.
fn of_block(
    cache: &PageCache,
    addr: usize,
    choose: impl Fn(&Folio) -> bool,
    mut mapped: impl FnMut(Range<usize>),
) {
    let node = &cache.node;
    let block = addr & !(BLOCK_BYTES - 1);
    let mut chosen = [NO_FOLIO; BLOCK_PAGES];
    let mut count = 0;
    {
        let bucket = node.index.lock(addr, &node.folios);
        let ready = bucket
            .iter()
            .filter(|folio| folio.range().start & !(BLOCK_BYTES - 1) == block && choose(folio));
        for folio in ready.take(BLOCK_PAGES) {
            bucket.get(folio);
            chosen[count] = folio.id();
            count += 1;
        }
    }
    for &id in &chosen[..count] {
        let folio = FolioRef::new(node, node.folios.get(id));
        if !folio.try_lock() {
            continue;
        }
        let ready = folio.state() & (flag::UPTODATE | flag::MAPPED | flag::DEAD) == flag::UPTODATE;
        let pages = folio.range();
        if ready && install(cache, &folio, BLOCK_PAGES as u64, None).is_ok() {
            mapped(pages);
        } else {
            release(cache, &folio);
        }
    }
}

/// Bytes around a touch, aligned, in which pages that are all but certain to be touched are mapped with it.
const SURE: usize = 8 * BLOCK_BYTES;

/// Maps prefetched pages around the fault that are all but certain to be touched, and tells the policy so. A fault costs as much
/// as copying several pages. Pages that are folios of their own are left: by their touches the policy sees whether it is right.
pub(super) fn sure(cache: &PageCache, addr: usize) {
    const READ_AHEAD: u32 = flag::UPTODATE | flag::READAHEAD | flag::SURE;
    let choose =
        |folio: &Folio| folio.state() & (AROUND | READ_AHEAD) == READ_AHEAD && folio.pages() > 1;
    if !cache.readahead.lock().maps_ahead(cache.node.budget.limit()) {
        return;
    }
    ahead::take_completed(cache);
    let window = cache.addresses();
    let start = (addr & !(SURE - 1)).max(window.start);
    for block in (start..(start + SURE).min(window.end)).step_by(BLOCK_BYTES) {
        of_block(cache, block, choose, |pages| {
            let count = (pages.end - pages.start) / PAGE_SIZE;
            cache.node.stats.readahead_used.add(count as u64);
            ahead::mapped_with(cache, pages);
        });
    }
}

/// Folios that a fault in a run maps beyond its own.
const RUN: usize = 7;

/// Maps the whole blocks that follow the folio at `pages`, if as many before it
/// are mapped: a run that long has proven itself. Returns where the mapped
/// pages end.
///
/// A window of read-ahead ends within a block, and its last folio is no whole
/// block: so each window still shows the policy touches of its own.
pub(super) fn run(cache: &PageCache, pages: Range<usize>) -> usize {
    let whole = |range: &Range<usize>| {
        range.end - range.start == BLOCK_BYTES && range.start.is_multiple_of(BLOCK_BYTES)
    };
    if !whole(&pages) || !follows_a_run(cache, pages.start) {
        return pages.end;
    }
    let mut end = pages.end;
    for _ in 0..RUN {
        if end >= cache.addresses().end {
            break;
        }
        let Some(folio) = cache.find(end) else {
            break;
        };
        if !whole(&folio.range()) || !folio.try_lock() {
            break;
        }
        let ready = folio.state() & (flag::UPTODATE | flag::MAPPED | flag::DEAD) == flag::UPTODATE;
        let behind = folio.range().end;
        if !ready || install(cache, &folio, BLOCK_PAGES as u64, None).is_err() {
            release(cache, &folio);
            break;
        }
        end = behind;
    }
    end
}

/// True if the pages before `addr`, a block apart, are mapped.
pub(super) fn follows_a_run(cache: &PageCache, addr: usize) -> bool {
    let behind = addr - cache.addresses().start;
    (0..RUN).all(|back| {
        let distance = PAGE_SIZE + back * BLOCK_BYTES;
        distance <= behind && cache.is_mapped(addr - distance)
    })
}
