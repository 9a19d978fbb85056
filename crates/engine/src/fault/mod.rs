//! A fault's way.
//!
//! ```text
//!   handle ── lock_vma ─ contended ─► mmap_lock.read ─ find ─► vma reference
//!      │  VmOps::fault, of what the VMA shows (`mm::backing`)
//!      ├─ anon::fault ── absent: a page of zeros ─────────────► Mapped
//!      ├─ huge::fault ── a leaf table, perhaps shared; a page ► Mapped
//!      └─ file::fault ── in the index? ── mapped ─────────────► Mapped
//!            │              ├─ uptodate ──► map::folio ───────► Mapped
//!            │              └─ locked ────────────────────────► Retry(Folio)
//!            └─ miss ── hole ─────────────► hole::map ────────► Mapped
//!                   └── data ── miss::demand, ahead::issue ───► Retry(Read)
//! ```
//!
//! Whoever finds another at work on the page, or that it has become something else since it
//! was looked up, says [`Fault::Again`], and `serve` makes another attempt.
//!
//! Needing I/O, or memory, is a value: [`Wait`]. The loop in `serve` drops the
//! VMA lock, waits, and comes back under the VMA lock with
//! [`FaultFlags::tried`] set (document 002); it never falls back to
//! `mmap_lock` because of I/O. It keeps the folio that it waited for until the
//! next attempt has looked. What the policies that are not the default keep or
//! drop instead is in `retry`.

use crate::mm::backing::VmFault;
use crate::mm::{AddressSpace, Protection, VmaRead};
use crate::store::StoreError;
use retry::Retry;

mod access;
mod ahead;
pub(crate) mod anon;
mod around;
pub(crate) mod file;
mod filemap;
mod hole;
mod map;
mod miss;
mod pin;
mod populate;
mod prefetch;
mod private;
mod read;
mod read_around;
mod retry;
mod vanished;
mod wait;

pub use access::{Stop, Stopped, read_at, touch, write_at};
pub use pin::{Pin, pin, unpin};
pub use populate::{Populated, lock, populate, unlock};
pub use prefetch::prefetch;
pub use read::Completion;
pub(crate) use vanished::Believed;
pub(crate) use wait::unlocked;
pub use wait::{Interrupt, NeverInterrupted, Wait, Waited};

/// How a fault came about, and how far it got.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FaultFlags {
    /// The touch was a write.
    pub write: bool,
    /// The fault has waited for I/O: what it finds now is its own work, no hit.
    pub tried: bool,
    /// The last wait was for a read, which did its work: the folio should be
    /// there.
    pub read: bool,
}

/// Where a fault stands.
pub enum Fault {
    /// The page is there: touch it again.
    Mapped,
    /// What the attempt saw has changed under its hands: make another.
    Again,
    /// Wait for this, then come back.
    Retry(Wait),
    /// The touch cannot be served.
    Error(FaultError),
}

/// Why a touch cannot be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultError {
    /// No mapping of ours at the address.
    NotMapped,
    /// The mapping does not allow this kind of access.
    Protection,
    /// Past the end of the file.
    BeyondEnd,
    /// The read failed: the store's errno.
    Io(i32),
    /// The read brought fewer bytes than were written there.
    Short,
    /// The budget or the machine cannot hold the page.
    NoMemory,
}

impl From<StoreError> for FaultError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Io(errno) => Self::Io(errno),
            StoreError::Short => Self::Short,
        }
    }
}

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
    serve(space, addr, flags, interrupt, |vma, flags| {
        once(vma, addr, flags)
    })
}

/// Makes attempts, each under the lock of the VMA at `addr`, until one is the
/// last; waits in between for what they ask, with no lock.
pub(crate) fn serve(
    space: &AddressSpace,
    addr: usize,
    mut flags: FaultFlags,
    interrupt: &dyn Interrupt,
    mut attempt: impl FnMut(&VmaRead<'_>, FaultFlags) -> Fault,
) -> Outcome {
    let mut retry = Retry::default();
    loop {
        let Ok(vma) = retry.lock(space, addr) else {
            return Outcome::Error(FaultError::NotMapped);
        };
        flags.read = retry.has_read();
        match attempt(&vma, flags) {
            Fault::Mapped => return Outcome::Mapped,
            // Whoever changes it may be about to go on, and a signal may be for the thread
            // that keeps it from doing so.
            Fault::Again if interrupt.pending() => return Outcome::Interrupted,
            Fault::Again => {
                retry.again(vma);
                sync::thread::yield_now();
            }
            Fault::Error(error) => return Outcome::Error(error),
            Fault::Retry(wait) if retry.gives_up(&wait) => {
                return Outcome::Error(FaultError::NoMemory);
            }
            Fault::Retry(wait) => {
                flags.tried |= wait.is_io();
                if !retry.wait(vma, wait, interrupt) {
                    return Outcome::Interrupted;
                }
            }
        }
    }
}

/// One attempt, under the VMA lock.
fn once(vma: &VmaRead<'_>, addr: usize, flags: FaultFlags) -> Fault {
    vma.with(|attributes| {
        let allowed = match attributes.protection {
            Protection::None => false,
            Protection::Read => !flags.write,
            Protection::ReadWrite => true,
        };
        match attributes.backing.ops() {
            None => Fault::Error(FaultError::NotMapped),
            Some(ops) if !allowed || flags.write && !ops.is_writable() => {
                Fault::Error(FaultError::Protection)
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
