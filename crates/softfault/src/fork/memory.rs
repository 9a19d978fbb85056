//! A map's private memory, which is the child's own once the process has forked.

use super::registry;
use crate::signal::{self, Masked};
use core::ops::Deref;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use softfault_engine::anon::Anonymous;
use std::sync::Arc;

/// Private memory that a map shows.
pub(crate) struct Memory {
    place: Arc<LentMemory>,
    lent: bool,
}

/// The state of lent memory that changes in a child.
pub(super) struct LentMemory {
    /// A [`Box`]'s. In a child it is that of the memory which was taken over, and the
    /// parent's stays where it is.
    anon: AtomicPtr<Arc<Anonymous>>,
    /// A child could not take it over.
    lost: AtomicBool,
}

impl Memory {
    /// Memory that children know nothing of.
    pub(crate) fn new(anon: Arc<Anonymous>) -> Self {
        let place = Arc::new(LentMemory {
            anon: AtomicPtr::new(Box::into_raw(Box::new(anon))),
            lost: AtomicBool::new(false),
        });
        Self { place, lent: false }
    }

    /// Lets children inherit it. It is mapped.
    pub(crate) fn allow_inherit(&mut self, masked: &Masked) {
        self.lent = true;
        registry::know_memory(&self.place, masked);
    }

    /// True if it belongs to a parent of this process, which could not take it over.
    pub(crate) fn is_lost(&self) -> bool {
        self.place.is_lost()
    }

    /// The memory itself, which children do not inherit any more.
    pub(crate) fn into_inner(mut self, masked: Option<&Masked>) -> Arc<Anonymous> {
        if let Some(masked) = masked
            && core::mem::take(&mut self.lent)
        {
            registry::forget_memory(&self.place, masked);
        }
        Arc::clone(&self)
    }
}

impl Deref for Memory {
    type Target = Arc<Anonymous>;

    fn deref(&self) -> &Arc<Anonymous> {
        self.place.get()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.lent {
            registry::forget_memory(&self.place, &signal::masked());
        }
    }
}

impl LentMemory {
    /// The memory.
    pub(super) fn get(&self) -> &Arc<Anonymous> {
        // Relaxed: it changes where there is one thread.
        // SAFETY: boxed, and there until this is dropped.
        unsafe { &*self.anon.load(Ordering::Relaxed) }
    }

    /// True if this process, or the parent that it has it from, could not take it over.
    pub(super) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    /// In a child: the memory is this from now on, or is lost.
    pub(super) fn hand_over(&self, anon: Option<Arc<Anonymous>>) {
        match anon {
            Some(anon) => {
                let anon = Box::into_raw(Box::new(anon));
                self.anon.store(anon, Ordering::Relaxed);
            }
            None => self.lost.store(true, Ordering::Relaxed),
        }
    }
}

impl Drop for LentMemory {
    fn drop(&mut self) {
        // SAFETY: boxed by `new` or `hand_over`, and nobody looks for it any more.
        drop(unsafe { Box::from_raw(*self.anon.get_mut()) });
    }
}
