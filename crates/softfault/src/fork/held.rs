//! The locks that are held while the process forks.

use super::AcrossFork;
use super::memory::LentMemory;
use super::registry::{self, Registry};
use crate::faults;
use crate::files::FileWindow;
use crate::managed::Managed;
use crate::process::{self, Process};
use crate::signal::{self, Masked};
use crate::swap::Lifeline;
use crate::thread::{self, HeldStarts};
use crate::uffd::WindowLists;
use core::mem::take;
use softfault_engine::mm::Frozen;
use softfault_engine::reclaim::Stopped;
use std::sync::{Arc, MutexGuard};

/// All that the forking thread holds. In which order it is let go, [`Drop`] says.
pub(super) struct ForkLocks {
    /// `None` if there is no swap that could be inherited.
    pub(super) lifeline: Option<Lifeline>,
    pub(super) space: Option<LockedSpace>,
    /// Of the nodes that private memory is on.
    stopped: Vec<Stopped<'static>>,
    /// `None` once it is let go, as below.
    registry: Option<MutexGuard<'static, Option<Registry>>>,
    making: Option<MutexGuard<'static, ()>>,
    /// Those that live.
    pub(super) engines: Vec<Arc<dyn AcrossFork>>,
    /// The windows of their maps of files, by address.
    pub(super) files: Vec<FileWindow>,
    /// Last: a thread that waits to be started may have locks, but none of these.
    starts: Option<HeldStarts<'static>>,
    masked: Option<Masked>,
}

/// The process's address space.
pub(super) struct LockedSpace {
    pub(super) process: &'static Process,
    pub(super) windows: WindowLists<'static>,
    /// `None` if there is no private memory.
    pub(super) frozen: Option<Frozen<'static>>,
}

impl ForkLocks {
    /// Locks the memory that the child inherits, and the lists of it. Where nothing is
    /// private, faults and verbs of maps that exist meet none of it.
    ///
    /// An eviction may run for a fault that keeps a lock of the
    /// space (a policy); no eviction waits for such a lock. So the space comes
    /// first.
    pub(super) fn take() -> Self {
        faults::reinstall_handler();
        thread::wait_for_starts();
        let masked = signal::masked();
        let making = process::making();
        let registry = registry::lock();
        let known = registry.iter().flat_map(|known| known.engines.values());
        let engines: Vec<_> = known.filter_map(|engine| engine.upgrade()).collect();
        let files = engines.iter().flat_map(|engine| engine.file_windows());
        let mut files: Vec<_> = files.collect();
        files.sort_unstable_by_key(|file| file.addresses().start);
        let process = process::get();
        let memory = || registry.iter().flat_map(Registry::memory);
        let windows = || memory().map(|memory| memory.get().addresses());
        let is_private = memory().next().is_some();
        let private_files = memory().filter_map(|memory| memory.get().private_file());
        private_files.for_each(|private_file| private_file.store.before_fork());
        let devices = (engines.iter()).filter_map(|engine| engine.managed()?.swap.as_ref());
        devices.for_each(|swap| swap.before_fork());
        let frozen = process.filter(|_| is_private);
        let frozen = frozen.map(|process| process.space().freeze(windows()));
        let has_memory = |managed: &&Managed| {
            memory().any(|memory| Arc::ptr_eq(memory.get().node(), &managed.node))
        };
        let nodes = || {
            let all = engines.iter().filter_map(|engine| engine.managed());
            all.filter(has_memory)
        };
        let stopped = nodes().map(|managed| {
            let stopped = managed.node.stop_eviction();
            // SAFETY: the node lives as long as the engine, which `drop` lets go after this;
            // in a child both are kept for ever.
            unsafe { core::mem::transmute::<Stopped<'_>, Stopped<'static>>(stopped) }
        });
        let stopped = stopped.collect();
        let swaps = || nodes().filter_map(|managed| managed.node.swap.as_ref());
        let lifeline = swaps().next().map(|_| Lifeline::new());
        swaps().for_each(|swap| swap.inherit());
        let space = process.map(|process| LockedSpace {
            windows: process.mmu().fork_prepare(),
            process,
            frozen,
        });
        let mut held = Self {
            lifeline,
            space,
            stopped,
            registry: Some(registry),
            making: Some(making),
            engines,
            files,
            starts: None,
            masked: Some(masked),
        };
        held.allow_inherit(true);
        held.starts = Some(thread::hold_starts());
        held
    }

    /// The private memory of the process's maps.
    pub(super) fn memory(&self) -> impl Iterator<Item = &Arc<LentMemory>> {
        let known = self.registry.iter().flat_map(|registry| registry.iter());
        known.flat_map(Registry::memory)
    }

    /// Lets a child inherit the windows of private memory, or none.
    fn allow_inherit(&self, allowed: bool) {
        let Some(space) = &self.space else { return };
        for memory in self.memory() {
            let window = memory.get().addresses();
            let served = space.windows.given.served(&window);
            (served.iter()).for_each(|part| space.process.mmu().allow_inherit(part, allowed));
        }
    }

    /// In the parent: everything goes on.
    pub(super) fn let_go(mut self) {
        self.allow_inherit(false);
        (self.files.drain(..)).for_each(|file| file.after_fork());
        if let Some(lifeline) = self.lifeline.take() {
            lifeline.cut();
        }
    }

    /// In the child: leaves the parent's locks locked for ever, and unlocks its own.
    pub(super) fn end_in_child(mut self) {
        let (stopped, engines) = (take(&mut self.stopped), take(&mut self.engines));
        let files = take(&mut self.files);
        core::mem::forget((self.space.take(), stopped, engines, files));
    }
}

impl Drop for ForkLocks {
    /// First the locks that faults and verbs wait for, then the lists. An engine that has lost its last user
    /// meanwhile goes when nothing is locked any more, and before signals may come again.
    fn drop(&mut self) {
        drop(self.starts.take());
        if let Some(LockedSpace {
            windows, frozen, ..
        }) = self.space.take()
        {
            drop(windows);
            drop(frozen);
        }
        drop(take(&mut self.stopped));
        drop(self.registry.take());
        drop(self.making.take());
        drop(take(&mut self.files));
        drop(take(&mut self.engines));
        drop(self.masked.take());
    }
}
