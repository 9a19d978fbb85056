//! The documents' workloads on simulated machines of N cores.
//!
//! A machine is a [`Topology`]: a [preset] with its sources, a file, or what
//! [`calibrate`](calibrate::calibrate) measured here; [`vary`](vary::vary) makes
//! others like it.

pub mod calibrate;
pub mod preset;
pub mod vary;

pub use sync::topology::{self, Topology};
