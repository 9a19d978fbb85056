//! An engine as its maps have it.

use super::builder::Builder;
use super::current::ManagedPerProcess;
use super::small_maps::SmallMaps;
use super::workers::Workers;
use crate::faults;
use crate::files::Files;
use crate::fork;
use crate::generation::{PerProcess, ProcessGeneration};
use crate::managed::Managed;
use crate::signal::{self, Masked};
use crate::uffd::Faults;
use std::io;
use std::sync::Arc;

pub(crate) struct EngineInner {
    /// Maps and idle windows. Dropped before `node`.
    pub(crate) files: Files,
    /// `None` where userfaultfd is closed and [`Fallback::Kernel`](super::Fallback::Kernel) was asked.
    pub(super) managed: ManagedPerProcess,
    pub(crate) options: Builder,
    /// Files that are mapped by the kernel's own maps, since they are small.
    pub(crate) small_maps: SmallMaps,
    /// Immutable.
    generation: ProcessGeneration,
    /// Threads for ranges that are faulted in.
    pub(crate) readers: PerProcess<Workers>,
    /// Threads for ranges that the kernel brings in. Nothing ends its reads: no other map waits behind a file system that hangs.
    pub(crate) kernel_readers: PerProcess<Workers>,
    /// Threads for flushes: no fault waits behind a device that does not write.
    pub(crate) flushers: PerProcess<Workers>,
    /// Set when all this is dropped, and so dropped itself last: locks are
    /// taken that a fault of another engine in a signal handler may need.
    masked: Option<Masked>,
}

impl Drop for EngineInner {
    fn drop(&mut self) {
        self.masked = Some(signal::masked());
        fork::forget_engine(self);
    }
}

impl EngineInner {
    /// An engine of this process. A fork knows of it from now on.
    pub(super) fn new(managed: Option<Managed>, options: Builder) -> Arc<Self> {
        let inner = Arc::new(Self {
            files: Files::default(),
            managed: ManagedPerProcess::new(managed),
            small_maps: SmallMaps::new(options.most_small()),
            options,
            generation: ProcessGeneration::here(),
            readers: PerProcess::default(),
            kernel_readers: PerProcess::default(),
            flushers: PerProcess::default(),
            masked: None,
        });
        fork::know_engine(&inner);
        inner
    }

    /// A fault in this thread must reach our handler, if it is to.
    pub(crate) fn check_signals(&self, masked: &Masked) -> io::Result<()> {
        match self.options.resolved_faults() {
            Faults::Threads | Faults::Messages => Ok(()),
            Faults::Signals => faults::check_handlers(self.options.trust_handlers, masked),
        }
    }

    /// True if a parent of this process built it: maps of files are the parent's.
    pub(crate) fn is_parents(&self) -> bool {
        self.generation.is_parents()
    }
}
