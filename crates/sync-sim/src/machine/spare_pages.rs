//! Single pages that were given back and are kept for the next caller, as the std world keeps them: neither is a system
//! call. Here it is their cost that is kept; the memory is the arena's.

use super::kernel::{At, Machine};
use super::trace::Operation;
use crate::PAGE;

/// Pages that are kept for each processor, as in the std world.
const KEPT: u32 = 32;

/// A processor's pages. The lock and the list are on the line of this word.
#[derive(Debug, Clone, Copy, Default)]
#[repr(align(64))]
pub struct SparePages(u32);

impl Machine {
    /// Takes a kept page, if `bytes` are one page and there is one.
    ///
    /// # Safety
    /// As [`access`](Self::access).
    pub unsafe fn takes_spare_page(this: *mut Self, bytes: usize, at: At) -> bool {
        // SAFETY: the caller's promise.
        unsafe {
            let pages = Self::spare_pages(this);
            if bytes > PAGE || (*pages).0 == 0 {
                return false;
            }
            (*pages).0 -= 1;
            Self::change_list(this, pages, at);
            true
        }
    }

    /// Keeps a page, if `bytes` are one page and there is room for it. The caller clears it.
    ///
    /// # Safety
    /// As [`access`](Self::access).
    pub unsafe fn keeps_spare_page(this: *mut Self, bytes: usize, at: At) -> bool {
        // SAFETY: the caller's promise.
        unsafe {
            let pages = Self::spare_pages(this);
            if bytes > PAGE || (*pages).0 == KEPT {
                return false;
            }
            (*pages).0 += 1;
            Self::change_list(this, pages, at);
            true
        }
    }

    /// Those of the processor that runs.
    unsafe fn spare_pages(this: *mut Self) -> *mut SparePages {
        // SAFETY: the caller's promise, that of `access`; the borrow ends here.
        let machine = unsafe { &mut *this };
        &raw mut machine.spare_pages[usize::from(machine.cpu)]
    }

    /// Takes the lock, and gives it back: in the std world a thread that would wait for it makes the call instead.
    unsafe fn change_list(this: *mut Self, pages: *mut SparePages, at: At) {
        // SAFETY: the caller's promise, that of `access`.
        unsafe {
            let line = Self::access(this, pages.addr(), true, true, at);
            (*this).note(Operation::Change, line, false, at);
        }
    }
}
