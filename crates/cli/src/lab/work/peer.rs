//! Threads or processes that do the same beside each other.

use super::gang::Member;
use std::sync::atomic::AtomicU64;

/// One of several that work side by side.
pub trait Peer {
    /// Its counters, and whether the time is over.
    fn member(&self) -> &Member<'_>;

    /// Waits for all others; the last to come does `last` while they wait, and its result is returned to all. False
    /// too if one will not come.
    fn meet(&self, last: &mut dyn FnMut() -> Result<bool, String>) -> Result<bool, String>;

    /// When that began which all do together: one word for all, written by the last to come to a meeting, which
    /// publishes it.
    fn began(&self) -> &AtomicU64;
}
