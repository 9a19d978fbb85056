//! How huge memory is mapped.

use super::map::HugeMap;
use super::memory::HugeMemory;
use crate::Fallback;
use std::io;

/// What of a [`HugeMemory`] to map, and how.
#[derive(Debug, Clone, Default)]
pub struct HugeMapOptions {
    pub(super) offset: u64,
    pub(super) len: Option<usize>,
    pub(super) read_only: bool,
    pub(super) no_reserve: bool,
    pub(super) trust_handlers: bool,
    pub(super) fallback: Fallback,
}

impl HugeMapOptions {
    /// All of it, for reading and writing, reserved.
    pub fn new() -> Self {
        Self::default()
    }

    /// Where to begin, a multiple of a huge page. Of offsets that are no multiple of 1 GiB the
    /// spans of page tables that can be shared are those of the file.
    pub fn offset(&mut self, offset: u64) -> &mut Self {
        self.offset = offset;
        self
    }

    /// How much, a multiple of a huge page. Without it: to the end.
    pub fn len(&mut self, len: usize) -> &mut Self {
        self.len = Some(len);
        self
    }

    /// Only for reading. Linux shares page tables between mappings for reading, and between those
    /// for writing, not across.
    pub fn read_only(&mut self, read_only: bool) -> &mut Self {
        self.read_only = read_only;
        self
    }

    /// Maps without reserving pages in the pool: it may be smaller than the map. A touch for which it has
    /// no page raises SIGBUS, and [`HugeMap::populate`] gets the error as a value. Pages that another
    /// map of the same memory has reserved are there for this one too.
    pub fn no_reserve(&mut self, no_reserve: bool) -> &mut Self {
        self.no_reserve = no_reserve;
        self
    }

    /// As [`Builder::trust_signal_handlers`](crate::Builder::trust_signal_handlers).
    pub fn trust_signal_handlers(&mut self, trust: bool) -> &mut Self {
        self.trust_handlers = trust;
        self
    }

    /// What to do where userfaultfd is closed. [`Fallback::Kernel`]: the kernel serves the map, and
    /// counts nothing.
    pub fn fallback(&mut self, fallback: Fallback) -> &mut Self {
        self.fallback = fallback;
        self
    }

    /// Maps `memory`.
    pub fn map(&self, memory: &HugeMemory) -> io::Result<HugeMap> {
        HugeMap::new(memory, self)
    }
}
