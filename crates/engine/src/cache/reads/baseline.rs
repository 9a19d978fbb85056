//! Reading a whole window, for the policies that read as Linux does.
//!
//! It is read when the fault has let its lock go, as Linux does before it
//! submits, and all of it is read: reads that the store's queue has no place for,
//! this thread does itself, as a thread in Linux sleeps until the device takes
//! its request. A folio that finds no frame takes that of the folios that were read
//! longest ago and not touched.
//!
//! A fault waits for all of the window that it has begun, not for its own page
//! alone. In Linux it waits for the request that its page is in, which is as
//! good as the whole for patterns that come back into the window: document
//! 003's rows of a stride of 1021 are only to be had if the second touch finds
//! its page read. (Met in flight, it would be TRIED, and no hit under the
//! second patch.)

use super::batch::ReadBatch;
use super::extent::{Part, extent};
use super::read::{self, Completion, unlocked};
use crate::PAGE_SIZE;
use crate::cache::PageCache;
use crate::cache::folio::{BLOCK_BYTES, Folio, flag};
use crate::page::Interrupt;
use crate::readahead::RaWindow;
use crate::store::NO_COOKIE;
use core::ops::Range;
use sync::Arc;

/// The part of a window that one folio can have: within `most`, which is
/// absent and has `addr`, in one block; up to the marker, which is a folio of
/// its own.
pub(crate) fn part(
    cache: &PageCache,
    window: &RaWindow,
    addr: usize,
    most: Range<usize>,
) -> Range<usize> {
    let address = |page: u64| cache.address(page * PAGE_SIZE as u64);
    let mut part = most.start.max(address(window.start))..most.end.min(address(window.end));
    for border in [window.marker, window.marker + 1] {
        let border = address(border.min(window.end));
        if border <= addr {
            part.start = part.start.max(border);
        } else {
            part.end = part.end.min(border);
        }
    }
    part
}

/// Reads the folio, whose lock the caller has, and the window around it; waits
/// for all of that. `false` if interrupted: then the folio has been read.
pub(crate) fn read(
    cache: &Arc<PageCache>,
    folio: &Folio,
    window: &RaWindow,
    interrupt: &dyn Interrupt,
) -> bool {
    begin(cache, window);
    read::demand(cache, folio);
    let end = cache.address(window.end * PAGE_SIZE as u64);
    let mut next = cache.address(window.start * PAGE_SIZE as u64);
    while next < end {
        let Some(folio) = cache.find(next) else {
            next += PAGE_SIZE;
            continue;
        };
        if folio.is(flag::LOCKED | flag::ASYNC) && !unlocked(cache, &folio, interrupt) {
            return false;
        }
        next = folio.range().end.max(next + PAGE_SIZE);
    }
    true
}

/// Starts to read the absent pages of a window.
pub(crate) fn begin(cache: &Arc<PageCache>, window: &RaWindow) {
    // Reads that are over and that nobody waited for give their places back.
    cache.store.reap(NO_COOKIE, &Completion(&cache.node), 0);
    let mut batch = ReadBatch::new(cache, flag::READAHEAD);
    batch.reads_all();
    let marker = cache.address(window.marker * PAGE_SIZE as u64);
    let end = cache.address(window.end.min(cache.pages()) * PAGE_SIZE as u64);
    let mut next = cache.address(window.start * PAGE_SIZE as u64);
    while next < end {
        if let Some(folio) = cache.find(next) {
            next = folio.range().end.max(next + PAGE_SIZE);
            continue;
        }
        let data = match extent(cache, next) {
            Ok(Part::Data(data)) => data,
            // Holes cost nothing when they are touched.
            Ok(Part::Hole(hole)) => {
                next = hole.end;
                continue;
            }
            Err(_) => break,
        };
        let block = next & !(BLOCK_BYTES - 1);
        let most = next..(block + BLOCK_BYTES).min(data.end).min(end);
        let absent = part(cache, window, next, cache.absent_around(next, most));
        let mark = match absent.start == marker {
            true => flag::READAHEAD | flag::MARKER,
            false => flag::READAHEAD,
        };
        if !batch.add_marked(absent.clone(), mark) {
            break;
        }
        next = absent.end;
    }
    batch.submit();
}

/// The first page from `page` on that is not cached, of `most`; the page behind
/// them if there is none.
pub(crate) fn next_miss(cache: &PageCache, page: u64, most: u32) -> u64 {
    let end = cache.pages().min(page + u64::from(most));
    let mut next = page;
    while next < end {
        match cache.find(cache.address(next * PAGE_SIZE as u64)) {
            Some(folio) => next = cache.page(folio.range().end - PAGE_SIZE).max(next) + 1,
            None => return next,
        }
    }
    // Past the end of the file nothing is cached.
    match next < page + u64::from(most) {
        true => next,
        false => page + u64::from(most),
    }
}
