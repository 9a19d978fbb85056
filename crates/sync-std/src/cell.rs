//! A cell whose accesses are visible to the model checker.

use core::ptr::NonNull;

/// `core::cell::UnsafeCell` behind closures, so that loom can see each access.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct UnsafeCell<T: ?Sized>(core::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    /// A cell that holds `value`.
    pub const fn new(value: T) -> Self {
        Self(core::cell::UnsafeCell::new(value))
    }
}

impl<T: ?Sized> UnsafeCell<T> {
    /// Calls `f` with a pointer for reading. The caller of the enclosing
    /// function proves that nobody writes meanwhile.
    #[inline(always)]
    pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }

    /// Calls `f` with a pointer for writing. The caller of the enclosing
    /// function proves that nobody else accesses meanwhile.
    #[inline(always)]
    pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}

impl<T> UnsafeCell<T> {
    /// A pointer for writing that a guard may hold: where accesses are
    /// checked, the cell counts as being written while the pointer lives.
    #[inline(always)]
    pub fn get_mut(&self) -> MutPtr<T> {
        // SAFETY: a cell's address is not null.
        MutPtr(unsafe { NonNull::new_unchecked(self.0.get()) })
    }
}

/// A pointer into an [`UnsafeCell`], for writing.
#[derive(Debug)]
#[repr(transparent)]
pub struct MutPtr<T>(NonNull<T>);

impl<T> MutPtr<T> {
    /// The value.
    ///
    /// # Safety
    /// The cell lives, nobody else accesses it, and no other reference from
    /// this pointer is in use.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn deref(&self) -> &mut T {
        // SAFETY: the caller's promise.
        unsafe { &mut *self.0.as_ptr() }
    }
}
