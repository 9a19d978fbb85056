//! The `sync` façade over the real machine: the **std world**.
//!
//! The engine names nothing but this crate's items for everything that orders
//! memory, waits, starts threads or asks for memory. Other worlds (loom,
//! shuttle, a simulator) are crates with the same items; the engine's source
//! is compiled once for each of them, unchanged. There are no cfg flags.
//!
//! Everything here may be called from the fault handler: nothing allocates
//! from the heap, and nothing makes a thread-local.

/// Atomics: the core ones.
pub mod atomic {
    pub use core::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering,
        fence,
    };
}

/// Shared ownership.
pub use std::sync::Arc;

pub mod cell;
pub mod pages;
pub mod thread;
pub mod wait;

/// Hints to the processor.
pub mod hint {
    pub use core::hint::spin_loop;
}

/// Says that the caller spends `ns` nanoseconds of processor time here. The
/// simulator advances its virtual clock; the real machine has already paid.
#[inline(always)]
pub fn work(_ns: u64) {}

/// The processor that the caller runs on, for choosing a shard. Only a hint.
#[inline]
pub fn cpu() -> usize {
    // SAFETY: takes no arguments; reads the thread's rseq area or asks the vdso.
    let cpu = unsafe { libc::sched_getcpu() };
    cpu.max(0) as usize
}
