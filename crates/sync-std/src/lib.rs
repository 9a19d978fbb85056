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

pub mod bytes;
pub mod cell;
pub mod clock;
pub mod errno;
pub mod held;
pub mod kernel_calls;
pub mod pages;
pub mod stage;
pub mod stat;
pub mod system_call;
pub mod thread;
pub mod wait;
pub mod zeros;

/// Hints to the processor.
pub mod hint {
    pub use core::hint::spin_loop;

    /// Tells the processor that `bytes` from `addr` on will be written soon: it
    /// may fetch them meanwhile. Changes nothing, whatever is there.
    #[inline]
    pub fn prefetch(addr: core::ptr::NonNull<u8>, bytes: usize) {
        const LINE: usize = 64;
        for line in (0..bytes).step_by(LINE) {
            let line = addr.as_ptr().wrapping_add(line);
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a hint; it faults nowhere.
            unsafe {
                core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_ET0 }>(
                    line.cast(),
                );
            }
            #[cfg(not(target_arch = "x86_64"))]
            let _ = line;
        }
    }

    /// Asks `done` a few times, for about as long as a short critical section
    /// on another processor lasts; true as soon as it is. For use before a
    /// sleep. Worlds where spinning cannot help do not ask at all.
    #[inline]
    pub fn spin_until(mut done: impl FnMut() -> bool) -> bool {
        for _ in 0..64 {
            if done() {
                return true;
            }
            spin_loop();
        }
        false
    }
}

/// Makes a constructor `const` in the worlds whose primitives can be made at
/// compile time, and a plain function in the others (loom's cannot).
#[macro_export]
macro_rules! const_fn {
    ($(#[$meta:meta])* $vis:vis fn $($rest:tt)*) => {
        $(#[$meta])* $vis const fn $($rest)*
    };
}

/// Says that the caller spends `ns` nanoseconds of processor time here. The
/// simulator advances its virtual clock; the real machine has already paid.
#[inline(always)]
pub fn work(_ns: u64) {}

/// Processors for which something is kept apart where all of them write.
pub const PROCESSORS: usize = 128;

/// The processor that the caller runs on, for choosing a shard. Only a hint.
#[inline]
pub fn cpu() -> usize {
    // SAFETY: takes no arguments; reads the thread's rseq area or asks the vdso.
    let cpu = unsafe { libc::sched_getcpu() };
    cpu.max(0) as usize
}
