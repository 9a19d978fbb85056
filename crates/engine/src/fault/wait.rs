//! What a fault waits for, as a value, and the waiting.
//!
//! A wait holds no lock. It holds the page cache and a reference to the folio
//! it is for. Whoever waited keeps it until the retry has looked, so that
//! reclaim cannot take the folio between the end of the read and the retry.

use super::read::{self, Completion};
use crate::cache::folio::{Folio, flag};
use crate::cache::{FolioRef, PageCache};
use crate::reclaim::Need;
use crate::store::{NO_COOKIE, Reap};
use sync::Arc;

/// How long a thread sleeps before it looks whether something else wants it.
const SLICE_NS: u64 = 10_000_000;

/// Tells a waiting fault that something else wants its thread: a pending
/// signal, say.
pub trait Interrupt {
    /// True if the fault should give up now and be raised again later.
    fn pending(&self) -> bool;
}

/// For those whom nothing interrupts.
#[derive(Debug, Clone, Copy)]
pub struct NeverInterrupted;

impl Interrupt for NeverInterrupted {
    fn pending(&self) -> bool {
        false
    }
}

/// What a fault waits for. Holds a reference to the folio it names.
#[must_use = "the fault goes on after the wait"]
pub struct Wait {
    cache: Arc<PageCache>,
    reason: Reason,
}

enum Reason {
    /// The folio is ours to read, by this thread.
    Read(u32),
    /// Somebody else reads the folio.
    Folio(u32),
    /// Somebody else maps or evicts the folio.
    Busy(u32),
    /// There is not enough of something.
    Memory(Need),
    /// The page table at this address is being zapped.
    Table(usize),
}

impl Wait {
    /// The folio is locked by the caller, who is to read it.
    pub(super) fn read(cache: &Arc<PageCache>, folio: FolioRef<'_>) -> Self {
        Self::new(cache, Reason::Read(folio.leak().id()))
    }

    /// The folio is locked by somebody else.
    pub(super) fn folio(cache: &Arc<PageCache>, folio: FolioRef<'_>) -> Self {
        let reason = match folio.is(flag::UPTODATE) {
            true => Reason::Busy,
            false => Reason::Folio,
        };
        Self::new(cache, reason(folio.leak().id()))
    }

    /// There is no memory.
    pub(super) fn memory(cache: &Arc<PageCache>, need: Need) -> Self {
        Self::new(cache, Reason::Memory(need))
    }

    /// A page table is being zapped.
    pub(super) fn table(cache: &Arc<PageCache>, addr: usize) -> Self {
        Self::new(cache, Reason::Table(addr))
    }

    fn new(cache: &Arc<PageCache>, reason: Reason) -> Self {
        Self {
            cache: cache.clone(),
            reason,
        }
    }

    /// True if what is waited for is I/O.
    pub fn is_io(&self) -> bool {
        matches!(self.reason, Reason::Read(_) | Reason::Folio(_))
    }

    /// Waits. `false` if interrupted.
    pub fn wait(&self, interrupt: &dyn Interrupt) -> bool {
        let io = self.is_io();
        let cache = &*self.cache;
        let stats = &cache.node.stats;
        match self.reason {
            Reason::Read(folio) => {
                stats.retry_mmap_drop.add(1);
                read::demand(cache, cache.node.folios.get(folio));
                true
            }
            Reason::Folio(folio) | Reason::Busy(folio) => {
                if io {
                    stats.retry_mmap_drop.add(1);
                }
                let before = cache.node.clock.now_ns();
                let done = unlocked(cache, cache.node.folios.get(folio), interrupt);
                stats.folio_waits.record(cache.node.clock.now_ns() - before);
                done
            }
            Reason::Memory(need) => {
                stats.memory_waits.add(1);
                let subscription = cache.node.budget.subscribe();
                // Reads that are over and that nobody waited for: reclaim can
                // take them once they are delivered.
                cache.store.reap(NO_COOKIE, &Completion(&cache.node), 0);
                if !cache.node.make_room(need) {
                    subscription.wait(SLICE_NS);
                }
                !interrupt.pending()
            }
            Reason::Table(addr) => {
                cache.window.wait_zapped(addr, SLICE_NS);
                !interrupt.pending()
            }
        }
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        if let Reason::Read(id) | Reason::Folio(id) | Reason::Busy(id) = self.reason {
            let node = &self.cache.node;
            node.put(node.folios.get(id));
        }
    }
}

/// Waits until the folio lock is free: reaps the ring that reads it, or sleeps
/// until another reaper has unlocked it. `false` if interrupted.
pub(crate) fn unlocked(cache: &PageCache, folio: &Folio, interrupt: &dyn Interrupt) -> bool {
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
