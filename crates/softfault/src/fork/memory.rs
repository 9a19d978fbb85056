//! A map's private memory, which is the child's own once the process has forked.

use super::registry;
use crate::engine::Inner;
use core::ops::Deref;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use softfault_engine::anon::Anonymous;
use std::sync::Arc;

/// Private memory that a map shows, known to who forks.
pub(crate) struct Memory {
    place: Arc<Place>,
}

/// What has to be changed in a child.
pub(super) struct Place {
    /// An [`Arc`]'s. In a child it is that of the memory which was taken over.
    anon: AtomicPtr<Anonymous>,
    /// A child could not take it over.
    lost: AtomicBool,
    /// Immutable. The engine, by its address.
    pub(super) engine: *const Inner,
}

// SAFETY: the engine's address is only compared.
unsafe impl Send for Place {}
// SAFETY: as above.
unsafe impl Sync for Place {}

impl Memory {
    /// Memory that is mapped: from now on children inherit it.
    pub(crate) fn new(engine: &Arc<Inner>, anon: Arc<Anonymous>) -> Self {
        let place = Arc::new(Place {
            anon: AtomicPtr::new(Arc::into_raw(anon).cast_mut()),
            lost: AtomicBool::new(false),
            engine: Arc::as_ptr(engine),
        });
        registry::know_memory(&place);
        Self { place }
    }

    /// True if it belongs to a parent of this process, which could not take it over.
    pub(crate) fn is_lost(&self) -> bool {
        self.place.lost.load(Ordering::Relaxed)
    }

    /// The memory itself, which children do not inherit any more.
    pub(crate) fn into_inner(self) -> Arc<Anonymous> {
        registry::forget_memory(&self.place);
        let anon = self
            .place
            .anon
            .swap(core::ptr::null_mut(), Ordering::Relaxed);
        // SAFETY: `new` had it, and nobody else looks for it any more.
        unsafe { Arc::from_raw(anon) }
    }
}

impl Deref for Memory {
    type Target = Anonymous;

    fn deref(&self) -> &Anonymous {
        self.place.get()
    }
}

impl Place {
    /// The memory. It is there as long as the place is known.
    pub(super) fn get(&self) -> &Anonymous {
        // Relaxed: it changes where there is one thread.
        // SAFETY: an `Arc` that this has until the map is dropped.
        unsafe { &*self.anon.load(Ordering::Relaxed) }
    }

    /// In a child: the memory is this from now on, or is lost. What it was is the
    /// parent's for ever.
    pub(super) fn hand_over(&self, anon: Option<Arc<Anonymous>>) {
        match anon {
            Some(anon) => (self.anon).store(Arc::into_raw(anon).cast_mut(), Ordering::Relaxed),
            None => self.lost.store(true, Ordering::Relaxed),
        }
    }
}
