//! The locks and folios that a fault keeps from one attempt to the next: the policies [`RetryLock`]
//! and [`RetryPin`].
//!
//! ```text
//!   retry=       first wait           second wait          after that
//!   vma-lock     drops the VMA lock   drops the VMA lock   and so on
//!   held         keeps the VMA lock   keeps it             and so on
//!   mmap-lock    drops the VMA lock;  keeps mmap_lock      and so on
//!                takes mmap_lock      and a reference
//!                after it, TRIED      to the VMA
//! ```
//!
//! *The baseline* is Linux before document 002: a fault that has to wait for
//! I/O gives its VMA lock up, comes back under `mmap_lock` with TRIED set, and
//! waits from then on under that lock. Linux keeps its lock
//! while it allocates memory, and sleeps in reclaim with it; so here a fault
//! under the baseline, like one under `held`, keeps its VMA lock over a wait
//! that is not for I/O.
//!
//! **Waiting with a lock in hand** cannot deadlock, because no thread that a
//! fault waits for takes `mmap_lock` or a VMA lock before it is done:
//! - a folio's lock is held by a thread that reads it (and comes back for a lock only
//!   after the read), by a completion (any thread that reaps delivers it, this one
//!   too), by a fault that maps it, and by reclaim, truncate, write-back and unpin. None of
//!   them waits for a lock of the space with it in hand, only for I/O, for batches of reclaim and for leaves;
//! - memory comes from reclaim, which this thread does itself. It may wait for batches, and
//!   their holders for folios, but not for a lock of the space: those that need one have it
//!   already. Frames come back with completions and with faults that
//!   get to their mapping, under locks that they have already;
//! - a page table is zapped by reclaim, as above, or by an unmap that has its VMAs.
//!
//! The length of a file is waited for with no lock of the space: its holder may want `mmap_lock`.
//!
//! And no folio is locked by a fault that waits for `mmap_lock`: it has read and
//! unlocked its folio before. The cost is on threads that want the
//! lock for writing. One case is the caller's: a thread that unmaps before it
//! unpins, where pins hold all memory, waits for a fault that waits for it.

use super::{FaultAddress, Interrupt, Outcome, Wait, Waited};
use crate::mm::{AddressSpace, MmapReadGuard, NotMapped, VmaRead};
use crate::policy::{RetryLock, RetryPin};
use crate::stage::Stage;

/// The state that a fault keeps between two attempts. The locks come first: they are
/// dropped before the folio is.
#[derive(Default)]
pub(super) struct Retry<'a> {
    /// The VMA, if the policy keeps it over the wait.
    vma: Option<VmaRead<'a>>,
    /// `mmap_lock`, for the baseline's retries.
    mmap: Option<MmapReadGuard<'a>>,
    /// True if the next attempt is to be made under `mmap_lock`.
    under_mmap_lock: bool,
    /// The last wait: it keeps the folio that it was for until the next
    /// attempt has looked.
    waited: Option<Wait>,
    /// True if the last wait was for a read, which did its work: the next
    /// attempt should find the folio.
    read: bool,
    /// Waits for memory in a row, up to the last one, that found none to be
    /// had.
    futile: u32,
    /// Trailing waits of those, in which no thread freed memory, and no limit was lowered.
    standstill: u32,
    /// How long nothing but memory has been waited for, without the waits during which a limit was lowered.
    short_ns: u64,
}

/// A wait for memory under way.
struct ShortWait {
    begin_ns: u64,
    /// [`Budget::lowerings`](crate::budget::Budget::lowerings) then.
    lowerings: Option<u64>,
}

impl ShortWait {
    /// `None` if the wait is for something else.
    fn begin(wait: &Wait) -> Option<Self> {
        wait.is_memory().then(|| Self {
            begin_ns: wait.node().clock.now_ns(),
            lowerings: wait.node().budget.lowerings(),
        })
    }

    /// How long it took, or `None` if it says nothing: a limit was lowered meanwhile, and what came back may have gone to the excess.
    fn end(self, wait: &Wait) -> Option<u64> {
        let unlowered =
            self.lowerings.is_some() && self.lowerings == wait.node().budget.lowerings();
        unlowered.then(|| wait.node().clock.now_ns().saturating_sub(self.begin_ns))
    }
}

impl<'a> Retry<'a> {
    /// The VMA, locked for the next attempt.
    pub(super) fn lock(
        &mut self,
        space: &'a AddressSpace,
        addr: FaultAddress,
    ) -> Result<VmaRead<'a>, NotMapped> {
        let _stage = Stage::VmaLock.span();
        if let Some(vma) = self.vma.take() {
            return Ok(vma);
        }
        if !self.under_mmap_lock {
            return space.lock_vma_or_mmap_lock(addr.in_space());
        }
        let (vma, mmap) = space.lock_vma_and_mmap_lock(addr.in_space())?;
        self.mmap = Some(mmap);
        Ok(vma)
    }

    /// The next attempt follows at once. Under `mmap_lock` it is one of the same locks.
    pub(super) fn again(&mut self, vma: VmaRead<'a>) {
        if self.mmap.is_some() {
            self.vma = Some(vma);
        }
    }

    /// True once after a wait for a read that did its work.
    pub(super) fn has_read(&mut self) -> bool {
        core::mem::take(&mut self.read)
    }

    /// True if there is no use in waiting again.
    pub(super) fn gives_up(&self, wait: &Wait) -> bool {
        wait.must_fail(self.standstill, self.short_ns)
    }

    /// Waits, with or without the lock. If that is how the fault ends, nothing is
    /// kept that the caller does not drop with this.
    pub(super) fn wait(
        &mut self,
        vma: VmaRead<'a>,
        wait: Wait,
        interrupt: &dyn Interrupt,
    ) -> Result<(), Outcome> {
        let io = wait.is_io();
        let retry_lock = match wait.is_for_length() {
            true => RetryLock::VmaLock,
            false => wait.node().policies.retry_lock,
        };
        let keeps = match retry_lock {
            RetryLock::VmaLock => false,
            RetryLock::Held => true,
            RetryLock::MmapLock => self.mmap.is_some() || !io,
        };
        if keeps {
            self.vma = Some(vma);
        } else {
            drop(vma);
            self.under_mmap_lock = retry_lock == RetryLock::MmapLock;
            if io {
                wait.count_lock_drop();
            }
            self.mmap = None;
        }
        self.wait_unlocked(wait, interrupt)
    }

    /// The same, after the decision on the lock.
    pub(super) fn wait_unlocked(
        &mut self,
        mut wait: Wait,
        interrupt: &dyn Interrupt,
    ) -> Result<(), Outcome> {
        // The attempt has looked: the folio of the wait before this one may go.
        self.waited = None;
        // The folio to be mapped stays meanwhile, as it does in Linux while
        // a fault allocates a page table; unless it is itself the folio that keeps
        // memory from coming.
        if self.futile > 0 {
            wait.let_go();
        }
        let short = ShortWait::begin(&wait);
        let waited = wait.wait(interrupt);
        let is_proof = match short.map(|short| short.end(&wait)) {
            // Something else was waited for.
            None => {
                self.short_ns = 0;
                true
            }
            Some(ns) => {
                self.short_ns += ns.unwrap_or(0);
                ns.is_some()
            }
        };
        self.futile = match waited {
            Waited::NoRoom | Waited::Standstill => self.futile + 1,
            Waited::Ready | Waited::Interrupted | Waited::Failed(_) => 0,
        };
        if is_proof {
            self.standstill = match waited {
                Waited::Standstill => self.standstill + 1,
                _ => 0,
            };
        }
        self.keep(wait, waited == Waited::Ready);
        match waited {
            Waited::Interrupted => Err(Outcome::Interrupted),
            Waited::Failed(error) => Err(Outcome::Error(error)),
            Waited::Ready | Waited::NoRoom | Waited::Standstill => Ok(()),
        }
    }

    /// The wait is over, without a wait of this thread.
    pub(super) fn has_waited(&mut self, wait: Wait) {
        self.keep(wait, true);
    }

    /// Keeps the folio that was waited for until the next attempt has looked, unless the policy drops it.
    fn keep(&mut self, wait: Wait, is_ready: bool) {
        self.read = is_ready && wait.has_read();
        let drops = wait.is_io() && wait.node().policies.retry_pin == RetryPin::No;
        self.waited = (!drops).then_some(wait);
    }
}
