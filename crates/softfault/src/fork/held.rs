//! What is locked while the process forks.

use super::heirs::Lifeline;
use super::registry::{self, Registry};
use crate::engine::Inner;
use crate::process::{self, Process};
use crate::signal::{self, Masked};
use crate::uffd::Lists;
use softfault_engine::mm::Frozen;
use softfault_engine::reclaim::Stopped;
use std::sync::{Arc, MutexGuard};

/// All that the forking thread holds, in the order in which it is let go: an engine
/// that has lost its last user meanwhile goes when nothing is locked any more.
pub(super) struct Held {
    /// `None` if there is no swap that could be inherited.
    pub(super) lifeline: Option<Lifeline>,
    pub(super) space: Option<Space>,
    stopped: Vec<Stopped<'static>>,
    pub(super) registry: MutexGuard<'static, Option<Registry>>,
    making: MutexGuard<'static, ()>,
    /// Those that live.
    pub(super) engines: Vec<Arc<Inner>>,
    masked: Masked,
}

/// The process's address space.
pub(super) struct Space {
    pub(super) process: &'static Process,
    pub(super) windows: Lists<'static>,
    pub(super) frozen: Frozen<'static>,
}

impl Held {
    /// Locks all of it.
    ///
    /// Whoever evicts may have been sent for memory by a fault that keeps a lock of the
    /// space (a policy); nobody who evicts waits for such a lock. So the space comes
    /// first.
    pub(super) fn take() -> Self {
        let masked = signal::masked();
        let making = process::making();
        let registry = registry::lock();
        let known = registry.iter().flat_map(|known| known.engines.values());
        let engines: Vec<_> = known.filter_map(|engine| engine.upgrade()).collect();
        let process = process::get();
        let frozen = process.map(|process| process.space().freeze());
        let nodes = || engines.iter().filter_map(|engine| engine.managed());
        let stopped = nodes().map(|managed| {
            let stopped = managed.node.stop_eviction();
            // SAFETY: the node is as old as the engine, which is held longer.
            unsafe { core::mem::transmute::<Stopped<'_>, Stopped<'static>>(stopped) }
        });
        let stopped = stopped.collect();
        let swaps = || nodes().filter_map(|managed| managed.node.swap.as_ref());
        let lifeline = swaps().next().map(|_| Lifeline::new());
        swaps().for_each(|swap| swap.inherit());
        let space = process.zip(frozen).map(|(process, frozen)| Space {
            windows: process.mmu().fork_prepare(),
            process,
            frozen,
        });
        let held = Self {
            lifeline,
            space,
            stopped,
            registry,
            making,
            engines,
            masked,
        };
        held.lend(true);
        held
    }

    /// Lets a child inherit the windows of private memory, or none.
    fn lend(&self, lent: bool) {
        let Some(space) = &self.space else { return };
        for memory in self.registry.iter().flat_map(|known| known.memory.values()) {
            let window = memory.get().addresses();
            space.process.mmu().lend(&window, lent);
        }
    }

    /// In the parent: everything goes on.
    pub(super) fn let_go(mut self) {
        self.lend(false);
        if let Some(lifeline) = self.lifeline.take() {
            lifeline.cut();
        }
    }

    /// In the child: keeps what is locked for ever, and lets go of what is its own.
    pub(super) fn end_in_child(self) {
        let Self {
            space,
            stopped,
            registry,
            making,
            engines,
            masked,
            lifeline: _,
        } = self;
        core::mem::forget((space, stopped, engines));
        drop((registry, making));
        drop(masked);
    }
}
