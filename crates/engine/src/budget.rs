//! The budget: how many pages may be resident. A memory cgroup's limit, kept
//! by ourselves, so that it holds for frames, windows, metadata and the page
//! tables beneath.
//!
//! A charge is taken before the memory is, and given back after it is gone.
//! Budgets nest: a charge counts against every ancestor. So the memory that a
//! charge lacks may come back anywhere in the tree of budgets. A thread that waits for memory waits
//! at the outermost budget, which every release reaches.
//!
//! Processors keep a few charged pages in stock, so that not every fault of all of
//! them writes the same line; but only while an eighth of the budget is free and
//! nobody waits. A charge that does not fit takes all stocks back first, so
//! whether it fits at last has nothing to do with them. A few pages that are given back go into the stock too, while there is
//! as much room.
//!
//! **Charges that stay leave a floor.** Pages of files can be evicted at any time. All other
//! charges stay until their owner releases them, which may never happen: tables of maps, words and
//! pages of private memory. These are charged with a reserve of [`FLOOR`] pages, so that
//! all of them together never take the last [`FLOOR`] pages of any budget (but for a few that go back to a stock while others take what was
//! free): these pages are free, or pages of files. Pins are admitted by count, with the same floor.
//! That is why no fault on a file waits for ever. Pages that maps hold without a touch
//! ([`Budget::hold`]) leave more, an eighth.

use crate::lock::Mutex;
use sync::Arc;
use sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use sync::wait::WaitWord;

mod stock;
use stock::{SMALL, Stocks};

/// The resource that there is not enough of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// This many pages of the budget.
    Pages(usize),
    /// A frame of the pool.
    Frame,
    /// A folio.
    Folio,
    /// Fewer pages that files have not got yet.
    Clean,
}

/// How long a thread sleeps before it looks again.
pub(crate) const SLICE_NS: u64 = 10_000_000;

/// Pages that charges which reclaim cannot take back leave to those that it can: several
/// times the need of a fault.
pub const FLOOR: u64 = 64;

/// A thread that is about to wait for memory.
pub struct Subscription<'a> {
    /// The outermost budget.
    root: &'a Budget,
    seen: u32,
}

impl Subscription<'_> {
    /// Sleeps until memory has come back since the subscription, or until
    /// `timeout_ns` have passed. True if some has.
    pub fn wait(self, timeout_ns: u64) -> bool {
        let released = &self.root.released;
        released.wait(self.seen, Some(timeout_ns));
        // Relaxed: the search for the memory looks at the budget.
        released.load(Ordering::Relaxed) != self.seen
    }
}

impl Drop for Subscription<'_> {
    fn drop(&mut self) {
        // Relaxed: a thread that still sees it makes a wake-up call for nothing.
        self.root.waiters.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A limit on resident pages.
pub struct Budget {
    /// Pages that may be charged. Set by [`set_limit`](Self::set_limit).
    limit: AtomicU64,
    /// Raised when its owner begins to lower the limit, and when that is over: odd meanwhile.
    lowerings: AtomicU64,
    /// Pages that are charged and not in use.
    stocks: Stocks,
    hot: Hot,
    waiters: Waiters,
    /// Pages that maps and nodes hold, touched or not: a part of the charged pages, or of
    /// those that are about to be charged.
    held: AtomicU64,
    /// Raised by one when pages come back and a thread waits for that. Used in
    /// an outermost budget only, as `waiters` is.
    released: WaitWord,
    /// Immutable.
    parent: Option<Arc<Budget>>,
    /// The members that can give memory back that is charged here. Its lock is taken before
    /// any lock of reclaim. No thread waits for it that has a folio locked.
    members: Mutex<Vec<Arc<dyn Member>>>,
    /// The number of members: a hint. Changed with `members` locked.
    sharers: AtomicUsize,
}

/// The fields that charges change, on other cache lines than those that they only read.
#[derive(Default)]
#[repr(align(64))]
struct Hot {
    /// Pages charged now, those in stock included; above `limit` only after the
    /// limit was lowered.
    charged: AtomicU64,
    /// The most pages ever charged, those in stock included. A statistic.
    peak: AtomicU64,
}

/// Subscriptions alive in the tree of budgets. Every release looks at it: not on the line of the charges.
#[derive(Default)]
#[repr(align(64))]
struct Waiters(AtomicU64);

/// A limit that is being lowered.
pub(crate) struct Lowering<'a>(&'a Budget);

impl Drop for Lowering<'_> {
    fn drop(&mut self) {
        self.0.lowerings.fetch_add(1, Ordering::AcqRel);
    }
}

/// One of the sharers of a budget.
pub trait Member: Send + Sync {
    /// Pages that it could give back, about.
    fn held(&self) -> usize;
    /// Gives about `pages` pages back; returns how many.
    fn give(&self, pages: usize, in_hand: InHand) -> usize;
}

/// The pages that a thread which makes room has in hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InHand {
    /// No folio lock.
    Nothing,
    /// Locked folios, whose reads it has not begun, or that are under way and that it delivers. It waits neither for a batch of private
    /// memory nor for the members of a shared budget: a thread that gives pages up (`anon/advise.rs`), moves them or hands them over
    /// has one of those batches and waits for folios.
    Folios,
}

impl core::fmt::Debug for Budget {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Budget")
            .field("limit", &self.limit())
            .field("charged", &self.charged())
            .field("parent", &self.parent)
            .finish_non_exhaustive()
    }
}

impl Budget {
    /// A budget of `pages`, of its own.
    pub fn new(pages: u64) -> Arc<Self> {
        Self::with_parent(pages, None)
    }

    /// A budget of `pages` inside `parent`.
    pub fn nested(pages: u64, parent: &Arc<Budget>) -> Arc<Self> {
        Self::with_parent(pages, Some(parent.clone()))
    }

    fn with_parent(pages: u64, parent: Option<Arc<Budget>>) -> Arc<Self> {
        Arc::new(Self {
            limit: AtomicU64::new(pages),
            lowerings: AtomicU64::new(0),
            stocks: Stocks::new(),
            hot: Hot::default(),
            waiters: Waiters::default(),
            held: AtomicU64::new(0),
            released: WaitWord::new(0),
            members: Mutex::new(Vec::new()),
            sharers: AtomicUsize::new(0),
            parent,
        })
    }

    /// Charges `pages` if at least `reserve` pages stay free here and in every
    /// ancestor.
    pub fn try_charge(&self, pages: u64, reserve: u64) -> bool {
        if !self.charge_here(pages, reserve) {
            return false;
        }
        match &self.parent {
            Some(parent) if !parent.try_charge(pages, reserve) => {
                self.uncharge_here(pages);
                // It may have stopped another for a moment.
                self.notify_release();
                false
            }
            _ => true,
        }
    }

    /// Counts `pages` as held, here and in every ancestor, if an eighth of each is left
    /// then. They are to be charged, with [`FLOOR`] as the reserve.
    pub fn hold(&self, pages: u64) -> bool {
        let most = self.most_held();
        // Relaxed, here and below: a bound, not a hand-over.
        let now = self.held.load(Ordering::Relaxed).checked_add(pages);
        if now.is_none_or(|held| held > most) {
            return false;
        }
        // No compare-and-swap, as in `restock`: of several that do not all fit, all may be refused.
        let fits = self.held.fetch_add(pages, Ordering::Relaxed) + pages <= most
            && self.parent.as_ref().is_none_or(|parent| parent.hold(pages));
        if !fits {
            self.held.fetch_sub(pages, Ordering::Relaxed);
        }
        fits
    }

    /// Takes back the count of [`hold`](Self::hold). Uncharges nothing.
    pub fn let_go(&self, pages: u64) {
        let before = self.held.fetch_sub(pages, Ordering::Relaxed);
        assert!(before >= pages, "budget: more let go than held");
        if let Some(parent) = &self.parent {
            parent.let_go(pages);
        }
    }

    /// The most pages that may be held.
    pub fn most_held(&self) -> u64 {
        let limit = self.limit();
        limit - limit / 8
    }

    /// Pages that are held.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// Pages that could still be held, here and in every ancestor.
    pub fn may_hold(&self) -> u64 {
        let here = self.most_held().saturating_sub(self.held());
        let parents = self
            .parent
            .as_ref()
            .map_or(u64::MAX, |parent| parent.may_hold());
        here.min(parents)
    }

    #[inline]
    fn charge_here(&self, pages: u64, reserve: u64) -> bool {
        // Pages in stock left the floor when they were charged.
        if pages <= SMALL && reserve <= FLOOR && (self.stocks.take(pages) || self.restock(pages)) {
            return true;
        }
        self.charge_exactly(pages, reserve)
            || (self.give_stocks_back() && self.charge_exactly(pages, reserve))
    }

    /// Charges `pages`, and some more for the processor's stock, where there is
    /// room enough.
    fn restock(&self, pages: u64) -> bool {
        let limit = self.limit();
        let (room, charge) = Stocks::room_and_charge(limit);
        // Relaxed: a first look; the second is below.
        if charge <= pages || self.root().waiters.0.load(Ordering::Relaxed) > 0 {
            return false;
        }
        // Relaxed, here and below: as in `charge_exactly`.
        let charged = &self.hot.charged;
        if charged.load(Ordering::Relaxed) + room > limit {
            return false;
        }
        // No compare-and-swap, which others would make fail again and again. All
        // processors at once stay within the room.
        let before = charged.fetch_add(charge, Ordering::Relaxed);
        if before + charge + FLOOR > limit {
            self.give_back(charge);
            return false;
        }
        self.raise_peak(before + charge);
        self.stocks.put(charge - pages);
        // A thread that came to wait meanwhile saw the batch charged, and in no
        // stock; and a thread that lowered the limit did not take it back: see `put`.
        if self.somebody_waits() || charged.load(Ordering::Relaxed) > self.limit() {
            self.give_stocks_back();
        }
        true
    }

    /// True if there was something in stock.
    fn give_stocks_back(&self) -> bool {
        self.give_back(self.stocks.empty())
    }

    fn give_back(&self, pages: u64) -> bool {
        if pages > 0 {
            self.uncharge_here(pages);
            self.notify_release();
        }
        pages > 0
    }

    fn charge_exactly(&self, pages: u64, reserve: u64) -> bool {
        // Relaxed: the counter orders nothing; the memory it stands for is
        // handed over by the locks of its owners.
        let mut charged = self.hot.charged.load(Ordering::Relaxed);
        loop {
            if charged + pages + reserve > self.limit.load(Ordering::Relaxed) {
                return false;
            }
            match self.hot.charged.compare_exchange_weak(
                charged,
                charged + pages,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => {
                    self.raise_peak(charged + pages);
                    return true;
                }
                Err(now) => charged = now,
            }
        }
    }

    fn raise_peak(&self, charged: u64) {
        // Most charges raise nothing: look first.
        if self.hot.peak.load(Ordering::Relaxed) < charged {
            self.hot.peak.fetch_max(charged, Ordering::Relaxed);
        }
    }

    /// Gives `pages` back, here and in every ancestor.
    pub fn uncharge(&self, pages: u64) {
        if pages == 0 {
            return;
        }
        let mut next = Some(self);
        while let Some(budget) = next {
            let rest = match pages {
                1..=SMALL => budget.keep(pages),
                pages => pages,
            };
            if rest > 0 {
                budget.uncharge_here(rest);
            }
            next = budget.parent.as_deref();
        }
        self.notify_release();
    }

    /// Puts pages that come back into the processor's stock, if there is as much room as `restock` wants. Returns how many are to be given
    /// back instead: all, none, or more than these where the stock has enough.
    fn keep(&self, pages: u64) -> u64 {
        let limit = self.limit();
        let (room, most) = Stocks::room_and_charge(limit);
        // Relaxed, here and below: as in `restock`.
        let charged = &self.hot.charged;
        if most <= pages || charged.load(Ordering::Relaxed) + room > limit {
            return pages;
        }
        let rest = self.stocks.keep(pages, most);
        // The limit may be lower now, or the room gone. For threads that wait `notify_release` looks.
        if charged.load(Ordering::Relaxed) + FLOOR > self.limit() {
            self.give_stocks_back();
        }
        rest
    }

    fn uncharge_here(&self, pages: u64) {
        // Relaxed: `notify_release`, which follows, shows it to waiters.
        let before = self.hot.charged.fetch_sub(pages, Ordering::Relaxed);
        assert!(
            before >= pages,
            "budget: more pages given back than charged"
        );
    }

    /// Wakes the threads that wait for memory: pages or frames came back. Writes no line that other processors have.
    pub fn notify_release(&self) {
        if self.somebody_waits() {
            self.root().wake_all();
        }
    }

    /// True if a thread waits that has not seen what came back before this call.
    fn somebody_waits(&self) -> bool {
        // SeqCst pairs with `subscribe`: either that thread sees the pages that came back, or we see that it waits.
        fence(Ordering::SeqCst);
        // Relaxed: ordered by the fence.
        self.root().waiters.0.load(Ordering::Relaxed) > 0
    }

    fn wake_all(&self) {
        // Release pairs with the Acquire in `subscribe`.
        self.released.fetch_add(1, Ordering::Release);
        self.released.wake(u32::MAX);
    }

    fn root(&self) -> &Budget {
        let mut root = self;
        while let Some(parent) = &root.parent {
            root = parent;
        }
        root
    }

    /// Announces that the caller is about to wait for memory. It tries once
    /// more, and then waits or drops the subscription.
    pub fn subscribe(&self) -> Subscription<'_> {
        let root = self.root();
        root.waiters.0.fetch_add(1, Ordering::Relaxed);
        // SeqCst pairs with `somebody_waits`, the Acquire below with `wake_all`.
        fence(Ordering::SeqCst);
        Subscription {
            seen: root.released.load(Ordering::Acquire),
            root,
        }
    }

    /// Adds `member` here and to every ancestor.
    pub fn enlist(&self, member: &Arc<dyn Member>) {
        let mut members = self.members.lock();
        members.push(member.clone());
        // Relaxed: a hint, whether a look at the list is worth its lock.
        self.sharers.store(members.len(), Ordering::Relaxed);
        drop(members);
        if let Some(parent) = &self.parent {
            parent.enlist(member);
        }
    }

    /// Takes `member` off again. Not in the fault handler: it may have been
    /// the last reference.
    pub fn delist(&self, member: &Arc<dyn Member>) {
        let mut members = self.members.lock();
        members.retain(|other| !Arc::ptr_eq(other, member));
        // Relaxed: as above.
        self.sharers.store(members.len(), Ordering::Relaxed);
        drop(members);
        if let Some(parent) = &self.parent {
            parent.delist(member);
        }
    }

    /// The nearest of this budget and its ancestors that has not `pages` pages
    /// free.
    pub fn short_of(&self, pages: u64) -> Option<&Budget> {
        let free = self.limit().saturating_sub(self.charged());
        match free < pages {
            true => Some(self),
            false => self.parent.as_deref()?.short_of(pages),
        }
    }

    /// True if several share this budget.
    pub fn is_shared(&self) -> bool {
        // Relaxed: as above.
        self.sharers.load(Ordering::Relaxed) > 1
    }

    /// Takes about `pages` pages from the members that hold most, until so many
    /// are free; returns how many came back.
    pub fn reclaim_from_members(&self, pages: usize, in_hand: InHand) -> usize {
        let members = match in_hand {
            InHand::Nothing => Some(self.members.lock()),
            InHand::Folios => self.members.try_lock(),
        };
        let Some(members) = members else { return 0 };
        let mut made = 0;
        // One that holds most may have pinned it all: then the next.
        let mut below = (usize::MAX, usize::MAX);
        // The lock's last holder may have made room for all waiters.
        let is_short = || self.limit().saturating_sub(self.charged()) < pages as u64;
        while made < pages && is_short() {
            let held = members.iter().map(|member| member.held());
            // Two may hold as much: the place tells them apart.
            let largest = (held.zip(0..))
                .filter(|&(held, place)| held > 0 && (held, place) < below)
                .max();
            let Some(largest @ (_, place)) = largest else {
                break;
            };
            below = largest;
            made += members[place].give(pages - made, in_hand);
        }
        made
    }

    /// Pages that may be charged.
    pub fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Begins to lower the limit, until what is returned is dropped. By the owner, one at a time.
    pub(crate) fn lower(&self) -> Lowering<'_> {
        self.lowerings.fetch_add(1, Ordering::AcqRel);
        Lowering(self)
    }

    /// Another number if the limit was lowered since, or that of a budget around it; `None` while one is. Meanwhile all that comes
    /// back may go to the excess: that a thread gets none says nothing.
    pub(crate) fn lowerings(&self) -> Option<u64> {
        // Acquire pairs with the end: the limit is what it was left as.
        let own = self.lowerings.load(Ordering::Acquire);
        let around = self
            .parent
            .as_ref()
            .map_or(Some(0), |parent| parent.lowerings())?;
        own.is_multiple_of(2).then_some(own + around)
    }

    /// Changes the limit. Lowering it evicts nothing by itself: the owner
    /// reclaims until [`excess`](Self::excess) is zero.
    pub fn set_limit(&self, pages: u64) {
        // Relaxed: `wake_all` shows it to waiters, and `empty_all` to threads that put
        // pages in stock.
        self.limit.store(pages, Ordering::Relaxed);
        self.give_back(self.stocks.empty_all());
        self.root().wake_all();
    }

    /// Pages charged now. Exact while nobody charges or gives back.
    pub fn charged(&self) -> u64 {
        let charged = self.hot.charged.load(Ordering::Relaxed);
        // The stocks were taken from after that: a little too much for once.
        charged.saturating_sub(self.stocks.pages())
    }

    /// True if `pages` could still be charged, here and in every ancestor.
    /// Cheaper than [`free`](Self::free) where there is plenty.
    pub fn has_free(&self, pages: u64) -> bool {
        let with_stocks = self.hot.charged.load(Ordering::Relaxed);
        let is_free = with_stocks + pages <= self.limit() || self.charged() + pages <= self.limit();
        is_free && (self.parent.as_ref()).is_none_or(|parent| parent.has_free(pages))
    }

    /// The most pages that were ever charged at a time, those in stock included.
    pub fn peak(&self) -> u64 {
        self.hot.peak.load(Ordering::Relaxed)
    }

    /// Pages charged above the limit, here or in an ancestor.
    pub fn excess(&self) -> u64 {
        let here = self.charged().saturating_sub(self.limit());
        here.max(self.parent.as_ref().map_or(0, |parent| parent.excess()))
    }

    /// Pages that could still be charged, here and in every ancestor.
    pub fn free(&self) -> u64 {
        let here = self.limit().saturating_sub(self.charged());
        here.min(
            self.parent
                .as_ref()
                .map_or(u64::MAX, |parent| parent.free()),
        )
    }
}
