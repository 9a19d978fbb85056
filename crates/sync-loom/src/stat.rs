//! Counters for statistics. They are the standard library's atomics, so that
//! loom does not explore their interleavings: nobody decides by them.

pub use softfault_sync_std::stat::{Counter, Gauge};
