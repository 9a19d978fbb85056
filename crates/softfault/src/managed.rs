//! The part of an engine that its maps need.

use crate::exit_stats;
use crate::store::{ReadPolicy, RingsOnDemand};
use crate::swap::SwapBackend;
use core::ops::Range;
use softfault_engine::cache::Node;
use softfault_engine::mm::AddressSpace;
use std::sync::Arc;

/// The part of an engine that its maps need. An engine over userfaultfd has one in each process
/// (`engine/current.rs`).
pub(crate) struct Managed {
    /// Its budget pays.
    pub(crate) node: Arc<Node>,
    /// Where faults look mappings up: the process's, which all its engines
    /// share.
    pub(crate) space: Arc<AddressSpace>,
    /// For asynchronous reads.
    pub(crate) rings: Arc<RingsOnDemand>,
    /// Whether files are read through the kernel's page cache.
    pub(crate) reads: Arc<ReadPolicy>,
    /// The swap of `node`.
    pub(crate) swap: Option<SwapBackend>,
}

impl Managed {
    /// Takes a window out of the space: all that is mapped of it.
    pub(crate) fn unmap_window(&self, window: Range<usize>) {
        let unmapped = self.space.munmap(window, |_, _| {});
        assert!(unmapped.is_ok(), "unmapping a whole window needs no node");
    }
}

impl Drop for Managed {
    fn drop(&mut self) {
        exit_stats::gone(&self.node);
        self.node.delist();
    }
}
