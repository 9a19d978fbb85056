//! The one address space of ours in a process, and its page tables.
//!
//! The server of that space's faults is above ([`faults`](crate::faults)): it makes the
//! process's part, and finds it here.

use crate::uffd::{Faults, UffdMmu};
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use softfault_engine::mm::{AddressSpace, VmaSlabs};
use softfault_engine::policy::SpaceLocks;
use softfault_engine::{Clock, Mmu};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The process's part of softfault. Made once and, once it serves faults, never dropped: a late fault
/// may look at it at any time.
pub struct Process {
    space: Arc<AddressSpace>,
    mmu: Arc<UffdMmu>,
    clock: Arc<Monotonic>,
    /// Immutable. How they arrive.
    faults: Faults,
    /// Touches that ended in a SIGBUS of our making.
    failed_touches: AtomicU64,
}

static PROCESS: AtomicPtr<Process> = AtomicPtr::new(core::ptr::null_mut());
static MAKING: Mutex<()> = Mutex::new(());

/// The process's part, if it was made.
pub fn get() -> Option<&'static Process> {
    // Acquire pairs with the Release in `set`.
    // SAFETY: null, or never dropped.
    unsafe { PROCESS.load(Ordering::Acquire).as_ref() }
}

/// Lets this be the process's part, or nothing in a child that has not any.
pub fn set(process: Option<&'static Process>) {
    let process = process.map_or(core::ptr::null(), core::ptr::from_ref);
    // Release pairs with the Acquire in `get`.
    PROCESS.store(process.cast_mut(), Ordering::Release);
}

/// Nobody makes the process's part, or an engine's in a child, while this is held.
pub fn making() -> MutexGuard<'static, ()> {
    MAKING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The clock for engines outside of it.
pub fn monotonic() -> Arc<dyn Clock> {
    Arc::new(Monotonic)
}

impl Process {
    /// A part of a process's own, that nobody knows yet. The errno where the kernel refuses it.
    pub fn new(locks: SpaceLocks, faults: Faults) -> Result<Box<Self>, i32> {
        let mmu = Arc::new(UffdMmu::new(faults)?);
        let clock = Arc::new(Monotonic);
        let space = AddressSpace::with_lock(VmaSlabs::new(MAPPINGS), clock.clone(), locks);
        let space = space.map_err(|_| libc::ENOMEM)?;
        Ok(Box::new(Self {
            space: Arc::new(space),
            mmu,
            clock,
            faults,
            failed_touches: AtomicU64::new(0),
        }))
    }

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
        self.faults
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
    pub fn note_error(&self) {
        self.failed_touches.fetch_add(1, Ordering::Relaxed);
    }
}

/// Touches of its space that could not be served and raised SIGBUS.
pub fn failed_touches() -> u64 {
    get().map_or(0, |process| process.failed_touches.load(Ordering::Relaxed))
}

/// Mappings that a process may have: Linux allows 65,530 by default.
const MAPPINGS: u32 = 1 << 20;

/// CLOCK_MONOTONIC, through the vdso.
struct Monotonic;

impl Clock for Monotonic {
    fn now_ns(&self) -> u64 {
        sync::clock::now_ns()
    }
}
