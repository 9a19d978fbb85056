//! How much of small files the kernel may serve.
//!
//! Mapping, touching and dropping a file of some KiB costs several times as much by a window as by
//! mmap(2): so small files are the kernel's own maps, as long as those are at most an eighth of
//! the budget at a time.

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// One of so many bytes of the budget may be in small maps at a time.
const SHARE: usize = 8;

/// The small maps of an engine.
pub(crate) struct SmallMaps {
    /// Immutable. Bytes of the largest; 0: there are none.
    most: usize,
    /// Bytes of those that live. Relaxed: a limit that is passed by a map is passed by little.
    bytes: AtomicUsize,
}

impl SmallMaps {
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            bytes: AtomicUsize::new(0),
        }
    }

    /// Bytes of the largest file that is small.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Bytes of all that live.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// Counts a map in, if so many bytes more may be, of an engine with this budget.
    pub(crate) fn take(&self, len: usize, budget: usize) -> bool {
        let fits = |now: usize| (now + len <= budget / SHARE).then_some(now + len);
        self.bytes.fetch_update(Relaxed, Relaxed, fits).is_ok()
    }

    /// Counts a map out.
    pub(crate) fn give(&self, len: usize) {
        self.resize(len, 0);
    }

    /// A map has another length, which the program said.
    pub(crate) fn resize(&self, from: usize, to: usize) {
        let resized = |now: usize| Some((now + to).saturating_sub(from));
        let _ = self.bytes.fetch_update(Relaxed, Relaxed, resized);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_eighth_of_the_budget() {
        let small = SmallMaps::new(1 << 20);
        assert!(small.take(1 << 20, 16 << 20));
        assert!(small.take(1 << 20, 16 << 20));
        assert!(!small.take(1, 16 << 20));
        small.give(1 << 20);
        assert!(small.take(4096, 16 << 20));
        assert_eq!(small.bytes(), (1 << 20) + 4096);
        small.resize(4096, 8192);
        assert_eq!(small.bytes(), (1 << 20) + 8192);
    }
}
