//! Reclaim: making room under the budget, in the thread that needs it.
//!
//! Order: spare frames of the pool, folios read ahead long ago and never
//! touched, then mapped folios, least recently mapped first ([`lists`]). Mapped
//! folios go in batches with one zap for all: with a second thread running, a
//! zap costs a TLB shootdown, and that is tens of times a page's own cost.
//!
//! A folio leaves in these steps, and a fault that meets it in between waits
//! for its lock:
//!
//! 1. isolated: off its list, under the lists' lock;
//! 2. claimed: locked, under its bucket's lock, if the index alone refers to it;
//! 3. counted out of its range, and zapped with the batch;
//! 4. out of the index, remembered by the ghosts, unlocked, freed.

pub(crate) mod anonymous;
mod batches;
mod clean_ahead;
mod copies;
mod evict;
pub mod ghost;
pub(crate) mod heat;
pub mod lists;
pub(crate) mod memory_wait;
mod shared_budget;
mod whole;
pub(crate) mod windows;
mod write_back;

pub use anonymous::Stopped;
pub use batches::Batches;
pub(crate) use copies::Copies;
pub(crate) use evict::{Cleaner, Sweep};
pub use ghost::Ghosts;
pub use lists::{Heads, ListPages, Lists, Want};
pub(crate) use write_back::Dirty;

use crate::budget::{Budget, InHand, Need};
use crate::cache::Node;
use crate::cache::frames::CHUNK_PAGES;
use crate::cache::reads::Completion;
use crate::page::Order;
use crate::stage::Stage;
use crate::store::{Complete, StoreError};
use core::cell::Cell;

/// Reclaim's state of a node's files.
pub(crate) struct Lru {
    pub(crate) lists: Lists,
    /// The recent evictions.
    pub(crate) ghosts: Ghosts,
    batches: Batches,
}

impl Lru {
    /// Of a node with a budget of so many pages; `None` where the machine has no memory for it.
    pub(crate) fn new(order: Order, pages: usize) -> Option<Self> {
        Some(Self {
            lists: Lists::new(order),
            ghosts: Ghosts::new(pages)?,
            batches: Batches::new(pages),
        })
    }

    /// Lets dirty pages be written back from now on, by copies of so many pages a batch. False where there is no memory for them.
    pub(crate) fn will_write(&self, copies: usize) -> bool {
        self.batches.will_write(copies)
    }

    /// Bytes of its tables.
    pub(crate) fn bytes(&self) -> usize {
        self.ghosts.bytes() + self.batches.bytes()
    }
}

impl Node {
    /// Makes the budget at least `pages` pages freer if that is possible;
    /// returns by how many.
    pub fn reclaim(&self, pages: usize) -> usize {
        self.reclaim_with(pages, InHand::Nothing)
    }

    /// The same for a thread that may have folios locked.
    pub(crate) fn reclaim_with(&self, pages: usize, in_hand: InHand) -> usize {
        self.evict_until(pages, Some(in_hand), |made| made >= pages)
    }

    /// Makes room for a fault in need. True if there is some, or was: look
    /// again. False if all is pinned, or in the hands of others. The caller has no folio locked.
    pub(crate) fn make_room(&self, need: Need) -> bool {
        self.make_room_with(need, InHand::Nothing)
    }

    /// The same for a caller that has folios locked.
    pub(crate) fn make_room_with_folios(&self, need: Need) -> bool {
        self.make_room_with(need, InHand::Folios)
    }

    fn make_room_with(&self, need: Need, in_hand: InHand) -> bool {
        let _stage = Stage::Reclaim.span();
        // Others may have made it since the caller looked.
        if self.has_room(need) {
            return true;
        }
        let pages = self.pages_for(need);
        if self.reclaim_from_members(pages, in_hand) > 0 && self.has_room(need) {
            return true;
        }
        // Others may take what this thread makes as fast as it does: then it looks again itself, and does not make room for all of
        // them. And they may make room and take it again while this thread waits for its turn: it has evicted nothing then, though
        // there may be much to evict.
        let had_room = Cell::new(false);
        let has_room = || {
            let has_room = self.has_room(need);
            had_room.set(had_room.get() || has_room);
            has_room
        };
        let freed = match need {
            Need::Pages(pages) => {
                let enough = |made| made >= pages || has_room();
                self.evict_until(pages, Some(in_hand), enough) > 0
            }
            // Another chunk, so that reads can go on in the one there is.
            Need::Frame if self.pool_may_grow() => {
                let enough = |made| made > CHUNK_PAGES || has_room();
                self.evict_until(CHUNK_PAGES, Some(in_hand), enough) > 0
            }
            Need::Frame => self.evict_read(|_| has_room()) > 0,
            // Private memory has neither folios nor dirty pages of a file: it stays.
            Need::Folio => self.evict_until(0, None, |_| has_room()) > 0,
            Need::Clean => {
                self.evict_until(0, None, |_| has_room());
                // Other evictions are of no use.
                false
            }
        };
        freed || had_room.get() || self.has_room(need)
    }

    fn has_room(&self, need: Need) -> bool {
        match need {
            Need::Pages(pages) => self.budget.free() >= pages as u64,
            Need::Frame => {
                let counts = self.frames.counts();
                let growth = CHUNK_PAGES as u64 + 1;
                counts.used < counts.present
                    || (self.pool_may_grow() && self.budget.free() >= growth)
            }
            Need::Folio => self.folios.used() < self.budget.limit() as usize,
            Need::Clean => self.may_dirty(),
        }
    }

    fn pool_may_grow(&self) -> bool {
        self.frames.present() + CHUNK_PAGES <= self.demand_frames()
    }

    /// Evicts in the order of the header until there is `enough`; returns how
    /// many pages the budget got back. `private` says what a caller that private memory helps has in hand; for others none of it is
    /// evicted.
    fn evict_until(
        &self,
        pages: usize,
        private: Option<InHand>,
        enough: impl Fn(usize) -> bool,
    ) -> usize {
        self.stats.reclaim_batches.add(1);
        if let Some(tell) = self.on_reclaim {
            tell();
        }
        let mut made = self.shrink_pool();
        // A folio that is pinned or waited for goes to the end of its list: once
        // round, and all that can go has gone. A list of nothing else must not keep
        // the round to itself.
        let mut want = Want::Any;
        let mut left = self.lru.lists.folios() + 1;
        let mut anonymous_left = private.map_or(0, |_| self.anonymous_to_look_at());
        while !enough(made) && (left > 0 || anonymous_left > 0) {
            let wanted = pages.saturating_sub(made);
            let first = || self.takes_anonymous_first() && !self.is_eviction_stopped();
            let private = private.filter(|_| anonymous_left > 0 && (left == 0 || first()));
            let (evicted, left) = match private {
                Some(in_hand) => {
                    let evicted = self.evict_anonymous(wanted, in_hand, || enough(made));
                    (evicted, &mut anonymous_left)
                }
                None => {
                    let evicted = self.evict(want, wanted, || enough(made));
                    if evicted.folios == 0 {
                        want = Want::Oldest;
                    }
                    (evicted, &mut left)
                }
            };
            made += evicted.pages + self.shrink_pool();
            *left = match (evicted.looked_at, evicted.folios) {
                (0, 0) => 0,
                (some, _) => left.saturating_sub(some),
            };
        }
        if !enough(made) {
            made += self.evict_read(|more| enough(made + more));
        }
        made
    }

    /// Evicts folios that nobody has mapped, however fresh, and gives all spare
    /// chunks back; returns how many pages the budget got.
    fn evict_read(&self, enough: impl Fn(usize) -> bool) -> usize {
        let made = self.evict_unlocked(&enough);
        match !enough(made) && self.take_completed() {
            true => made + self.evict_unlocked(&|more| enough(made + more)),
            false => made,
        }
    }

    /// Takes the completions of reads that nobody waits for, whose folios are locked; true if there were any.
    #[cold]
    #[inline(never)]
    fn take_completed(&self) -> bool {
        struct Counted<'a>(Completion<'a>, Cell<bool>);
        impl Complete for Counted<'_> {
            fn complete(&self, cookie: u64, result: Result<usize, StoreError>) {
                self.1.set(true);
                self.0.complete(cookie, result);
            }
        }
        let counted = Counted(Completion(self), Cell::new(false));
        if let Some(reads) = &self.reads {
            reads.poll(&counted);
        }
        counted.1.get()
    }

    /// Evicts such folios, as far as they are not locked.
    fn evict_unlocked(&self, enough: &dyn Fn(usize) -> bool) -> usize {
        let mut left = self.lru.lists.pages().readahead;
        let mut made = 0;
        while !enough(made) {
            let evicted = self.evict(Want::Frames, 0, || enough(made));
            made += self.frames.shrink(0) as usize;
            if evicted.looked_at == 0 || left == 0 {
                break;
            }
            left = left.saturating_sub(evicted.looked_at);
        }
        made
    }

    /// Evicts a batch of the folios that came first, mapped or not, however
    /// fresh; returns how many. Chunks of frames stay in the pool.
    pub(crate) fn evict_oldest(&self) -> usize {
        self.evict(Want::Any, 0, || false).folios
    }

    /// Pages of the budget that room for a fault takes.
    fn pages_for(&self, need: Need) -> usize {
        match need {
            Need::Pages(pages) => pages,
            Need::Frame if self.pool_may_grow() => CHUNK_PAGES + 1,
            Need::Frame | Need::Folio | Need::Clean => 0,
        }
    }

    /// True if room for a fault is to be made in other members of a shared budget first.
    pub(crate) fn reclaims_from_members(&self, need: Need) -> bool {
        let short = self.budget.short_of(self.pages_for(need) as u64);
        short.is_some_and(Budget::is_shared)
    }

    /// Gives chunks back that were not wanted of late.
    fn shrink_pool(&self) -> usize {
        let keep = self.frames.wanted().max(CHUNK_PAGES);
        self.frames.shrink(keep) as usize
    }
}
