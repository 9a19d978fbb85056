//! The `sync` façade over shuttle: the **shuttle world**.
//!
//! The same items as in `softfault-sync-std`, for schedules of whole scenarios:
//! one thread runs at a time, and every access to shared memory is a point where
//! another may be chosen instead. [`explore`] runs a scenario under many
//! schedules, each of which is one seed.
//!
//! | item | here |
//! |---|---|
//! | atomics | plain words, one scheduling point an access ([`atomic`]) |
//! | `UnsafeCell` | panics where accesses overlap ([`cell`]) |
//! | `WaitWord` | a futex: checked and asleep in one step, woken by address ([`wait`]) |
//! | timeouts | end when nobody else can run, or where the seed says so |
//! | bytes | whose page is nobody else's is checked ([`bytes`]) |
//! | `cpu()` | one, two, or as many as threads: drawn |
//!
//! It cannot show weak memory. All accesses are in one order that all
//! threads agree on; orderings are loom's business.

/// Shared ownership. The standard one: its count is not a protocol of ours.
pub use std::sync::Arc;

pub mod atomic;
pub mod bytes;
pub mod cell;
pub mod explore;
pub mod held;
pub mod pages;
mod point;
mod report;
mod schedule;
pub mod stage;
pub mod stat;
pub mod thread;
pub mod wait;
pub mod zeros;

/// Hints to the processor.
pub mod hint {
    /// Lets others run: whoever spins waits for them.
    pub fn spin_loop() {
        crate::thread::yield_now();
    }

    /// A hint that means nothing here.
    pub fn prefetch(_addr: core::ptr::NonNull<u8>, _bytes: usize) {}

    /// Does not ask: a sleep in its place shows the same and more.
    pub fn spin_until(_done: impl FnMut() -> bool) -> bool {
        false
    }
}

/// Makes a constructor `const`, as in the std world.
#[macro_export]
macro_rules! const_fn {
    ($(#[$meta:meta])* $vis:vis fn $($rest:tt)*) => {
        $(#[$meta])* $vis const fn $($rest)*
    };
}

/// Processor time: there is none here.
#[inline(always)]
pub fn work(_ns: u64) {}

/// Processors for which something is kept apart where all of them write: a few,
/// since whoever collects it looks at each.
pub const PROCESSORS: usize = 4;

/// The processor that the caller runs on: as many as the seed says, one, two, or
/// one for each thread. Where there is one, all threads share the state that is kept by
/// processor.
pub fn cpu() -> usize {
    point::current() % point::cpus()
}
