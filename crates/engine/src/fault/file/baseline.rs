//! A fault on a file mapping as Linux's `mm/filemap.c` serves it: for the
//! baselines of document 003, which `readahead::baseline` counts. The default
//! does not come here.
//!
//! ```text
//!   fault ── not cached ── miss ── few misses? ──► Retry(read around)
//!     │                        └── many ─────────► Retry(read the page)
//!     ├─ in flight ──────────────────────────────► Retry(folio)
//!     ├─ the marker ── begin the next window ────► Retry(ahead), then as below
//!     └─ cached ── map it and cached pages
//!                  around it, count hits ────────► Mapped
//! ```
//!
//! Each time, the cached pages of the fault's 64 KiB are mapped, read ahead or not,
//! but for the marker; in Linux too that comes before anything else.

use super::{Fault, FaultFlags, Wait, around, map, miss};
use crate::PAGE_SIZE;
use crate::cache::folio::{BLOCK_BYTES, flag};
use crate::cache::reads::baseline as read_around;
use crate::cache::{FolioRef, PageCache};
use crate::page::Advice;
use crate::readahead::Found;
use sync::Arc;

// Not inlined: its variables would be on the handler's stack in all other faults.
#[inline(never)]
pub(super) fn fault(
    cache: &Arc<PageCache>,
    addr: usize,
    advice: Advice,
    flags: FaultFlags,
) -> Fault {
    let addr = addr & !(PAGE_SIZE - 1);
    if super::is_beyond_end(cache, addr) {
        return super::beyond_end(cache, addr);
    }
    if cache.is_emptied(&(addr..addr + PAGE_SIZE)) {
        return Fault::Retry(Wait::length(cache, addr));
    }
    let stats = &cache.node.stats;
    let found = cache.find(addr);
    if super::may_end_later(cache, found.as_deref(), addr) {
        return Fault::Retry(Wait::length(cache, addr));
    }
    let Some(folio) = found else {
        if flags.io_done {
            stats.retry_io_miss.add(1);
        }
        return missing(cache, addr, advice, flags);
    };
    let state = folio.state();
    if super::ends_before(&folio, state, addr) {
        return Fault::Again;
    }
    if state & flag::MAPPED != 0 && (!flags.write || state & flag::LOCKED == 0) {
        return super::present(cache, folio, addr, flags);
    }
    if state & flag::MARKER != 0
        && !flags.tried
        && let Some(ahead) = begin_next(cache, &folio, addr, advice, flags)
    {
        return Fault::Retry(ahead);
    }
    if state & flag::LOCKED != 0 {
        map_around(cache, addr, flags);
        return Fault::Retry(Wait::folio(cache, folio));
    }
    if state & flag::ERROR != 0 {
        return super::failed(cache, &folio, addr, flags);
    }
    let (state, pages) = match map::one(cache, folio, addr, flags) {
        Ok(mapped) => mapped,
        Err(fault) => return fault,
    };
    if !flags.tried {
        stats.minor_faults.add(1);
    }
    if state & flag::READAHEAD != 0 {
        let count = (pages.end - pages.start) / PAGE_SIZE;
        stats.readahead_used.add(count as u64);
    }
    map_around(cache, addr, flags);
    Fault::Mapped
}

/// Decides the read for a page that is not cached, and locks its folio.
fn missing(cache: &Arc<PageCache>, addr: usize, advice: Advice, flags: FaultFlags) -> Fault {
    let most = match miss::absent(cache, addr, flags) {
        Ok(most) => most,
        Err(fault) => return fault,
    };
    let (index, file_pages) = (cache.page(addr), cache.pages());
    // A fault that finds no memory comes back: it is counted once it has it.
    let planned = { *cache.mmap_miss.lock() }.miss(index, advice, file_pages);
    let range = match planned {
        Some(window) => read_around::part(cache, &window, addr, most),
        None => addr..addr + PAGE_SIZE,
    };
    let held = match miss::demand(cache, addr, range) {
        Ok(held) => held,
        Err(fault) => return fault,
    };
    cache.node.stats.major_faults.add(1);
    map_around(cache, addr, flags);
    let window = cache.mmap_miss.lock().miss(index, advice, file_pages);
    Fault::Retry(match window {
        Some(window) => Wait::read_around(cache, held, window),
        None => Wait::read(cache, held),
    })
}

/// The fault has met a marker: the window to begin, if it is the first to do so.
fn begin_next(
    cache: &Arc<PageCache>,
    folio: &FolioRef<'_>,
    addr: usize,
    advice: Advice,
    flags: FaultFlags,
) -> Option<Wait> {
    if !folio.take_marker() {
        return None;
    }
    map_around(cache, addr, flags);
    let (index, file_pages) = (cache.page(addr), cache.pages());
    let (expected, ra_pages) = {
        let mut state = cache.mmap_miss.lock();
        if !folio.is(flag::LOCKED) {
            state.hit(advice);
        }
        (state.expects(index), state.ra_pages())
    };
    if advice == Advice::Random {
        return None;
    }
    let next_miss = match expected {
        true => index + 1,
        false => read_around::next_miss(cache, index + 1, ra_pages),
    };
    let mut state = cache.mmap_miss.lock();
    let window = state.marker(index, next_miss, file_pages)?;
    Some(Wait::ahead(cache, window))
}

/// Maps the cached pages of the fault's block, and counts them as hits.
fn map_around(cache: &PageCache, addr: usize, flags: FaultFlags) {
    around::neighbours(cache, addr, flag::MARKER);
    let block = addr & !(BLOCK_BYTES - 1);
    let mut found = Found::default();
    {
        let bucket = cache.node.index.lock(addr, &cache.node.folios);
        for folio in bucket.iter() {
            let (pages, state) = (folio.range(), folio.state());
            // Of the working set are those that refaulted.
            let hit = state & (flag::MAPPED | flag::ACTIVE | flag::MARKER) == flag::MAPPED;
            if hit && pages.start & !(BLOCK_BYTES - 1) == block {
                found.pages += folio.pages() as u16;
                found.own |= pages.contains(&addr);
            }
        }
    }
    let accounting = cache.node.policies.miss_accounting;
    let mut state = cache.mmap_miss.lock();
    state.mapped(found, accounting, flags.tried);
}
