//! The `sync` façade over a simulated machine: the **sim world**.
//!
//! The same items as in `softfault-sync-std`. Inside [`machine::run`] the
//! engine's threads are fibers on virtual time: every operation here is placed
//! in time, costs as much as its cache line on the machine's
//! [`Topology`](topology::Topology), and is executed in the order of virtual
//! time. Outside, everything is the plain operation of the real machine, so
//! that a run can be set up and its rest dropped.
//!
//! Make simulated values inside the run, on the heap of
//! [`machine::Heap`]: there false sharing is seen, and places depend on the run
//! alone. A word in a static, on a stack or of another heap has a line of its
//! own; one on a stack may inherit the state of the word that was there before,
//! and which one that is depends on the build.
//!
//! It cannot show weak memory (operations are executed one after the
//! other), and accesses that are no operations of the façade: plain memory, and the
//! count of an [`Arc`]. A store that misses waits for its line, as if there
//! were no store buffer; loads wait for each other. A thread that takes a lock by swapping
//! in a loop and never sleeps is not seen to starve: each swap counts as
//! something done.

/// Atomics whose lines are simulated.
pub mod atomic;

/// Shared ownership. The standard one: the machine does not see its counts, and
/// its clones cost nothing here.
pub use std::sync::Arc;

pub mod bytes;
pub mod cell;
#[path = "../../sync-shuttle/src/held.rs"]
pub mod held;
pub mod hint;
pub mod machine;
pub mod pages;
#[path = "../../sync-shuttle/src/stage.rs"]
pub mod stage;
#[path = "../../sync-std/src/stat.rs"]
pub mod stat;
pub mod thread;
pub mod topology;
pub mod wait;
#[path = "../../sync-shuttle/src/zeros.rs"]
pub mod zeros;

/// Bytes of a page.
const PAGE: usize = 4096;

/// Makes a constructor `const` in the worlds whose primitives can be made at
/// compile time, and a plain function in the others (loom's cannot).
#[macro_export]
macro_rules! const_fn {
    ($(#[$meta:meta])* $vis:vis fn $($rest:tt)*) => {
        $(#[$meta])* $vis const fn $($rest)*
    };
}

/// Says that the caller spends `ns` nanoseconds of processor time here.
#[inline]
pub fn work(ns: u64) {
    machine::work_ps(ns.saturating_mul(1000));
}

/// Processors for which something is kept apart where all of them write.
pub const PROCESSORS: usize = 128;

/// The processor that the caller runs on, for choosing a shard. Only a hint.
/// Processors are numbered in the order in which they are filled.
#[inline]
pub fn cpu() -> usize {
    machine::current_cpu().unwrap_or_else(softfault_sync_std::cpu)
}
