//! Which process made something: this one, or one that it was forked from; and values that each process
//! begins anew ([`PerProcess`]).

mod done;
mod per_process;

pub use done::Done;
pub(crate) use per_process::PerProcess;

use core::sync::atomic::{AtomicU32, Ordering};

/// Forks between the first process and this one. Relaxed: a child has one thread
/// when it changes.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// When something was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProcessGeneration(u32);

impl ProcessGeneration {
    /// In this process.
    pub(crate) fn here() -> Self {
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// True if it was made by a process that this one was forked from.
    pub(crate) fn is_parents(self) -> bool {
        self != Self::here()
    }

    /// This process is a child.
    pub(crate) fn another() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }

    /// True in a child of a process that watched.
    pub(crate) fn is_child() -> bool {
        Self::here() != Self(0)
    }
}

/// The process that made something, which alone may use it: a child may have its parent's number, in a namespace of its own,
/// and one that nobody told of its fork has its parent's generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner(ProcessGeneration, u32);

impl Owner {
    /// This process.
    pub(crate) fn here() -> Self {
        Self(ProcessGeneration::here(), std::process::id())
    }
}
