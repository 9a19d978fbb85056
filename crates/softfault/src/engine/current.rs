//! The state that an engine's maps need, which each process has its own of.

use super::EngineInner;
use crate::files::FileWindow;
use crate::fork::AcrossFork;
use crate::managed::Managed;
use crate::process::{self, Process};
use crate::{faults, signal};
use core::sync::atomic::{AtomicPtr, Ordering};
use std::io;

// All threads have it, through a pointer that would not say so.
const _: () = {
    const fn is_shared<T: Send + Sync>() {}
    is_shared::<Managed>();
};

/// The [`Managed`] of the present process: a child makes its own when it first needs it.
pub(crate) struct ManagedPerProcess {
    /// Null in a child that has not wanted it yet, and without userfaultfd.
    now: AtomicPtr<Managed>,
    /// The last process's that had one; never dropped here. Changed in children only.
    parents: AtomicPtr<Managed>,
    /// Immutable. False where userfaultfd is closed.
    is_open: bool,
}

impl ManagedPerProcess {
    /// `None` where userfaultfd is closed.
    pub(crate) fn new(managed: Option<Managed>) -> Self {
        Self {
            is_open: managed.is_some(),
            now: AtomicPtr::new(managed.map_or(core::ptr::null_mut(), |managed| {
                Box::into_raw(Box::new(managed))
            })),
            parents: AtomicPtr::new(core::ptr::null_mut()),
        }
    }

    /// It, if there is one. In a child there may not be one yet.
    pub(crate) fn get(&self) -> Option<&Managed> {
        // Acquire pairs with the Release in `set`.
        // SAFETY: lives as long as this, or for ever.
        unsafe { self.now.load(Ordering::Acquire).as_ref() }
    }

    fn set(&self, managed: Managed) {
        let managed = Box::into_raw(Box::new(managed));
        self.now.store(managed, Ordering::Release);
    }
}

impl Drop for ManagedPerProcess {
    fn drop(&mut self) {
        let now = *self.now.get_mut();
        if !now.is_null() {
            // SAFETY: boxed by `new` or `set`, and not used any more.
            drop(unsafe { Box::from_raw(now) });
        }
    }
}

impl EngineInner {
    /// The state that maps need. `None` where userfaultfd is closed; and in a child that has
    /// no memory of this engine: see [`managed_here`](Self::managed_here).
    pub(crate) fn managed(&self) -> Option<&Managed> {
        self.managed.get()
    }

    /// The same, made now where a child has none. `None` where userfaultfd is closed.
    pub(crate) fn managed_here(&self) -> io::Result<Option<&Managed>> {
        if !self.managed.is_open || self.managed().is_some() {
            return Ok(self.managed());
        }
        let _masked = signal::masked();
        let locks = self.options.policies_ref().locks;
        let faults = self.options.resolved_faults();
        // A child of one that watches forks watches them too.
        let process = faults::get_or_make(locks, faults)?;
        let _making = process::making();
        self.begin_in_child(process)?;
        Ok(self.managed())
    }
}

impl AcrossFork for EngineInner {
    fn managed(&self) -> Option<&Managed> {
        self.managed.get()
    }

    fn file_windows(&self) -> Vec<FileWindow> {
        self.files.for_child()
    }

    fn leave(&self) -> Option<&'static Managed> {
        let now = self
            .managed
            .now
            .swap(core::ptr::null_mut(), Ordering::Relaxed);
        if !now.is_null() {
            self.managed.parents.store(now, Ordering::Relaxed);
        }
        // SAFETY: never dropped from here on.
        unsafe { now.as_ref() }
    }

    fn parents(&self) -> Option<&'static Managed> {
        // SAFETY: null, or never dropped.
        unsafe { self.managed.parents.load(Ordering::Relaxed).as_ref() }
    }

    fn begin_in_child(&self, process: &'static Process) -> io::Result<()> {
        let (Some(parents), None) = (self.parents(), self.managed()) else {
            return Ok(());
        };
        let outer = self.options.outer();
        if let Some(outer) = &outer {
            outer.begin_in_child(process)?;
        }
        let outer = outer.as_ref().and_then(|outer| outer.managed());
        let within = outer.map(|outer| outer.node.budget.clone());
        let managed = self.options.again(parents, within, process)?;
        self.managed.set(managed);
        Ok(())
    }
}
