//! Time, as a trait: the simulator's is virtual.

/// A clock that never goes back.
pub trait Clock: Send + Sync {
    /// Nanoseconds since some fixed moment. Callable from the fault handler.
    fn now_ns(&self) -> u64;
}
