//! Maps without userfaultfd: the same engine over page tables of its own.
//!
//! ```no_run
//! # fn main() -> std::io::Result<()> {
//! let engine = softfault::Engine::builder().memory(1 << 30).build_soft()?;
//! let map = engine.map(&std::fs::File::open("index.bin")?)?;
//! let mut header = [0; 4096];
//! map.read_at(&mut header, 0)?;
//! # Ok(())
//! # }
//! ```
//!
//! This is for containers that do not allow userfaultfd, and for programs in which no memory access may block for
//! a millisecond. Programs access the bytes by [`SoftMap::read_at`] and
//! [`SoftMapMut::write_at`]. The same code as for page faults serves these calls: VMAs and their locks, page
//! cache, read-ahead, reclaim, the budget. Only the page tables are soft: they are in memory, and this library
//! walks them, with a translation buffer for each thread. An error is always a
//! value, and no signal is involved.
//!
//! [`SoftHugeFile`] is memory of huge pages. All its maps share the pages and the page tables
//! ([`Builder::huge_pages`]).
//!
//! A [`fork`](SoftEngine::fork) is a snapshot of all anonymous memory of an
//! engine, taken at one moment, in this process.
//!
//! Signal handlers must not call these functions: they take locks.

mod anonymous;
mod cores;
mod fork;
mod huge;
mod map;
mod pinned;

pub use anonymous::SoftMapMut;
pub use fork::SoftFork;
pub use huge::{SoftHugeFile, SoftHugeMap};
pub use map::SoftMap;
pub use pinned::SoftPinned;

use crate::access_path::AccessPath;
use crate::engine::Builder;
use crate::files::Files;
use crate::generation::ProcessGeneration;
use crate::managed::Managed;
use crate::many::Many;
use crate::{FaultError, Stats, error, process};
use core::ops::Range;
use softfault_engine::cache::NodeError;
use softfault_engine::fault::{NeverInterrupted, Stop, Stopped, read_at, write_at};
use softfault_engine::huge::HugePool;
use softfault_engine::mm::{AddressSpace, VmaSlabs};
use softfault_engine::mmu::{Core, SoftMmu};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Mappings of an engine and its forks.
const MAPPINGS: u32 = 1 << 20;

/// An engine with soft page tables. It is cheap to clone, and lives as long as its
/// last clone, map or fork.
#[derive(Clone)]
pub struct SoftEngine {
    inner: Arc<SoftInner>,
}

struct SoftInner {
    /// Maps and idle windows. Dropped before `managed`.
    files: Files,
    managed: Managed,
    /// The tables that `managed` has as a trait.
    mmu: Arc<SoftMmu>,
    /// The pool of huge pages, if the engine has one.
    huge: Option<Arc<HugePool>>,
    /// Where VMAs come from, for forks.
    slabs: Arc<VmaSlabs>,
    options: Builder,
    spare: cores::SpareCore,
    /// Forks made so far. Locked while one is made, and while a map is made or changes its place.
    forks: Mutex<u64>,
}

impl Builder {
    /// Builds an engine over soft page tables. Settings for signals
    /// and userfaultfd have no effect. A soft engine has a budget of its
    /// own, so it fails with [`within`](Builder::within).
    pub fn build_soft(self) -> io::Result<SoftEngine> {
        crate::fork::watch();
        if ProcessGeneration::is_child() {
            return Err(FaultError::Forked.into());
        }
        if self.is_nested() {
            let message = "a soft engine cannot be within another engine's budget";
            return Err(error::invalid(message));
        }
        let no_memory = || error::budget(NodeError::NoMemory);
        let mmu = Arc::new(self.soft_page_tables()?);
        let huge = huge::pool(&mmu, self.huge_bytes(), self.policies_ref().huge)?;
        let spare = cores::SpareCore::new(&mmu).ok_or_else(no_memory)?;
        let slabs = VmaSlabs::new(MAPPINGS);
        let clock = process::monotonic();
        let locks = self.policies_ref().locks;
        let space = AddressSpace::with_lock(slabs.clone(), clock.clone(), locks);
        let space = Arc::new(space.map_err(|_| no_memory())?);
        let managed = self.over(mmu.clone(), space, clock)?;
        Ok(SoftEngine {
            inner: Arc::new(SoftInner {
                files: Files::default(),
                managed,
                mmu,
                huge,
                slabs,
                options: self,
                spare,
                forks: Mutex::new(0),
            }),
        })
    }
}

impl SoftEngine {
    /// Maps a whole file for reading.
    pub fn map(&self, file: &File) -> io::Result<SoftMap> {
        self.check()?;
        SoftMap::new(self, file.as_fd())
    }

    /// Maps `len` bytes of anonymous memory. Pages are zeros until they are written; a written page counts
    /// against the budget, and goes to swap if the engine has some.
    pub fn map_anon(&self, len: usize) -> io::Result<SoftMapMut> {
        self.check()?;
        SoftMapMut::new(self, len)
    }

    /// Maps a whole file privately: the map is writable, and the file does not change.
    pub fn map_copy(&self, file: &File) -> io::Result<SoftMapMut> {
        self.check()?;
        SoftMapMut::of_file(self, file.as_fd())
    }

    /// A snapshot of all maps as they are now: a later write on one side
    /// is not visible on the other. Pages are copied when they are
    /// written, but charged at once: `fork` fails if the budget has no room for
    /// a copy of every resident page of anonymous memory.
    pub fn fork(&self) -> io::Result<SoftFork> {
        self.check()?;
        SoftFork::new(self)
    }

    /// Changes the budget, and evicts down to it; the errors are those of [`Engine::set_memory`](crate::Engine::set_memory).
    pub fn set_memory(&self, bytes: usize) -> io::Result<()> {
        self.check()?;
        let node = &self.inner.managed.node;
        node.set_memory(bytes)
            .map_err(|why| error::budget_of(bytes, why))
    }

    /// Closes the files that have no map any more; see
    /// [`Engine::close_idle`](crate::Engine::close_idle). Files that a fork still shows stay open.
    pub fn close_idle(&self) {
        self.inner.files.close_idle();
    }

    /// The counters of the engine so far.
    pub fn stats(&self) -> Stats {
        match ProcessGeneration::is_child() {
            true => Stats::default(),
            false => Stats::of(&self.inner.managed, Some(&self.inner.files)),
        }
    }

    /// Forks so far. None is made, and no map is made or changes its place, while this lives.
    fn forks(&self) -> MutexGuard<'_, u64> {
        (self.inner.forks.lock()).unwrap_or_else(PoisonError::into_inner)
    }

    fn check(&self) -> Result<(), FaultError> {
        match ProcessGeneration::is_child() {
            true => Err(FaultError::Forked),
            false => Ok(()),
        }
    }

    /// Brings ranges of a map of `len` bytes at `start` into memory.
    fn fault_in_many(
        &self,
        (start, len): (usize, usize),
        ranges: &[Range<usize>],
        until: Option<Instant>,
    ) -> Vec<Result<(), FaultError>> {
        let space = &self.inner.managed.space;
        match self.check() {
            Ok(()) => Many::of_map(start, len, ranges).wait(space, AccessPath::ByCalls, until),
            Err(error) => vec![Err(error); ranges.len()],
        }
    }

    /// Copies bytes that `space` shows at `addr` out.
    fn read(&self, space: &AddressSpace, addr: usize, bytes: &mut [u8]) -> Result<(), FaultError> {
        self.access(|core| read_at(core, space, addr, bytes, &NeverInterrupted))
    }

    /// Copies bytes in where `space` shows them.
    fn write(&self, space: &AddressSpace, addr: usize, bytes: &[u8]) -> Result<(), FaultError> {
        self.access(|core| write_at(core, space, addr, bytes, &NeverInterrupted))
    }

    fn access(
        &self,
        access: impl FnOnce(&mut Core) -> Result<(), Stopped>,
    ) -> Result<(), FaultError> {
        self.check()?;
        match cores::with(&self.inner, access) {
            Ok(()) => Ok(()),
            Err(Stopped {
                why: Stop::Error(error),
                ..
            }) => Err(error.into()),
            Err(_) => unreachable!("nothing interrupts"),
        }
    }
}

impl Drop for SoftEngine {
    fn drop(&mut self) {
        if ProcessGeneration::is_child() {
            // The parent's: locks that its threads held at the fork are never
            // released in the child.
            core::mem::forget(self.inner.clone());
        }
    }
}

impl core::fmt::Debug for SoftEngine {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SoftEngine")
            .field("options", &self.inner.options)
            .finish_non_exhaustive()
    }
}
