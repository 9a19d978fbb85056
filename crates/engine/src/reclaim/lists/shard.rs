//! A shard of the reclaim lists: a part of each, under one lock.

use super::{LISTS, List};
use crate::cache::folio::{Folio, NO_FOLIO};
use crate::lock::{Mutex, MutexGuard, order};
use crate::slab::Slab;
use sync::atomic::Ordering;
use sync::stat::Gauge;

/// A folio's `list` while it is on none: fresh, isolated or dead.
const NOWHERE: u8 = 0;

/// A folio's `list` while it is on this one of a shard.
fn place(shard: usize, list: List) -> u8 {
    (1 + shard * LISTS.len() + list as usize) as u8
}

const _: () = assert!(super::SHARDS * LISTS.len() < u8::MAX as usize);

/// The shard that a folio is in, by its `list`.
pub(super) fn shard_of(place: u8) -> Option<usize> {
    Some(usize::from(place.checked_sub(1)?) / LISTS.len())
}

#[derive(Debug, Clone, Copy)]
struct ListEnds {
    head: u32,
    tail: u32,
    folios: u32,
    pages: u32,
}

const EMPTY: ListEnds = ListEnds {
    head: NO_FOLIO,
    tail: NO_FOLIO,
    folios: 0,
    pages: 0,
};

/// A part of each list.
#[repr(align(64))]
pub(super) struct Shard {
    queues: Mutex<[ListEnds; LISTS.len()], { order::RECLAIM_LISTS }>,
    unlocked: UnlockedCounts,
    /// Immutable.
    number: usize,
}

/// Numbers of a shard that are read without its lock, by list. Set under it. On lines of their own, since all processors read.
#[derive(Default)]
#[repr(align(64))]
struct UnlockedCounts([ListCounts; LISTS.len()]);

/// Old at once: reclaim looks again under the lock.
#[derive(Default)]
struct ListCounts {
    folios: Gauge,
    pages: Gauge,
    /// The clock when its first folio was added.
    since: Gauge,
}

impl ListCounts {
    /// Shows a list as it is now, but for its first folio.
    fn show(&self, queue: &ListEnds) {
        self.folios.set(queue.folios);
        self.pages.set(queue.pages);
    }
}

impl Shard {
    /// An empty one.
    pub(super) fn new(number: usize) -> Self {
        Self {
            queues: Mutex::ranked([EMPTY; LISTS.len()]),
            unlocked: UnlockedCounts::default(),
            number,
        }
    }

    pub(super) fn lock(&self) -> LockedShard<'_> {
        LockedShard {
            queues: self.queues.lock(),
            shard: self,
        }
    }

    /// Folios on all of its lists.
    pub(super) fn folios(&self) -> usize {
        let of = |counts: &ListCounts| counts.folios.get() as usize;
        self.unlocked.0.iter().map(of).sum()
    }

    /// Folios on a list, and when the first was added.
    pub(super) fn head(&self, list: List) -> (u32, u32) {
        let counts = &self.unlocked.0[list as usize];
        (counts.folios.get(), counts.since.get())
    }

    /// Pages on a list.
    pub(super) fn pages(&self, list: List) -> usize {
        self.unlocked.0[list as usize].pages.get() as usize
    }
}

/// A shard, locked.
pub(in crate::reclaim) struct LockedShard<'a> {
    queues: MutexGuard<'a, [ListEnds; LISTS.len()], { order::RECLAIM_LISTS }>,
    shard: &'a Shard,
}

impl LockedShard<'_> {
    /// The first mapped folios, by list, in the order in which they go.
    pub(in crate::reclaim) fn mapped(&self) -> [u32; 2] {
        [List::Inactive, List::Active].map(|list| self.queues[list as usize].head)
    }

    /// The first folio of a list.
    pub(super) fn first(&self, list: List) -> Option<u32> {
        let head = self.queues[list as usize].head;
        (head != NO_FOLIO).then_some(head)
    }

    /// True if the folio is in this shard.
    pub(super) fn has(&self, folio: &Folio) -> bool {
        // Relaxed: it comes to name this shard, and ceases to, under the lock.
        shard_of(folio.list.load(Ordering::Relaxed)) == Some(self.shard.number)
    }

    /// Makes the folio one of this shard, and on no list of it: the caller pushes it. False if another shard has it.
    pub(super) fn hold(&mut self, folios: &Slab<Folio>, folio: &Folio) -> bool {
        if self.has(folio) {
            // It does not become "on none" meanwhile: another shard would take it.
            self.unlink(folios, folio);
            return true;
        }
        // Any list of the shard will do, for now. Acquire pairs with the Release in `let_go`: flags that were set before the
        // folio was on a list are seen.
        let place = place(self.shard.number, List::Readahead);
        (folio.list)
            .compare_exchange(NOWHERE, place, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Puts a folio that is held at the end of a list.
    pub(super) fn push(&mut self, folios: &Slab<Folio>, folio: &Folio, list: List, now: u32) {
        let queue = &mut self.queues[list as usize];
        // Relaxed, here and below: protected by the lock.
        let place = place(self.shard.number, list);
        folio.list.store(place, Ordering::Relaxed);
        folio.listed_at.store(now, Ordering::Relaxed);
        folio.list_prev.store(queue.tail, Ordering::Relaxed);
        folio.list_next.store(NO_FOLIO, Ordering::Relaxed);
        let counts = &self.shard.unlocked.0[list as usize];
        if queue.tail == NO_FOLIO {
            queue.head = folio.id();
            counts.since.set(now);
        } else {
            let last = folios.get(queue.tail);
            last.list_next.store(folio.id(), Ordering::Relaxed);
        }
        queue.tail = folio.id();
        queue.folios += 1;
        queue.pages += folio.pages() as u32;
        counts.show(queue);
    }

    /// Takes a folio that is in this shard off its list, and out of the shard.
    pub(super) fn let_go(&mut self, folios: &Slab<Folio>, folio: &Folio) {
        self.unlink(folios, folio);
        // Last: a thread that finds it on no list frees it, and it may be another's at once. Release
        // pairs with the Acquire in `remove` and in `hold`.
        folio.list.store(NOWHERE, Ordering::Release);
    }

    fn unlink(&mut self, folios: &Slab<Folio>, folio: &Folio) {
        let place = folio.list.load(Ordering::Relaxed);
        let list = LISTS[usize::from(place - 1) % LISTS.len()];
        let queue = &mut self.queues[list as usize];
        let prev = folio.list_prev.load(Ordering::Relaxed);
        let next = folio.list_next.load(Ordering::Relaxed);
        let counts = &self.shard.unlocked.0[list as usize];
        if prev == NO_FOLIO {
            queue.head = next;
        } else {
            folios.get(prev).list_next.store(next, Ordering::Relaxed);
        }
        if next == NO_FOLIO {
            queue.tail = prev;
        } else {
            let next = folios.get(next);
            next.list_prev.store(prev, Ordering::Relaxed);
            if prev == NO_FOLIO {
                counts.since.set(next.listed_at.load(Ordering::Relaxed));
            }
        }
        queue.folios -= 1;
        queue.pages -= folio.pages() as u32;
        counts.show(queue);
    }
}
