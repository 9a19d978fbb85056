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
//! **Shards.** Each list has [`SHARDS`] parts, and each processor adds to one of them: 256 processors that add to one
//! list spend their time on the hand-over of its lock. One clock for all shards gives each folio the time at which it was
//! added. Reclaim takes from the shard whose first folio is the oldest, so the parts together have the order of one list,
//! up to a 256th of the budget.
//!
//! **The byte `list` of a folio** names its shard and its list, or says that it is on none. It leaves *none* by a
//! compare-and-swap under the lock of the new shard; all other changes take the lock of the shard that it names. So any
//! processor moves a listed folio within its shard, and two threads that add a folio at a time find one shard.
//!
//! Locks: one a shard, innermost but for the frame pool; nobody holds two of them.

mod dirty;
mod next;
mod shard;

pub(super) use self::dirty::EvictionRanks;
pub use self::next::Heads;
use self::shard::{LockedShard, Shard, shard_of};
use crate::cache::folio::{Folio, flag};
use crate::page::Order;
use crate::slab::Slab;
use sync::atomic::Ordering;
use sync::stat::Counter;

/// Which list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum List {
    /// Read ahead and not touched.
    Readahead = 0,
    /// Mapped.
    Inactive = 1,
    /// Mapped, and refaulted before.
    Active = 2,
}

/// All of them, in the order of their numbers.
const LISTS: [List; 3] = [List::Readahead, List::Inactive, List::Active];

/// The active list may hold this many of eight mapped folios.
const ACTIVE_SHARE: usize = 5;

/// Parts of each list. Reclaim looks at all of them for each batch.
pub const SHARDS: usize = if sync::PROCESSORS < 16 {
    sync::PROCESSORS
} else {
    16
};

/// All lists of a node.
pub struct Lists {
    /// [`SHARDS`] of them. Apart: whoever makes a node has it on a stack for a moment, which may be a small one.
    shards: Box<[Shard]>,
    clock: Clock,
    /// Immutable.
    order: Order,
}

/// Pages put on the mapped lists so far; on all lists, where the order is that of arrival. Apart from what else is read.
#[repr(align(64))]
struct Clock(Counter);

impl Clock {
    /// Wraps: only differences are of use.
    fn now(&self) -> u32 {
        self.0.get() as u32
    }
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
            shards: (0..SHARDS).map(Shard::new).collect(),
            clock: Clock(Counter::new()),
            order,
        }
    }

    /// Puts a folio at the end of the list that its flags name. The caller
    /// holds the folio lock, or has just isolated the folio.
    pub fn add(&self, folios: &Slab<Folio>, folio: &Folio) {
        let mut shard = self.hold(folios, folio);
        let list = list_of(folio);
        if list != List::Readahead || self.order == Order::Arrival {
            self.clock.0.add(folio.pages() as u64);
        }
        shard.push(folios, folio, list, self.clock.now());
    }

    /// The same of an isolated folio that cannot go. It goes behind all others, so that reclaim
    /// has seen all of them before it sees the folio again.
    pub fn put_back(&self, folios: &Slab<Folio>, folio: &Folio) {
        let mut shard = self.hold(folios, folio);
        self.clock.0.add(folio.pages() as u64);
        shard.push(folios, folio, list_of(folio), self.clock.now());
    }

    /// Locks the shard of the folio, or moves it to this processor's shard. The folio is on no list of it.
    fn hold(&self, folios: &Slab<Folio>, folio: &Folio) -> LockedShard<'_> {
        loop {
            // Relaxed: it is read again under the lock.
            let shard = shard_of(folio.list.load(Ordering::Relaxed));
            let number = shard.unwrap_or_else(|| sync::cpu() % SHARDS);
            let mut shard = self.shards[number].lock();
            if shard.hold(folios, folio) {
                return shard;
            }
        }
    }

    /// Takes a folio off its list. The caller holds the folio lock, and the folio
    /// is in no bucket, or has been looked up in one since.
    pub fn remove(&self, folios: &Slab<Folio>, folio: &Folio) {
        // A thread that puts a folio on a list has its lock, or the lock of the bucket that it
        // is in, and the caller has had both since. One that is on none stays on none.
        // Acquire pairs with the Release in `let_go`: the thread that takes it off is done with it.
        while let Some(number) = shard_of(folio.list.load(Ordering::Acquire)) {
            let mut shard = self.shards[number].lock();
            // It may have been isolated meanwhile.
            if shard.has(folio) {
                shard.let_go(folios, folio);
            }
        }
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
        heads: &mut Heads,
        out: &mut [u32],
    ) -> usize {
        let want = match (want, self.order) {
            (Want::Any, Order::Arrival) => Want::Oldest,
            _ => want,
        };
        heads.read(&self.shards, self.clock.now());
        // So much younger than the first folio of another shard the next one of this shard may be.
        let slack = stale / 64;
        let (mut count, mut pages) = (0, 0);
        while count < out.len() && pages < target {
            let Some(mut next) = heads.next(want, stale) else {
                break;
            };
            let mut shard = self.shards[next.shard].lock();
            while count < out.len() && pages < target {
                let first = shard.first(next.list).map(|id| folios.get(id));
                let Some(folio) = first.filter(|folio| heads.may_go(&next, folio, stale, slack))
                else {
                    break;
                };
                pages += folio.pages();
                out[count] = folio.id();
                count += 1;
                shard.let_go(folios, folio);
                heads.took(&mut next);
                if heads.list(want, stale) != Some(next.list) && want == Want::Any {
                    break;
                }
            }
            heads.look_again(&next, &self.shards[next.shard]);
        }
        count
    }

    /// The shards that have folios, one after the other.
    pub(super) fn shards(&self) -> impl Iterator<Item = LockedShard<'_>> {
        let in_use = self.shards.iter().filter(|shard| shard.folios() > 0);
        in_use.map(Shard::lock)
    }

    /// Sizes now.
    pub fn pages(&self) -> ListPages {
        let of = |list: List| self.shards.iter().map(|shard| shard.pages(list)).sum();
        ListPages {
            readahead: of(List::Readahead),
            inactive: of(List::Inactive),
            active: of(List::Active),
        }
    }

    /// Folios on all lists.
    pub fn folios(&self) -> usize {
        self.shards.iter().map(Shard::folios).sum()
    }

    /// Mapped folios, for the distance of a refault.
    pub fn mapped_pages(&self) -> usize {
        let of = |shard: &Shard| shard.pages(List::Inactive) + shard.pages(List::Active);
        self.shards.iter().map(of).sum()
    }
}

/// The list that a folio's flags name. The caller has locked its shard: of two threads that add at a time, the later one
/// sees the changes of the earlier one to the folio.
fn list_of(folio: &Folio) -> List {
    let state = folio.state.load(Ordering::Relaxed);
    if state & flag::MAPPED == 0 {
        List::Readahead
    } else if state & flag::ACTIVE != 0 {
        List::Active
    } else {
        List::Inactive
    }
}
