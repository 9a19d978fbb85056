//! The swap of an engine, and of its children.

use super::inherited::InheritedSwap;
use super::lifeline;
use super::{SwapFile, SwapSource};
use crate::error;
use crate::store::Rings;
use softfault_engine::budget::Budget;
use softfault_engine::cache::NodeError;
use softfault_engine::swap::{Swap, SwapDevice};
use std::io;
use std::sync::Arc;

/// An engine's device.
#[derive(Clone)]
pub(crate) enum SwapBackend {
    /// A file of ours.
    File(Arc<SwapFile>),
    /// The caller's.
    Device(Arc<dyn SwapDevice>),
    /// A child's: it, and the parent's as the child has it.
    InheritedSwap(Arc<InheritedSwap>, Box<SwapBackend>),
}

impl SwapBackend {
    /// The file that it writes to.
    pub(crate) fn file(&self) -> Option<&Arc<SwapFile>> {
        match self {
            Self::File(file) => Some(file),
            Self::Device(_) => None,
            Self::InheritedSwap(swap, _) => swap.own(),
        }
    }

    fn device(&self) -> Arc<dyn SwapDevice> {
        match self {
            Self::File(file) => file.clone(),
            Self::Device(device) => device.clone(),
            Self::InheritedSwap(swap, _) => swap.clone(),
        }
    }

    /// The slots that there are to give out, whose table `budget` pays for.
    pub(crate) fn slots(&self, budget: Arc<Budget>) -> io::Result<Arc<Swap>> {
        let first = match self {
            Self::InheritedSwap(swap, _) => swap.first_slot(),
            Self::File(_) | Self::Device(_) => 0,
        };
        crate::table::want_several();
        let swap = Swap::from_slot(self.device(), first, budget);
        let swap = swap.ok_or_else(|| error::budget(NodeError::NoMemory))?;
        Ok(Arc::new(swap.with_live_children(lifeline::live)))
    }

    /// The process is about to fork.
    pub(crate) fn before_fork(&self) {
        self.device().before_fork();
    }

    /// In a child: its swap, where this was the parent's. Its own file is made as
    /// the engine's was, if it can be.
    pub(crate) fn again(
        &self,
        source: &SwapSource,
        memory: usize,
        rings: Option<&Arc<Rings>>,
    ) -> Self {
        let inherited = self.to_read(rings);
        let own = match source {
            SwapSource::File(swap) => swap.open_in_child(memory, rings.cloned()).ok(),
            SwapSource::None | SwapSource::Device(_) => None,
        };
        let swap = InheritedSwap::new(inherited.device(), own.map(Arc::new));
        Self::InheritedSwap(Arc::new(swap), Box::new(inherited))
    }

    /// In a child: the same, to be read through the child's rings, if it can be.
    fn to_read(&self, rings: Option<&Arc<Rings>>) -> Self {
        match self {
            Self::File(file) => Self::File(in_child(file, rings)),
            Self::Device(device) => Self::Device(device.clone()),
            Self::InheritedSwap(swap, parents) => {
                let inherited = parents.to_read(rings);
                let own = swap.own().map(|own| in_child(own, rings));
                let swap = InheritedSwap::new(inherited.device(), own);
                Self::InheritedSwap(Arc::new(swap), Box::new(inherited))
            }
        }
    }
}

/// Without memory for buffers the parent's own does, whose rings do nothing.
fn in_child(file: &Arc<SwapFile>, rings: Option<&Arc<Rings>>) -> Arc<SwapFile> {
    match file.in_child(rings.cloned()) {
        Ok(file) => Arc::new(file),
        Err(_) => file.clone(),
    }
}
