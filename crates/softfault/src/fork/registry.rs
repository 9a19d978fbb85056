//! The objects that a fork handles: the engines of the process, and its maps' memory.

use super::AcrossFork;
use super::memory::LentMemory;
use crate::signal::{Masked, masked};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Engines and memory, by their addresses.
#[derive(Default)]
pub(super) struct Registry {
    pub(super) engines: HashMap<usize, Weak<dyn AcrossFork>>,
    memory: HashMap<usize, Arc<LentMemory>>,
}

impl Registry {
    /// The memory that a child inherits.
    pub(super) fn memory(&self) -> impl Iterator<Item = &Arc<LentMemory>> {
        self.memory.values().filter(|memory| !memory.is_lost())
    }
}

static REGISTRY: Mutex<Option<Registry>> = Mutex::new(None);

/// The list, locked. No other lock is taken while it is held, except by a fork, and
/// signals are masked.
pub(super) fn lock() -> MutexGuard<'static, Option<Registry>> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

fn change<T>(_masked: &Masked, change: impl FnOnce(&mut Registry) -> T) -> T {
    change(lock().get_or_insert_with(Registry::default))
}

/// A new engine.
pub(crate) fn know_engine<E: AcrossFork>(engine: &Arc<E>) {
    let place = Arc::as_ptr(engine) as usize;
    let engine: Weak<dyn AcrossFork> = Arc::<E>::downgrade(engine);
    change(&masked(), |known| known.engines.insert(place, engine));
}

/// An engine that is being dropped.
pub(crate) fn forget_engine<E: AcrossFork>(engine: &E) {
    let place = core::ptr::from_ref(engine) as usize;
    let known = change(&masked(), |known| known.engines.remove(&place));
    drop(known);
}

pub(super) fn know_memory(memory: &Arc<LentMemory>, masked: &Masked) {
    let place = Arc::as_ptr(memory) as usize;
    change(masked, |known| known.memory.insert(place, memory.clone()));
}

pub(super) fn forget_memory(memory: &Arc<LentMemory>, masked: &Masked) {
    let place = Arc::as_ptr(memory) as usize;
    change(masked, |known| known.memory.remove(&place));
}
