//! The budget: how many pages may be resident. A memory cgroup's limit, kept
//! by ourselves, so that it holds for frames, windows, metadata and the page
//! tables beneath.
//!
//! A charge is taken before the memory is, and given back after it is gone.
//! Budgets nest: a charge counts against every ancestor. So what stops a charge
//! may come back anywhere in the family, and who waits for memory waits at the
//! outermost budget, which everything that comes back comes to.

use crate::lock::Mutex;
use sync::Arc;
use sync::atomic::{AtomicU64, Ordering};
use sync::wait::WaitWord;

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
        // Relaxed: whoever looks for the memory looks at the budget.
        released.load(Ordering::Relaxed) != self.seen
    }
}

impl Drop for Subscription<'_> {
    fn drop(&mut self) {
        // Relaxed: who still sees it wakes nobody, at the cost of a call.
        self.root.waiters.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A limit on resident pages.
pub struct Budget {
    /// Pages that may be charged. Set by [`set_limit`](Self::set_limit).
    limit: AtomicU64,
    /// Pages charged now; above `limit` only after the limit was lowered.
    charged: AtomicU64,
    /// The most that was ever charged. A statistic.
    peak: AtomicU64,
    /// Raised by one when pages come back and somebody waits for that. Used in
    /// an outermost budget only, as `waiters` is.
    released: WaitWord,
    /// Subscriptions alive in the family.
    waiters: AtomicU64,
    /// Immutable.
    parent: Option<Arc<Budget>>,
    /// Who can give memory back that is charged here. Its lock is taken before
    /// any lock of reclaim.
    members: Mutex<Vec<Arc<dyn Member>>>,
}

/// One of those who share a budget.
pub trait Member: Send + Sync {
    /// Pages that it could give back, about.
    fn held(&self) -> usize;
    /// Gives about `pages` pages back; returns how many.
    fn give(&self, pages: usize) -> usize;
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
            charged: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            released: WaitWord::new(0),
            waiters: AtomicU64::new(0),
            members: Mutex::new(Vec::new()),
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

    fn charge_here(&self, pages: u64, reserve: u64) -> bool {
        // Relaxed: the counter orders nothing; the memory it stands for is
        // handed over by the locks of its owners.
        let mut charged = self.charged.load(Ordering::Relaxed);
        loop {
            if charged + pages + reserve > self.limit.load(Ordering::Relaxed) {
                return false;
            }
            match self.charged.compare_exchange_weak(
                charged,
                charged + pages,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => {
                    // Most charges raise nothing: look first.
                    if self.peak.load(Ordering::Relaxed) < charged + pages {
                        self.peak.fetch_max(charged + pages, Ordering::Relaxed);
                    }
                    return true;
                }
                Err(now) => charged = now,
            }
        }
    }

    /// Gives `pages` back, here and in every ancestor.
    pub fn uncharge(&self, pages: u64) {
        if pages == 0 {
            return;
        }
        let mut next = Some(self);
        while let Some(budget) = next {
            budget.uncharge_here(pages);
            next = budget.parent.as_deref();
        }
        self.notify_release();
    }

    fn uncharge_here(&self, pages: u64) {
        // Relaxed: `notify_release`, which follows, shows it to who waits.
        let before = self.charged.fetch_sub(pages, Ordering::Relaxed);
        assert!(
            before >= pages,
            "budget: more pages given back than charged"
        );
    }

    /// Wakes those who wait for memory: pages or frames came back.
    pub fn notify_release(&self) {
        let root = self.root();
        // AcqRel pairs with the fetch_add in `subscribe`: either that thread
        // sees what came back, or we see that it waits.
        if root.waiters.fetch_add(0, Ordering::AcqRel) > 0 {
            root.wake_all();
        }
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
        // AcqRel, and the Acquire below: see `notify_release` and `set_limit`.
        root.waiters.fetch_add(1, Ordering::AcqRel);
        Subscription {
            seen: root.released.load(Ordering::Acquire),
            root,
        }
    }

    /// Adds `member` here and to every ancestor.
    pub fn enlist(&self, member: &Arc<dyn Member>) {
        self.members.lock().push(member.clone());
        if let Some(parent) = &self.parent {
            parent.enlist(member);
        }
    }

    /// Takes `member` off again. Not in the fault handler: it may have been
    /// the last reference.
    pub fn delist(&self, member: &Arc<dyn Member>) {
        self.members
            .lock()
            .retain(|other| !Arc::ptr_eq(other, member));
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
        self.members.lock().len() > 1
    }

    /// Takes about `pages` pages from the members that hold most, until so many
    /// are free; returns how many came back.
    pub fn squeeze(&self, pages: usize) -> usize {
        let members = self.members.lock();
        let mut made = 0;
        // One that holds most may have pinned it all: then the next.
        let mut below = usize::MAX;
        // Whoever had the lock before may have made room for all who waited.
        let is_short = || self.limit().saturating_sub(self.charged()) < pages as u64;
        while made < pages && is_short() {
            let largest = members
                .iter()
                .map(|member| (member.held(), member))
                .filter(|(held, _)| *held > 0 && *held < below)
                .max_by_key(|(held, _)| *held);
            let Some((held, largest)) = largest else {
                break;
            };
            below = held;
            made += largest.give(pages - made);
        }
        made
    }

    /// Pages that may be charged.
    pub fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Changes the limit. Lowering it evicts nothing by itself: the owner
    /// reclaims until [`excess`](Self::excess) is zero.
    pub fn set_limit(&self, pages: u64) {
        // Relaxed: `wake_all` shows it to who waits.
        self.limit.store(pages, Ordering::Relaxed);
        self.root().wake_all();
    }

    /// Pages charged now.
    pub fn charged(&self) -> u64 {
        self.charged.load(Ordering::Relaxed)
    }

    /// The most pages that were ever charged at a time.
    pub fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
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
