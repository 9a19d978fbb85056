//! The `sync` façade over loom: the **loom world**.
//!
//! The same items as in `softfault-sync-std`, for model checking one protocol
//! at a time. Atomics and cells are loom's. The waitable word is ours, because
//! loom has no futex; see [`wait`] for the orders that it has and has not.
//!
//! Loom cannot show everything: `SeqCst` accesses count as `AcqRel`, and a load never
//! takes its value from a store that is later in program order (load
//! buffering). The engine's protocols lean on neither. And loom 0.7.2 does not
//! reorder a change with another thread's load behind a load of the changer's
//! own: `softfault-loom` runs the models under one that does (`loom-0.7.2.patch`).

/// Atomics: loom's.
pub mod atomic {
    pub use loom::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering,
        fence,
    };
}

use core::cell::Cell;

/// Shared ownership. The standard one: its count is not a protocol of ours, and
/// loom's cannot hold a trait object.
pub use std::sync::Arc;

pub mod bytes;
#[path = "../../sync-shuttle/src/held.rs"]
pub mod held;
pub mod model;
pub mod pages;
#[path = "../../sync-shuttle/src/stage.rs"]
pub mod stage;
pub mod stat;
pub mod wait;
pub mod zeros;

/// A cell whose accesses loom checks.
pub mod cell {
    pub use loom::cell::{MutPtr, UnsafeCell};
}

/// Threads: loom's.
pub mod thread {
    pub use loom::thread::{JoinHandle, spawn, yield_now};
}

/// Hints to the processor.
pub mod hint {
    pub use loom::hint::spin_loop;

    /// A hint that means nothing here.
    pub fn prefetch(_addr: core::ptr::NonNull<u8>, _bytes: usize) {}

    /// Asks once, in models that say so. In all others it does not: they show what a sleep in its place does.
    pub fn spin_until(mut done: impl FnMut() -> bool) -> bool {
        crate::model::spins() && done()
    }
}

/// A plain constructor: loom's primitives are registered when they are made.
#[macro_export]
macro_rules! const_fn {
    ($(#[$meta:meta])* $vis:vis fn $($rest:tt)*) => {
        $(#[$meta])* $vis fn $($rest)*
    };
}

/// Processor time: there is none here.
#[inline(always)]
pub fn work(_ns: u64) {}

loom::thread_local! {
    static CPU: Cell<usize> = Cell::new(0);
}

/// Processors for which something is kept apart: few, since each is an atomic
/// or more to loom.
pub const PROCESSORS: usize = 2;

/// The processor that the caller runs on: the first one, unless [`run_on`] says
/// something else.
pub fn cpu() -> usize {
    CPU.with(Cell::get)
}

/// For models: from here on the calling thread runs on this processor.
pub fn run_on(cpu: usize) {
    CPU.with(|place| place.set(cpu));
}
