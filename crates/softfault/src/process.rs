//! What a process has one of: an address space of ours, its page tables, the
//! SIGBUS handler or the threads that serve faults instead.

use crate::HugeStats;
use crate::faults::{Faults, Pool};
use crate::fork::{self, Born};
use crate::signal;
use crate::uffd::UffdMmu;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use softfault_engine::fault::FaultError;
use softfault_engine::mm::{AddressSpace, Machine};
use softfault_engine::policy::VmaLockKind;
use softfault_engine::{Clock, Mmu};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The process's part of softfault. Made once and never dropped: a late fault
/// may look at it at any time.
pub struct Process {
    space: Arc<AddressSpace>,
    mmu: Arc<UffdMmu>,
    clock: Arc<Monotonic>,
    /// Who serves faults, with [`Faults::Threads`].
    threads: Option<Pool>,
    /// Touches that ended in a SIGBUS of our making.
    failed_touches: AtomicU64,
}

static PROCESS: AtomicPtr<Process> = AtomicPtr::new(core::ptr::null_mut());
static MAKING: Mutex<()> = Mutex::new(());
/// The process's part, if it was made.
pub fn get() -> Option<&'static Process> {
    // Acquire pairs with the Release in `set`.
    // SAFETY: null, or leaked by `make`.
    unsafe { PROCESS.load(Ordering::Acquire).as_ref() }
}

/// Lets this be the process's part, or nothing in a child that has not any.
pub fn set(process: Option<&'static Process>) {
    let process = process.map_or(core::ptr::null(), core::ptr::from_ref);
    // Release pairs with the Acquire in `get`.
    PROCESS.store(process.cast_mut(), Ordering::Release);
}

/// True in a child of a process that had an engine.
pub fn is_forked_child() -> bool {
    Born::is_child()
}

/// Nobody makes the process's part, or an engine's in a child, while this is held.
pub fn making() -> MutexGuard<'static, ()> {
    MAKING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why there is no process's part for an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoProcess {
    /// The kernel refuses userfaultfd, with this errno.
    Closed(i32),
    /// It was made for an engine with this other kind of VMA lock: the process
    /// has one address space, and that one kind.
    OtherLock(VmaLockKind),
    /// It was made for an engine whose faults arrive this other way.
    OtherFaults(Faults),
    /// No thread can be started to serve faults, with this errno.
    NoThread(i32),
}

/// Makes the process's part at the first call, with VMA locks of this kind and faults that
/// arrive this way.
pub fn get_or_make(kind: VmaLockKind, faults: Faults) -> Result<&'static Process, NoProcess> {
    // Before there is anything that a child must not have: who forks meanwhile waits.
    fork::watch();
    let _making = making();
    if let Some(process) = get() {
        let made = process.space.mmap_lock().kind();
        if made != kind {
            return Err(NoProcess::OtherLock(made));
        }
        let same = process.faults() == faults;
        let other = NoProcess::OtherFaults(process.faults());
        return same.then_some(process).ok_or(other);
    }
    let process = make(kind, faults)?;
    // Before there is a window to fault in.
    if faults == Faults::Signals {
        signal::install();
    }
    set(Some(process));
    Ok(process)
}

/// A part of a process's own, that nobody knows yet but the threads that serve its faults.
pub fn make(kind: VmaLockKind, faults: Faults) -> Result<&'static Process, NoProcess> {
    let mmu = Arc::new(UffdMmu::new(faults).map_err(NoProcess::Closed)?);
    let clock = Arc::new(Monotonic);
    let space = AddressSpace::with_lock(Machine::new(MAPPINGS), clock.clone(), kind);
    let space = space.map_err(|_| NoProcess::Closed(libc::ENOMEM))?;
    let process: &'static Process = Box::leak(Box::new(Process {
        space: Arc::new(space),
        mmu,
        clock,
        threads: (faults == Faults::Threads).then(Pool::new),
        failed_touches: AtomicU64::new(0),
    }));
    if let Some(threads) = &process.threads {
        let errno = |error: std::io::Error| error.raw_os_error().unwrap_or(libc::EAGAIN);
        (threads.start(process)).map_err(|error| NoProcess::NoThread(errno(error)))?;
    }
    Ok(process)
}

/// The clock of those who have no part in the process.
pub fn monotonic() -> Arc<dyn Clock> {
    Arc::new(Monotonic)
}

impl Process {
    /// The address space.
    pub fn space(&self) -> &Arc<AddressSpace> {
        &self.space
    }

    /// The page tables.
    pub fn mmu(&self) -> &Arc<UffdMmu> {
        &self.mmu
    }

    /// How faults arrive.
    pub fn faults(&self) -> Faults {
        match self.threads {
            None => Faults::Signals,
            Some(_) => Faults::Threads,
        }
    }

    /// The page tables, for a node.
    pub fn dyn_mmu(&self) -> Arc<dyn Mmu> {
        self.mmu.clone()
    }

    /// The clock.
    pub fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }

    /// Counts a touch that could not be served.
    pub fn note_error(&self, _addr: usize, _error: FaultError) {
        self.failed_touches.fetch_add(1, Ordering::Relaxed);
    }
}

/// Touches that could not be served and raised SIGBUS, in the whole process.
pub fn failed_touches() -> u64 {
    let of_maps = |process: &Process| process.failed_touches.load(Ordering::Relaxed);
    get().map_or(0, of_maps) + HugeStats::now().failed
}

/// Mappings that a process may have: Linux allows 65,530 by default.
const MAPPINGS: u32 = 1 << 20;

/// CLOCK_MONOTONIC, through the vdso.
struct Monotonic;

impl Clock for Monotonic {
    fn now_ns(&self) -> u64 {
        let mut now = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: fills the structure.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    }
}
