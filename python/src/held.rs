//! A map's memory, kept for one call.

use crate::memory::Memory;
use core::ops::Deref;
use pyo3::prelude::*;
use std::sync::Arc;

/// Keeps the memory of a map for a call, if another thread closes the map meanwhile. Whoever has the last reference unmaps it, which may
/// write back dirty pages: without the interpreter's lock.
pub(crate) struct Held(Option<Arc<Memory>>);

impl Held {
    /// True if both are of one map.
    pub(crate) fn is(&self, other: &Self) -> bool {
        core::ptr::eq::<Memory>(&**self, &**other)
    }
}

impl From<Arc<Memory>> for Held {
    fn from(memory: Arc<Memory>) -> Self {
        Self(Some(memory))
    }
}

impl Deref for Held {
    type Target = Memory;

    fn deref(&self) -> &Memory {
        self.0.as_ref().expect("kept until it is dropped")
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(memory) = self.0.take().and_then(Arc::into_inner) {
            drop_detached(memory);
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
