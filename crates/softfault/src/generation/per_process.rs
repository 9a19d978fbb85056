//! A value of which each process has one, and which begins anew in a child: a lock of the parent's may
//! be held there for ever.

use super::ProcessGeneration;
use core::sync::atomic::{AtomicPtr, Ordering};

/// A value that a child does not inherit. All threads have it: the pointer alone would let a value cross threads that must not.
pub(crate) struct PerProcess<T: Default + Send + Sync> {
    now: AtomicPtr<(ProcessGeneration, T)>,
}

impl<T: Default + Send + Sync> PerProcess<T> {
    /// Nothing yet.
    pub(crate) const fn new() -> Self {
        Self {
            now: AtomicPtr::new(core::ptr::null_mut()),
        }
    }

    /// This process's. Uses the heap.
    pub(crate) fn get(&self) -> &T {
        // Acquire pairs with the Release below.
        let now = self.now.load(Ordering::Acquire);
        // SAFETY: null, or boxed; one that was here is never dropped in a child.
        match unsafe { now.as_ref() } {
            Some((generation, value)) if !generation.is_parents() => value,
            _ => self.begin(now),
        }
    }

    fn begin(&self, before: *mut (ProcessGeneration, T)) -> &T {
        let fresh = Box::into_raw(Box::new((ProcessGeneration::here(), T::default())));
        let (set, failed) = (Ordering::AcqRel, Ordering::Acquire);
        let now = match self.now.compare_exchange(before, fresh, set, failed) {
            Ok(_) => fresh,
            Err(other) => {
                // SAFETY: just boxed, and nobody knows it.
                drop(unsafe { Box::from_raw(fresh) });
                other
            }
        };
        // SAFETY: boxed, by this thread or the one that was faster.
        unsafe { &(*now).1 }
    }
}

impl<T: Default + Send + Sync> Default for PerProcess<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Default + Send + Sync> Drop for PerProcess<T> {
    fn drop(&mut self) {
        let now = *self.now.get_mut();
        // SAFETY: null, or boxed.
        if unsafe { now.as_ref() }.is_some_and(|(generation, _)| !generation.is_parents()) {
            // SAFETY: as above; nobody uses it any more.
            drop(unsafe { Box::from_raw(now) });
        }
    }
}
