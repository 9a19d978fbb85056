//! The file of a read that is in a ring.

use super::{Descriptor, Number};
use crate::table::Guarded;

/// The file that a read in a ring reads from: the store outlives its reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Source(*const Descriptor);

// SAFETY: a reference to a value that may be shared, and outlives the reads.
unsafe impl Send for Source {}
// SAFETY: as above.
unsafe impl Sync for Source {}

impl Source {
    /// To be used no longer than that lives.
    pub(crate) fn of(descriptor: &Descriptor) -> Self {
        Self(descriptor)
    }

    /// Of no file, by any name.
    #[cfg(test)]
    pub(crate) fn named(name: usize) -> Self {
        Self(core::ptr::without_provenance(name))
    }

    /// No file.
    pub(in crate::store) const NONE: Self = Self(core::ptr::null());

    /// A number for a queue to read by; in tests of queues that read nothing, of no file.
    ///
    /// # Safety
    /// The file lives.
    pub(in crate::store) unsafe fn number(self) -> Option<Number> {
        match self.is_none() {
            true => Some(Number(0)),
            // SAFETY: the caller's promise.
            false => unsafe { self.file() }.number_for_queue(),
        }
    }

    /// True if all that was read by it since was of the file.
    ///
    /// # Safety
    /// The file lives.
    pub(in crate::store) unsafe fn is_still(self, number: Number) -> bool {
        // SAFETY: the caller's promise.
        self.is_none() || unsafe { self.file() }.is_still(number)
    }

    /// The way to it in the table, if it is there.
    ///
    /// # Safety
    /// The file lives.
    pub(in crate::store) unsafe fn guarded<'a>(self) -> Option<&'a Guarded> {
        // SAFETY: the caller's promise.
        unsafe { self.file() }.guarded()
    }

    /// True if a queue has refused to read it without waiting.
    ///
    /// # Safety
    /// The file lives.
    pub(in crate::store) unsafe fn waits(self) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.file() }.waits()
    }

    /// A queue has refused to read it without waiting.
    ///
    /// # Safety
    /// The file lives.
    pub(in crate::store) unsafe fn must_wait(self) {
        // SAFETY: the caller's promise.
        unsafe { self.file() }.must_wait();
    }

    pub(in crate::store) fn is_none(self) -> bool {
        self == Self::NONE
    }

    /// The file.
    ///
    /// # Safety
    /// It lives.
    pub(crate) unsafe fn file<'a>(self) -> &'a Descriptor {
        // SAFETY: the caller's promise.
        unsafe { &*self.0 }
    }
}
