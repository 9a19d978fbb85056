//! The reclaim lists: which folio goes next.
//!
//! - **readahead**: read, never touched. They go first once they are stale: so
//!   many pages were mapped since that its reader should have touched it, and four times as many
//!   where it is all but certain to. Before that they are about to be touched,
//!   and go last.
//! - **inactive**: mapped once, in the order of their mapping.
//! - **active**: came back soon after they had been evicted (the ghosts know).
//!
//! User space sees no accessed bits, so the lists are first in, first out; hot
//! folios show by their refaults (as in 2Q and S3-FIFO). The active list is
//! kept below `ACTIVE_SHARE` of all mapped folios.
//!
//! Lock: one for all three; innermost but for the frame pool.

use crate::cache::folio::{Folio, NO_FOLIO, flag};
use crate::lock::{Mutex, MutexGuard, order};
use crate::page::Order;
use crate::slab::Slab;
use sync::atomic::Ordering;

/// Which list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum List {
    /// On none: fresh, isolated or dead.
    None = 0,
    /// Read ahead and not touched.
    Readahead = 1,
    /// Mapped.
    Inactive = 2,
    /// Mapped, and refaulted before.
    Active = 3,
}

/// The active list may hold this many of eight mapped folios.
const ACTIVE_SHARE: usize = 5;

#[derive(Debug, Clone, Copy)]
struct Queue {
    head: u32,
    tail: u32,
    folios: usize,
    pages: usize,
}

const EMPTY: Queue = Queue {
    head: NO_FOLIO,
    tail: NO_FOLIO,
    folios: 0,
    pages: 0,
};

/// All lists of a node.
pub struct Lists {
    inner: Mutex<Inner, { order::RECLAIM_LISTS }>,
    /// Immutable.
    order: Order,
}

pub(super) struct Inner {
    queues: [Queue; 3],
    /// Pages put on the mapped lists so far, wrapping; on all lists, where the
    /// order is that of arrival.
    clock: u32,
}

/// Sizes of the lists in pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ListPages {
    /// Read ahead and not touched.
    pub readahead: usize,
    /// Mapped.
    pub inactive: usize,
    /// Mapped and refaulted.
    pub active: usize,
}

/// The folios that reclaim asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    /// Those that go first.
    Any,
    /// The oldest folios of any list: where those that go first are pinned or isolated by
    /// others, they must not hide folios that could go.
    Oldest,
    /// Only frames: folios read ahead.
    Frames,
}

impl Lists {
    /// Empty lists.
    pub fn new(order: Order) -> Self {
        Self {
            inner: Mutex::ranked(Inner {
                queues: [EMPTY; 3],
                clock: 0,
            }),
            order,
        }
    }

    /// Puts a folio at the end of the list that its flags name. The caller
    /// holds the folio lock, or has just isolated the folio.
    pub fn add(&self, folios: &Slab<Folio>, folio: &Folio) {
        let mut inner = self.inner.lock();
        // Read under the lock: of two threads that add at a time, the later one sees
        // the changes of the earlier one to the folio.
        let state = folio.state.load(Ordering::Relaxed);
        let list = if state & flag::MAPPED == 0 {
            List::Readahead
        } else if state & flag::ACTIVE != 0 {
            List::Active
        } else {
            List::Inactive
        };
        unlink(&mut inner.queues, folios, folio);
        if list != List::Readahead || self.order == Order::Arrival {
            inner.clock = inner.clock.wrapping_add(folio.pages() as u32);
        }
        folio.listed_at.store(inner.clock, Ordering::Relaxed);
        push(&mut inner.queues, folios, folio, list);
    }

    /// Takes a folio off its list. The caller holds the folio lock, and the folio
    /// is in no bucket, or has been looked up in one since.
    pub fn remove(&self, folios: &Slab<Folio>, folio: &Folio) {
        // A thread that puts a folio on a list has its lock, or the lock of the bucket that it
        // is in, and the caller has had both since. One that is on none stays on none.
        // Acquire pairs with the Release in `unlink`: the thread that takes it off is done with it.
        if folio.list.load(Ordering::Acquire) == List::None as u8 {
            return;
        }
        unlink(&mut self.inner.lock().queues, folios, folio);
    }

    /// Takes up to `target` pages' folios off the lists into `out`; returns
    /// how many folios. They are on no list until evicted or added again. A
    /// folio read ahead is stale when `stale` pages were mapped since.
    pub fn isolate(
        &self,
        folios: &Slab<Folio>,
        want: Want,
        stale: u32,
        target: usize,
        out: &mut [u32],
    ) -> usize {
        let mut inner = self.inner.lock();
        let (mut count, mut pages) = (0, 0);
        while count < out.len() && pages < target {
            let next = match (want, self.order) {
                (Want::Any, Order::Arrival) => inner.oldest(folios),
                _ => inner.next(folios, want, stale),
            };
            let Some(id) = next else {
                break;
            };
            let folio = folios.get(id);
            pages += folio.pages();
            unlink(&mut inner.queues, folios, folio);
            out[count] = folio.id();
            count += 1;
        }
        count
    }

    /// All of them, locked.
    pub(super) fn heads(&self) -> MutexGuard<'_, Inner, { order::RECLAIM_LISTS }> {
        self.inner.lock()
    }

    /// Sizes now.
    pub fn pages(&self) -> ListPages {
        let queues = &self.inner.lock().queues;
        ListPages {
            readahead: queues[0].pages,
            inactive: queues[1].pages,
            active: queues[2].pages,
        }
    }

    /// Folios on all lists.
    pub fn folios(&self) -> usize {
        let queues = &self.inner.lock().queues;
        queues.iter().map(|queue| queue.folios).sum()
    }

    /// Mapped folios, for the distance of a refault.
    pub fn mapped_pages(&self) -> usize {
        let queues = &self.inner.lock().queues;
        queues[1].pages + queues[2].pages
    }
}

impl Inner {
    /// The first mapped folios, by list, in the order in which they go.
    pub(super) fn mapped(&self) -> [u32; 2] {
        [self.queues[1].head, self.queues[2].head]
    }

    /// The folio that came first.
    fn oldest(&self, folios: &Slab<Folio>) -> Option<u32> {
        let heads = self.queues.iter().filter(|queue| queue.folios > 0);
        let age = |id: &u32| {
            let listed_at = folios.get(*id).listed_at.load(Ordering::Relaxed);
            self.clock.wrapping_sub(listed_at)
        };
        heads.map(|queue| queue.head).max_by_key(age)
    }

    /// Which folio goes next.
    fn next(&self, folios: &Slab<Folio>, want: Want, stale: u32) -> Option<u32> {
        let [readahead, inactive, active] = &self.queues;
        let is_stale = |id: u32| {
            let folio = folios.get(id);
            let stale = match folio.is(flag::SURE) {
                true => stale.saturating_mul(4),
                false => stale,
            };
            let listed_at = folio.listed_at.load(Ordering::Relaxed);
            self.clock.wrapping_sub(listed_at) >= stale
        };
        let mapped = inactive.folios + active.folios;
        let queue = match want {
            Want::Frames => readahead,
            Want::Any if mapped == 0 => readahead,
            Want::Any if readahead.folios > 0 && is_stale(readahead.head) => readahead,
            Want::Any if active.folios * 8 > mapped * ACTIVE_SHARE => active,
            Want::Any if inactive.folios == 0 => active,
            Want::Any => inactive,
            Want::Oldest => return self.oldest(folios),
        };
        (queue.folios > 0).then_some(queue.head)
    }
}

fn push(queues: &mut [Queue; 3], folios: &Slab<Folio>, folio: &Folio, list: List) {
    let queue = &mut queues[list as usize - 1];
    folio.list.store(list as u8, Ordering::Relaxed);
    folio.list_prev.store(queue.tail, Ordering::Relaxed);
    folio.list_next.store(NO_FOLIO, Ordering::Relaxed);
    if queue.tail == NO_FOLIO {
        queue.head = folio.id();
    } else {
        let last = folios.get(queue.tail);
        last.list_next.store(folio.id(), Ordering::Relaxed);
    }
    queue.tail = folio.id();
    queue.folios += 1;
    queue.pages += folio.pages();
}

fn unlink(queues: &mut [Queue; 3], folios: &Slab<Folio>, folio: &Folio) {
    let list = folio.list.load(Ordering::Relaxed);
    if list == List::None as u8 {
        return;
    }
    let queue = &mut queues[list as usize - 1];
    let prev = folio.list_prev.load(Ordering::Relaxed);
    let next = folio.list_next.load(Ordering::Relaxed);
    if prev == NO_FOLIO {
        queue.head = next;
    } else {
        folios.get(prev).list_next.store(next, Ordering::Relaxed);
    }
    if next == NO_FOLIO {
        queue.tail = prev;
    } else {
        folios.get(next).list_prev.store(prev, Ordering::Relaxed);
    }
    queue.folios -= 1;
    queue.pages -= folio.pages();
    // Last: a thread that finds it on no list frees it, and it may be another's at once. Release
    // pairs with the Acquire in `remove`.
    folio.list.store(List::None as u8, Ordering::Release);
}
