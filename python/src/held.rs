//! A map's memory, kept for one call.

use crate::maps;
use crate::memory::Memory;
use core::cell::Cell;
use core::marker::PhantomData;
use core::ops::Deref;
use pyo3::prelude::*;
use std::sync::{Arc, MutexGuard};

thread_local! {
    /// How many memories this thread keeps.
    static KEPT: Cell<usize> = const { Cell::new(0) };
}

/// Keeps the memory of a map for a call, if another thread closes the map meanwhile. The last reference unmaps it, which may
/// write back dirty pages: without the interpreter's lock.
pub(crate) struct Held {
    memory: Option<Arc<Memory>>,
    /// It stays with its thread, which counts it.
    _thread: PhantomData<MutexGuard<'static, ()>>,
}

impl Held {
    /// True if both are of one map.
    pub(crate) fn is(&self, other: &Self) -> bool {
        core::ptr::eq::<Memory>(&**self, &**other)
    }
}

impl From<Arc<Memory>> for Held {
    fn from(memory: Arc<Memory>) -> Self {
        KEPT.set(KEPT.get() + 1);
        Self {
            memory: Some(memory),
            _thread: PhantomData,
        }
    }
}

impl Deref for Held {
    type Target = Memory;

    fn deref(&self) -> &Memory {
        self.memory.as_ref().expect("kept until it is dropped")
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        KEPT.set(KEPT.get() - 1);
        if let Some(memory) = self.memory.take().and_then(Arc::into_inner) {
            drop_detached(memory);
        }
    }
}

/// In a child of fork: gives back what threads of the parent kept for calls that they were in. Those threads are not here to do that, and a
/// map could be neither resized nor unmapped. Not if this thread forks within a call of its own (in a callback, or a
/// signal's handler), since its references are not told from theirs.
#[pyfunction]
pub(crate) fn give_back_for_others() {
    if KEPT.get() > 0 {
        return;
    }
    for memory in maps::all() {
        // Beside the map's own, and the one here.
        for _ in 2..Arc::strong_count(&memory) {
            // SAFETY: a `Held` of another thread has this reference, and that thread never runs again: two are left, the map's own and the
            // one here, since `all` has each memory once. All references come and go under the interpreter's lock, which the thread
            // that forks has: none is half taken.
            unsafe { Arc::decrement_strong_count(Arc::as_ptr(&memory)) };
        }
    }
}

/// Drops what may wait for writes: without the interpreter's lock, if there is an interpreter yet.
pub(crate) fn drop_detached<T: Send>(value: T) {
    let mut kept = Some(value);
    Python::try_attach(|py| {
        let dropped = kept.take();
        py.detach(|| drop(dropped));
    });
}
