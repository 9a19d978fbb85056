//! The calling thread's errno: a word of the thread, fit for the fault handler.

use core::ffi::c_int;

/// The errno of this thread's last failed system call.
pub fn errno() -> c_int {
    // SAFETY: points to the thread's errno.
    unsafe { *libc::__errno_location() }
}

/// Sets it: a handler leaves it as it was.
pub fn set_errno(errno: c_int) {
    // SAFETY: points to the thread's errno.
    unsafe { *libc::__errno_location() = errno }
}
