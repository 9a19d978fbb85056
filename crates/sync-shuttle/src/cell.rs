//! A cell that panics where accesses overlap that must not.

use crate::point::point;
use core::cell::Cell;
use core::ptr::NonNull;

/// Of a cell's state: somebody writes. Above: so many read.
const WRITER: isize = -1;

/// `core::cell::UnsafeCell`, whose accesses last: others may run meanwhile, and
/// are found out if they come here.
#[derive(Debug, Default)]
pub struct UnsafeCell<T: ?Sized> {
    state: Cell<isize>,
    value: core::cell::UnsafeCell<T>,
}

/// An access for as long as it lives.
#[derive(Debug)]
struct Access<'a>(&'a Cell<isize>);

impl<'a> Access<'a> {
    fn read(state: &'a Cell<isize>) -> Self {
        assert!(state.get() != WRITER, "a cell is read while it is written");
        state.set(state.get() + 1);
        Self(state)
    }

    fn write(state: &'a Cell<isize>) -> Self {
        match state.get() {
            0 => {}
            WRITER => panic!("a cell is written while it is written"),
            _ => panic!("a cell is written while it is read"),
        }
        state.set(WRITER);
        Self(state)
    }
}

impl Drop for Access<'_> {
    fn drop(&mut self) {
        end(self.0);
    }
}

fn end(state: &Cell<isize>) {
    state.set(match state.get() {
        WRITER => 0,
        readers => readers - 1,
    });
}

impl<T> UnsafeCell<T> {
    /// A cell that holds `value`.
    pub const fn new(value: T) -> Self {
        Self {
            state: Cell::new(0),
            value: core::cell::UnsafeCell::new(value),
        }
    }
}

impl<T: ?Sized> UnsafeCell<T> {
    /// Calls `f` with a pointer for reading.
    ///
    /// # Panics
    /// If somebody writes meanwhile.
    pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        let _access = Access::read(&self.state);
        point();
        f(self.value.get())
    }

    /// Calls `f` with a pointer for writing.
    ///
    /// # Panics
    /// If somebody else reads or writes meanwhile.
    pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        let _access = Access::write(&self.state);
        point();
        f(self.value.get())
    }
}

impl<T> UnsafeCell<T> {
    /// A pointer for writing that a guard may hold; the cell counts as being
    /// written while the pointer lives.
    ///
    /// # Panics
    /// If somebody reads or writes meanwhile.
    pub fn get_mut(&self) -> MutPtr<T> {
        core::mem::forget(Access::write(&self.state));
        MutPtr {
            state: NonNull::from(&self.state),
            // SAFETY: a cell's address is not null.
            value: unsafe { NonNull::new_unchecked(self.value.get()) },
        }
    }
}

/// A pointer into an [`UnsafeCell`], for writing.
#[derive(Debug)]
pub struct MutPtr<T> {
    state: NonNull<Cell<isize>>,
    value: NonNull<T>,
}

impl<T> MutPtr<T> {
    /// The value.
    ///
    /// # Safety
    /// The cell lives, nobody else accesses it, and no other reference from
    /// this pointer is in use.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn deref(&self) -> &mut T {
        // SAFETY: the caller's promise.
        unsafe { &mut *self.value.as_ptr() }
    }
}

impl<T> Drop for MutPtr<T> {
    fn drop(&mut self) {
        // SAFETY: whoever has the pointer borrows the cell, as on the real
        // machine.
        end(unsafe { self.state.as_ref() });
    }
}
