//! Options of a map of huge memory.

use super::map::HugeMap;
use super::memory::HugeMemory;
use crate::Fallback;
use std::io;

/// Options of a map of [`HugeMemory`].
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
    /// Options for a map of the whole memory, readable and writable, with a reservation.
    pub fn new() -> Self {
        Self::default()
    }

    /// Offset of the map, a multiple of the huge page size. If it is no multiple of 1 GiB, page tables are shared
    /// in spans that are aligned in the file.
    pub fn offset(&mut self, offset: u64) -> &mut Self {
        self.offset = offset;
        self
    }

    /// Length of the map, a multiple of the huge page size. Default: to the end of the memory.
    pub fn len(&mut self, len: usize) -> &mut Self {
        self.len = Some(len);
        self
    }

    /// Makes a read-only map. Linux shares page tables between read-only mappings, and between writable
    /// mappings, but not between a read-only and a writable one.
    ///
    /// If the memory's descriptor was opened for reading only, or is sealed against writes (`F_SEAL_FUTURE_WRITE`,
    /// `F_SEAL_WRITE`), only read-only maps can be made. Linux registers no such map with userfaultfd, so the kernel
    /// serves it ([`HugeMap::is_managed`]), and its counters stay 0.
    pub fn read_only(&mut self, read_only: bool) -> &mut Self {
        self.read_only = read_only;
        self
    }

    /// Maps without a reservation: the pool may be smaller than the map. If the pool is empty, a touch
    /// raises SIGBUS, and [`HugeMap::populate`] returns the error as a value. Pages that another
    /// map of the same memory has reserved are available to this map too.
    pub fn no_reserve(&mut self, no_reserve: bool) -> &mut Self {
        self.no_reserve = no_reserve;
        self
    }

    /// As [`Builder::trust_signal_handlers`](crate::Builder::trust_signal_handlers).
    pub fn trust_signal_handlers(&mut self, trust: bool) -> &mut Self {
        self.trust_handlers = trust;
        self
    }

    /// The behaviour where the process may not use userfaultfd. With [`Fallback::Kernel`] the kernel serves the map, and
    /// its counters stay 0.
    pub fn fallback(&mut self, fallback: Fallback) -> &mut Self {
        self.fallback = fallback;
        self
    }

    /// Maps `memory`.
    pub fn map(&self, memory: &HugeMemory) -> io::Result<HugeMap> {
        HugeMap::new(memory, self)
    }
}
