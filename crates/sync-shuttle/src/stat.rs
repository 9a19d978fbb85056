//! Counters for statistics: no scheduling points, for nobody decides by them.

pub use softfault_sync_std::stat::{Counter, Gauge};
