//! A fault in a thread that has others to serve, and does not wait for a read.
//!
//! ```text
//!   begin ──┬─ Over(outcome)
//!           ├─ Read(read) ── the store takes it (Store::submit_apart) ── it arrives, in any thread
//!           │      │                                                        │ attempts, as ever
//!           │      │                                                        ├─ Over, Read, Waits
//!           │      └─ it does not ─┬─ FaultRead::at_hand: the store has it, or it is given back
//!           │                      └─ FaultRead::wait: reads in this thread, as `handle` does
//!           └─ Waits(wait) ── FaultWait::wait: goes on as `handle` does
//!                  └──── FaultWait::leave: nothing is held, and another thread calls `handle`
//! ```
//!
//! A read that was begun has its folio locked, and nothing else, like a fault that sleeps in a read. So its owner must deliver its
//! completion, and must not wait for things that such reads hold, nor for threads that may wait for one: for frames, folios,
//! batches and pages of private memory, members of a shared budget, `mmap_lock`, a space that forks. These waits are left to
//! [`FaultWait`], in another thread. It does wait for batches of reclaim (read-ahead makes room), which wait for no folio that is
//! being read.

use super::retry::Retry;
use super::{Attempts, Fault, FaultAddress, FaultFlags, Interrupt, Outcome, once};
use crate::cache::reads::read;
use crate::mm::{AddressSpace, VmaRead};
use crate::policy::{RetryLock, RetryPin};
use crate::stage::Stage;
use crate::store::{Read, Store, StoreError};
use crate::wait::Wait;
use sync::Arc;

/// How far a fault got without waiting.
pub enum StartedFault<'a> {
    /// It has ended.
    Over(Outcome),
    /// It goes on when this has arrived.
    Read(FaultRead<'a>),
    /// A thread has to wait for something.
    Waits(FaultWait<'a>),
}

/// Begins to serve the fault at `addr`, and makes room for it if that takes no I/O.
pub fn begin(space: &AddressSpace, addr: usize, flags: FaultFlags) -> StartedFault<'_> {
    go_on(Attempts {
        space,
        addr: FaultAddress::new(addr),
        flags,
        retry: Retry::default(),
    })
}

/// Attempts that are made at once: a thread that changes a page may need this thread's processor, or take longer.
const ATTEMPTS: usize = 8;

fn go_on(mut attempts: Attempts<'_>) -> StartedFault<'_> {
    let _stage = Stage::Serve.span();
    let addr = attempts.addr;
    for _ in 0..ATTEMPTS {
        // Not by way of `mmap_lock`, whose holder may take long; nor is a space that forks waited for.
        let locking = Stage::VmaLock.span();
        let Some(vma) = attempts.space.lock_vma(addr.in_space()) else {
            break;
        };
        drop(locking);
        attempts.flags.io_done = attempts.retry.has_read();
        let wait = match once(&vma, addr, attempts.flags) {
            Fault::Mapped => return StartedFault::Over(Outcome::Mapped),
            Fault::Error(error) => return StartedFault::Over(Outcome::Error(error)),
            Fault::Again => {
                drop(vma);
                sync::thread::yield_now();
                continue;
            }
            Fault::Retry(wait) => wait,
        };
        attempts.flags.tried |= wait.is_io();
        let policies = wait.node().policies;
        // With the other policies the locks that are kept over a wait belong to a thread.
        let is_default =
            policies.retry_lock == RetryLock::VmaLock && policies.retry_pin == RetryPin::Yes;
        if !is_default {
            return StartedFault::Waits(FaultWait {
                attempts,
                wait: Some((wait, Some(vma))),
            });
        }
        drop(vma);
        if wait.is_io() {
            wait.count_lock_drop();
        }
        if wait.is_own_read() {
            return StartedFault::Read(FaultRead {
                space: attempts.space,
                addr,
                flags: attempts.flags,
                since: wait.node().clock.now_ns(),
                wait: Some(wait),
            });
        }
        if !wait.makes_room() {
            return StartedFault::Waits(FaultWait {
                attempts,
                wait: Some((wait, None)),
            });
        }
        attempts.retry.has_waited(wait);
    }
    StartedFault::Waits(FaultWait {
        attempts,
        wait: None,
    })
}

/// A fault that needs a read, which nobody has begun yet, or which is under way.
pub struct FaultRead<'a> {
    space: &'a AddressSpace,
    addr: FaultAddress,
    flags: FaultFlags,
    since: u64,
    /// Of the folio, locked. None once it has arrived.
    wait: Option<Wait>,
}

impl<'a> FaultRead<'a> {
    fn waits(&self) -> &Wait {
        self.wait.as_ref().expect("it has not arrived")
    }

    /// The read to submit. No other thread touches its buffer until this has arrived, or is dropped.
    pub fn request(&self, cookie: u64) -> Read {
        let wait = self.waits();
        let (cache, folio) = (wait.file(), wait.held());
        Read {
            cookie,
            offset: cache.offset(folio.range().start),
            buffer: cache.node.frame_address(folio),
            bytes: folio.pages() * crate::PAGE_SIZE,
        }
    }

    /// Where it is to be read from.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.waits().file().store
    }

    /// Reads what the store has at hand, and goes on. Gives the read back where this thread would have to wait for it; the store may
    /// have begun it then.
    pub fn at_hand(mut self) -> Result<StartedFault<'a>, Self> {
        let wait = self.waits();
        match read::at_hand(wait.file(), wait.held()) {
            Some(bytes) => Ok(self.arrived(Ok(bytes))),
            None => {
                self.wait
                    .as_mut()
                    .expect("it has not arrived")
                    .set_missing();
                Err(self)
            }
        }
    }

    /// Takes the answer of the store, and goes on.
    pub fn arrived(mut self, result: Result<usize, StoreError>) -> StartedFault<'a> {
        let _stage = Stage::Serve.span();
        let wait = self.wait.take().expect("it arrives once");
        read::arrived(wait.file(), wait.held(), result, self.since);
        let mut retry = Retry::default();
        retry.has_waited(wait);
        go_on(Attempts {
            space: self.space,
            addr: self.addr,
            flags: self.flags,
            retry,
        })
    }

    /// Reads in this thread, and goes on as [`handle`](super::handle) does. The store has not begun it.
    pub fn wait(mut self, interrupt: &dyn Interrupt) -> Outcome {
        let _stage = Stage::Serve.span();
        let wait = self.wait.take().expect("it has not arrived");
        let mut retry = Retry::default();
        if let Err(outcome) = retry.wait_unlocked(wait, interrupt) {
            return outcome;
        }
        let addr = self.addr;
        let attempts = Attempts {
            space: self.space,
            addr,
            flags: self.flags,
            retry,
        };
        attempts.serve(interrupt, |vma, flags| once(vma, addr, flags))
    }
}

impl Drop for FaultRead<'_> {
    /// A folio that no thread reads is not cached. The store has not begun it.
    fn drop(&mut self) {
        if let Some(wait) = self.wait.take() {
            let cache = wait.file();
            read::discard(&cache.node, cache, wait.held());
        }
    }
}

/// A fault that a thread has to wait in.
pub struct FaultWait<'a> {
    attempts: Attempts<'a>,
    /// The wait, and the lock where a policy decides whether it is kept. `None`: for a lock, or for a change of the page.
    wait: Option<(Wait, Option<VmaRead<'a>>)>,
}

impl FaultWait<'_> {
    /// Waits, and goes on as [`handle`](super::handle) does.
    pub fn wait(self, interrupt: &dyn Interrupt) -> Outcome {
        let _stage = Stage::Serve.span();
        let Self { mut attempts, wait } = self;
        let waited = match wait {
            Some((wait, Some(vma))) => attempts.retry.wait(vma, wait, interrupt),
            Some((wait, None)) => attempts.retry.wait_unlocked(wait, interrupt),
            None => Ok(()),
        };
        if let Err(outcome) = waited {
            return outcome;
        }
        let addr = attempts.addr;
        attempts.serve(interrupt, |vma, flags| once(vma, addr, flags))
    }

    /// Leaves it to another thread, which calls [`handle`](super::handle) with these flags.
    pub fn leave(self) -> FaultFlags {
        let flags = self.attempts.flags;
        if let Some((wait, vma)) = self.wait {
            drop(vma);
            if wait.is_unread() {
                let cache = wait.file();
                read::discard(&cache.node, cache, wait.held());
            }
        }
        flags
    }
}
