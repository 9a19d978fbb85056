//! Single pages that were given back and are kept for the next caller, as the std world keeps them: neither is a system
//! call. Here it is their cost that is kept; the memory is the arena's.

use super::kernel::{At, Machine};
use super::trace::Operation;
use crate::PAGE;

/// Pages that are kept, as in the std world.
const KEPT: u32 = 64;

/// The list's lock and its pages: its line is that of this word.
static LIST: u64 = 0;

impl Machine {
    /// Takes a kept page, if `bytes` are one page and there is one.
    ///
    /// # Safety
    /// As [`access`](Self::access).
    pub unsafe fn takes_spare_page(this: *mut Self, bytes: usize, at: At) -> bool {
        // SAFETY: the caller's promise.
        unsafe {
            if bytes > PAGE || (*this).spare_pages == 0 {
                return false;
            }
            (*this).spare_pages -= 1;
            Self::change_list(this, at);
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
            if bytes > PAGE || (*this).spare_pages == KEPT {
                return false;
            }
            (*this).spare_pages += 1;
            Self::change_list(this, at);
            true
        }
    }

    /// Takes the lock, and gives it back: in the std world a thread that would wait for it makes the call instead.
    unsafe fn change_list(this: *mut Self, at: At) {
        // SAFETY: the caller's promise, that of `access`.
        unsafe {
            let line = Self::access(this, (&raw const LIST).addr(), true, true, at);
            (*this).note(Operation::Change, line, false, at);
        }
    }
}
