//! Threads.

pub use std::thread::{JoinHandle, spawn, yield_now};
