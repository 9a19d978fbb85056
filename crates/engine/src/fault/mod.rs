//! A fault's way.
//!
//! ```text
//!   handle ── lock_vma ─ contended ─► mmap_lock.read ─ find ─► vma reference
//!      │  VmOps::fault, of the VMA's backing (`mm::backing`)
//!      ├─ anon::fault ── absent: a page of zeros ─────────────► Mapped
//!      ├─ huge::fault ── a leaf table, perhaps shared; a page ► Mapped
//!      └─ file::fault ── in the index? ── mapped ─────────────► Mapped
//!            │              ├─ uptodate ──► map::folio ───────► Mapped
//!            │              └─ locked ────────────────────────► Retry(Folio)
//!            └─ miss ── hole ─────────────► hole::map ────────► Mapped
//!                   └── data ── miss::demand, ahead::issue ───► Retry(Read)
//! ```
//!
//! An attempt that finds another thread at work on the page, or that the page has changed since it
//! was looked up, returns [`Fault::Again`], and `serve` makes another attempt.
//!
//! Needing I/O, or memory, is a value: [`Wait`]. The loop in `serve` drops the
//! VMA lock, waits, and comes back under the VMA lock with
//! [`FaultFlags::tried`] set (document 002); it never falls back to
//! `mmap_lock` because of I/O. It keeps the folio that it waited for until the
//! next attempt has looked. `retry` has the other policies, which keep other locks or
//! drop the folio. A thread that serves the faults of many does not wait for a
//! read: `started`.

use crate::mm::backing::{VmFault, VmOps};
use crate::mm::{AddressSpace, VmaRead};
use crate::mmu::MmuError;
use crate::stage::Stage;
use retry::Retry;

mod access;
mod anon;
mod evict_page;
mod fault_in;
mod file;
mod populate;
mod retry;
mod started;

pub use crate::cache::reads::{Completion, prefetch};
pub use crate::page::{FaultAddress, FaultError, FaultFlags, Interrupt, NeverInterrupted};
pub use crate::wait::{Fault, Wait, Waited};
pub use access::{Stop, Stopped, read_at, touch, write_at};
pub use anon::{HandOverFn, NotHandedOver, hand_over};
pub use fault_in::{FaultIn, FaultInError, FaultInMany, Progress};
pub use file::{Pin, absent_from, note_call, open_to_writes, pin, unpin, write_whole};
pub use populate::{Populated, lock, populate, unlock};
pub use started::{FaultRead, FaultWait, StartedFault, begin};

/// How a fault ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The page is there: touch it again.
    Mapped,
    /// Something else wants the thread: serve that, then touch again.
    Interrupted,
    /// The touch cannot be served.
    Error(FaultError),
}

/// Serves the fault at `addr`.
pub fn handle(
    space: &AddressSpace,
    addr: usize,
    flags: FaultFlags,
    interrupt: &dyn Interrupt,
) -> Outcome {
    let _stage = Stage::Serve.span();
    let addr = FaultAddress::new(addr);
    serve(space, addr, flags, interrupt, |vma, flags| {
        once(vma, addr, flags)
    })
}

/// Makes attempts, each under the lock of the VMA at `addr`, until one is the
/// last; between them it does the waits that they ask for, with no lock but what `retry` keeps.
#[inline]
pub(crate) fn serve(
    space: &AddressSpace,
    addr: FaultAddress,
    flags: FaultFlags,
    interrupt: &dyn Interrupt,
    attempt: impl FnMut(&VmaRead<'_>, FaultFlags) -> Fault,
) -> Outcome {
    let attempts = Attempts {
        space,
        addr,
        flags,
        retry: Retry::default(),
    };
    attempts.serve(interrupt, attempt)
}

/// The attempts at one fault.
struct Attempts<'a> {
    space: &'a AddressSpace,
    addr: FaultAddress,
    flags: FaultFlags,
    /// The state that is kept from one to the next.
    retry: Retry<'a>,
}

impl Attempts<'_> {
    #[inline]
    fn serve(
        mut self,
        interrupt: &dyn Interrupt,
        mut attempt: impl FnMut(&VmaRead<'_>, FaultFlags) -> Fault,
    ) -> Outcome {
        loop {
            let Ok(vma) = self.retry.lock(self.space, self.addr) else {
                return Outcome::Error(FaultError::NotMapped);
            };
            self.flags.io_done = self.retry.has_read();
            match attempt(&vma, self.flags) {
                Fault::Mapped => return Outcome::Mapped,
                // The thread that changes it may be about to go on, and a signal may be for the thread
                // that keeps it from doing so.
                Fault::Again if interrupt.pending() => return Outcome::Interrupted,
                Fault::Again => {
                    self.retry.again(vma);
                    sync::thread::yield_now();
                }
                Fault::Error(error) => return Outcome::Error(error),
                Fault::Retry(wait) if self.retry.gives_up(&wait) => {
                    return Outcome::Error(FaultError::NoMemory);
                }
                Fault::Retry(wait) => {
                    self.flags.tried |= wait.is_io();
                    if let Err(outcome) = self.retry.wait(vma, wait, interrupt) {
                        return outcome;
                    }
                }
            }
        }
    }
}

/// One attempt, under the VMA lock.
fn once(vma: &VmaRead<'_>, addr: FaultAddress, flags: FaultFlags) -> Fault {
    attempt(vma, addr, flags, VmOps::refuse_write)
}

/// The same for a call, which makes no touch that the system could refuse.
fn once_for_call(vma: &VmaRead<'_>, addr: FaultAddress, flags: FaultFlags) -> Fault {
    attempt(vma, addr, flags, |_| false)
}

/// One attempt. `refuses`: a write that is not allowed is made again, and refused by the system.
#[inline]
fn attempt(
    vma: &VmaRead<'_>,
    addr: FaultAddress,
    flags: FaultFlags,
    refuses: impl FnOnce(&dyn VmOps) -> bool,
) -> Fault {
    vma.with(|attributes| {
        let allowed = attributes.protection.allows(flags.write);
        match attributes.backing.ops() {
            None => Fault::Error(FaultError::NotMapped),
            Some(ops) if !allowed || flags.write && !ops.is_writable() => {
                match flags.write && refuses(ops) {
                    true => Fault::Mapped,
                    false => Fault::Error(FaultError::Protection),
                }
            }
            Some(ops) => ops.fault(&VmFault {
                vma,
                attributes,
                addr,
                flags,
            }),
        }
    })
}

/// The error of a touch when the page tables refuse.
pub(super) fn mmu_error(error: MmuError) -> FaultError {
    match error {
        MmuError::NoMemory => FaultError::NoMemory,
        MmuError::Gone => FaultError::NotMapped,
        MmuError::Closed(errno) | MmuError::System(errno) => FaultError::Io(errno),
    }
}
