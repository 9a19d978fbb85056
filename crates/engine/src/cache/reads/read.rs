//! Reading a folio, and the end of the read.

use crate::PAGE_SIZE;
use crate::anon::NotRead;
use crate::budget::SLICE_NS;
use crate::cache::folio::{Folio, NO_FOLIO, flag};
use crate::cache::{FolioRef, Node, OnTruncate, PageCache};
use crate::page::{FaultError, Interrupt};
use crate::stage::Stage;
use crate::store::{Complete, Read, Reap, StoreError};

/// Reads a folio in the calling thread, which holds its lock.
pub(crate) fn demand(cache: &PageCache, folio: &Folio) {
    demand_now(cache, folio, false);
}

/// The same of a folio that the store did not have at hand.
pub(crate) fn demand_missing(cache: &PageCache, folio: &Folio) {
    demand_now(cache, folio, true);
}

fn demand_now(cache: &PageCache, folio: &Folio, missing: bool) {
    let before = cache.node.clock.now_ns();
    let offset = cache.offset(folio.range().start);
    let bytes = folio.pages() * PAGE_SIZE;
    let buffer = cache.node.frame_address(folio);
    let reading = Stage::Read.span();
    // SAFETY: the frames are the folio's, whose lock we hold.
    let result = unsafe { cache.read_now(offset, buffer, bytes, missing) };
    drop(reading);
    finish(&cache.node, cache, folio, result);
    let stats = &cache.node.stats;
    stats.read_waits.record(cache.node.clock.now_ns() - before);
}

/// Reads a folio whose lock the caller has, if its store has the bytes at hand. Returns how many arrived.
pub(crate) fn at_hand(cache: &PageCache, folio: &Folio) -> Option<usize> {
    let _stage = Stage::Read.span();
    let offset = cache.offset(folio.range().start);
    let bytes = folio.pages() * PAGE_SIZE;
    let buffer = cache.node.frame_address(folio);
    // SAFETY: the frames are the folio's, whose lock the caller has.
    unsafe { cache.store.read_at_hand(offset, buffer, bytes) }
}

/// Starts the read of a folio whose lock the caller has, as a request of its own: those that are submitted next are behind it. False where the
/// store does not take it: then the caller reads it.
///
/// A function of its own: what it needs of the handler's stack is free again when read-ahead is submitted.
#[inline(never)]
pub(crate) fn begin(cache: &PageCache, folio: &FolioRef<'_>) -> bool {
    let node = &cache.node;
    // Private memory may be elsewhere by the time of the read.
    if cache.is_private() || !cache.store.submits_demands() {
        return false;
    }
    let read = Read {
        cookie: u64::from(folio.id()),
        offset: cache.offset(folio.range().start),
        buffer: node.frame_address(folio),
        bytes: folio.pages() * PAGE_SIZE,
    };
    folio.begin_read(folio.id());
    folio.change(flag::ASYNC, 0);
    // The read's reference, which its completion drops.
    folio.clone().leak();
    // SAFETY: the frames are the folio's, which stays locked until the completion.
    let started = unsafe { cache.store.submit(&[read]) } == 1;
    if !started {
        folio.change(0, flag::ASYNC);
        node.put(folio);
    }
    // A waiter that came before the read was in flight reaps it now; or waits for this thread.
    folio.wake_while_locked();
    started
}

/// Takes the answer to a read that a fault has begun at the time `since`. The folio's lock is the caller's, and is released.
pub(crate) fn arrived(
    cache: &PageCache,
    folio: &Folio,
    result: Result<usize, StoreError>,
    since: u64,
) {
    finish(&cache.node, cache, folio, result.map_err(NotRead::Failed));
    let stats = &cache.node.stats;
    stats.read_waits.record(cache.node.clock.now_ns() - since);
}

/// Takes the completions of asynchronous reads for a node.
pub struct Completion<'a>(pub &'a Node);

impl Complete for Completion<'_> {
    fn complete(&self, cookie: u64, result: Result<usize, StoreError>) {
        let node = self.0;
        let (mut next, mut left) = (cookie as u32, result);
        while next != NO_FOLIO {
            // The read holds a reference to each of its folios.
            let folio = FolioRef::new(node, node.folios.get(next));
            next = folio.next_in_read();
            let asked = folio.pages() * PAGE_SIZE;
            let part = left.map(|bytes| bytes.min(asked));
            left = left.map(|bytes| bytes.saturating_sub(asked));
            finish(node, folio.cache(), &folio, part.map_err(NotRead::Failed));
        }
    }
}

/// Takes a read's result and releases the folio lock.
fn finish(node: &Node, cache: &PageCache, folio: &Folio, result: Result<usize, NotRead>) {
    let asked = folio.pages() * PAGE_SIZE;
    let state = folio.state();
    let result = cache.whole(folio, result);
    if result == Err(NotRead::Changed) {
        // Private memory that is elsewhere by now: threads that want it look again.
        discard(node, cache, folio);
        return;
    }
    let known = |bytes: usize| cache.known_bytes(folio.range().start, bytes.min(asked));
    match result.map(known) {
        Ok(bytes) if bytes > 0 || cache.on_truncate == OnTruncate::Zeros => {
            node.stats.bytes_read.add(bytes as u64);
            let keep = match cache.on_truncate {
                OnTruncate::Zeros => asked,
                OnTruncate::Error => bytes.next_multiple_of(PAGE_SIZE),
            };
            // SAFETY: the frames are the folio's, whose lock we hold.
            unsafe {
                node.frame_address(folio)
                    .add(bytes)
                    .write_bytes(0, keep - bytes);
            }
            // The backing ends here: later pages are no longer the folio's.
            folio.shrink(keep / PAGE_SIZE);
            folio.change(flag::UPTODATE, flag::ASYNC);
        }
        Ok(_) | Err(_) if state & flag::ASYNC != 0 => {
            // No thread asked for it; a fault on it reads it again and gets the error.
            if state & flag::READAHEAD != 0 {
                node.stats.readahead_dropped.add(folio.pages() as u64);
                cache.readahead.lock().unused(folio.pages() as u32);
            }
            discard(node, cache, folio);
            return;
        }
        failed => {
            node.stats.read_errors.add(1);
            folio.set_read_error(match failed {
                Err(NotRead::Failed(error)) => error.into(),
                // It ends before the folio.
                Ok(_) | Err(NotRead::Changed) => FaultError::BeyondEnd,
            });
            folio.change(flag::ERROR, flag::ASYNC);
            node.free_frames(folio);
        }
    }
    // The fault that asked for it may never come back: the mapping may be gone.
    node.lru.lists.add(&node.folios, folio);
    folio.unlock();
}

/// Takes a folio that is not mapped out of the cache. The caller holds its
/// lock, which is released, and a reference of its own. The cache may be gone
/// afterwards: only the folio kept it.
pub(crate) fn discard(node: &Node, cache: &PageCache, folio: &Folio) {
    node.free_frames(folio);
    cache.remove(folio);
    folio.unlock();
    node.put(folio);
}

/// Waits until the folio lock is free: reaps the ring that reads it, or sleeps
/// until another reaper has unlocked it. `false` if interrupted.
pub(crate) fn unlocked(cache: &PageCache, folio: &Folio, interrupt: &dyn Interrupt) -> bool {
    let _stage = Stage::FolioWait.span();
    let completion = Completion(&cache.node);
    // Announced before the ring is asked: a read that is submitted after that
    // changes the bits, and the sleep ends.
    while let Some(announced) = folio.announce_waiter() {
        if interrupt.pending() {
            return false;
        }
        let in_flight = announced & flag::ASYNC != 0
            && cache.store.reap(folio.read_cookie(), &completion, SLICE_NS) == Reap::TimedOut;
        if !in_flight {
            folio.sleep(announced, SLICE_NS);
        }
    }
    true
}
