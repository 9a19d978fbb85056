//! An engine: a budget, and the maps under it.
//!
//! | file | has |
//! |---|---|
//! | `builder` | the settings, and building an engine from them |
//! | `inner` | the engine that its maps share |
//! | `current` | the state that maps need; each process has its own |
//! | `small_maps` | how many bytes of small files the kernel may serve |
//! | `workers` | threads that wait for futures |
//!
//! The methods of [`Engine`] that make maps, and its counters, are in the modules above this one.

mod builder;
mod current;
mod inner;
mod small_maps;
mod workers;

pub use builder::{AsyncReads, Builder, Fallback};
pub(crate) use inner::EngineInner;
pub(crate) use workers::{Answer, AnswerDue};

use crate::access_path::AccessPath;
use crate::error::{self, FaultError};
use crate::generation::PerProcess;
use crate::{environment, faults, fork, signal};
use core::ops::Range;
use softfault_engine::PAGE_SIZE;
use softfault_engine::cache::{Node, NodeError};
use softfault_engine::fault;
use std::fs::File;
use std::io;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::{Arc, Mutex, OnceLock};

/// Maps under one memory budget. Cheap to clone; the engine lives as long as
/// its last clone or map.
#[derive(Clone)]
pub struct Engine {
    pub(crate) inner: Arc<EngineInner>,
}

impl Engine {
    /// Settings to start from.
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// The engine behind [`Mmap::map`](crate::Mmap::map) and [`MmapOptions::map`](crate::MmapOptions::map). The first
    /// use makes it. `SOFTFAULT_MEMORY` sets its budget (bytes, or a number
    /// followed by K, M, G or T); without the variable it has the default budget. `SOFTFAULT_SWAP` names the
    /// directory of its swap, optionally followed by a colon and a size. An invalid
    /// value is an error, and is reported once on
    /// the standard error. A child of fork has a default engine of its own.
    pub fn process_default() -> io::Result<&'static Engine> {
        #[derive(Default)]
        struct Made {
            engine: OnceLock<Engine>,
            /// Locked while it is made: by one thread.
            making: Mutex<()>,
        }
        static DEFAULT: PerProcess<Made> = PerProcess::new();
        // Before anything is locked: a child of a fork that was not watched would find it locked for ever.
        fork::watch();
        let made = DEFAULT.get();
        let making = made.engine.get().is_none().then(|| made.making.lock());
        if let Some(engine) = made.engine.get() {
            return Ok(engine);
        }
        let mut builder = Self::builder();
        if let Some(bytes) = environment::memory()? {
            builder = builder.memory(bytes);
        }
        if let Some(swap) = environment::swap()? {
            builder = builder.swap(swap);
        }
        let engine = builder.build().map_err(environment::report)?;
        let engine = made.engine.get_or_init(|| engine);
        drop(making);
        Ok(engine)
    }

    /// Changes the budget, and evicts down to it. After an error the budget is as it was. Errors: the budget is below
    /// [`MIN_MEMORY`](crate::MIN_MEMORY) (8 MiB) or above [`Builder::max_memory`]; maps, pins, or private memory
    /// that cannot go to swap hold more than it; or the engine around this one cannot spare the memory. Does
    /// nothing if the kernel serves the maps ([`Fallback::Kernel`]).
    pub fn set_memory(&self, bytes: usize) -> io::Result<()> {
        self.change_memory(bytes, Node::set_memory)
    }

    /// The same, or where pinned pages and private memory do not let the budget be so low, as low as they do.
    #[doc(hidden)]
    pub fn approach_memory(&self, bytes: usize) -> io::Result<()> {
        self.change_memory(bytes, Node::approach_memory)
    }

    fn change_memory(
        &self,
        bytes: usize,
        change: impl FnOnce(&Node, usize) -> Result<(), NodeError>,
    ) -> io::Result<()> {
        faults::reinstall_handler();
        let _masked = signal::masked();
        let Some(managed) = self.inner.managed_here()? else {
            return Ok(());
        };
        self.inner.files.end_scans(managed, bytes);
        let set = managed
            .reads
            .set_by_program(|| change(&managed.node, bytes));
        set.map_err(|no| match no {
            NodeError::BudgetTooLarge => {
                let least = managed.node.budget.limit() as usize * PAGE_SIZE;
                error::above_most(bytes, self.inner.options.most(least))
            }
            no => error::budget_of(bytes, no),
        })
    }

    /// Truncates `file` (or makes it longer), and removes the pages past the new end from
    /// every map of it in this engine.
    pub fn truncate(&self, file: &File, bytes: u64) -> io::Result<()> {
        if self.inner.is_parents() {
            return Err(FaultError::Forked.into());
        }
        let _masked = signal::masked();
        self.inner.files.truncate(file, bytes)
    }

    /// Brings the pages of some addresses of maps in, as reads of each would, or writes: for `softfault run`, which waits with no map in
    /// its hands, so that others can change them. Where there is none any more the range is out of the map.
    #[doc(hidden)]
    pub fn populate(&self, addresses: Range<usize>, write: bool) -> Result<(), FaultError> {
        faults::reinstall_handler();
        let managed = self.inner.managed().ok_or(FaultError::OutOfRange)?;
        AccessPath::ByLoads.each_attempt(addresses, |rest, interrupt| {
            fault::populate(&managed.space, rest, write, interrupt)
        })
    }

    /// Closes the files that have no map any more, and drops their pages.
    ///
    /// The window of a file stays for a while after its last map is dropped: the next map of the
    /// unchanged file finds its pages. Meanwhile the file is open: its file system
    /// cannot be unmounted, and the space of a removed file is not freed. The engine closes a file that
    /// has lost its last name with its last map, or within two seconds, and any
    /// other file after 30 seconds. This call closes all of them now. It waits for reads and flushes that are under way in
    /// them, for at most 10 seconds: a device may hang.
    pub fn close_idle(&self) {
        let _masked = signal::masked();
        self.inner.files.close_idle();
    }
}

// As for `Mmap`: no lock is held over user code.
impl UnwindSafe for Engine {}
impl RefUnwindSafe for Engine {}

impl Drop for Engine {
    fn drop(&mut self) {
        if self.inner.is_parents() {
            // The parent's: locks that its threads held at the fork are never
            // released in the child, and nothing is the child's to give back.
            core::mem::forget(self.inner.clone());
        }
    }
}

impl core::fmt::Debug for Engine {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Engine")
            .field("options", &self.inner.options)
            .finish_non_exhaustive()
    }
}
