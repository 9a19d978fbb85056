//! System calls, made so that no hook sees them.

use libc::c_int;

pub use softfault::errno::{errno, set_errno};
pub use softfault::kernel_calls::{mmap, mremap};

/// Any call that takes addresses; errno is set.
///
/// # Safety
/// The call takes these arguments.
pub unsafe fn any(number: libc::c_long, [a, b, c, d]: [usize; 4]) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { softfault::system_call!(number, a, b, c, d) as c_int }
}

/// Where errno is.
pub fn errno_place() -> usize {
    // SAFETY: only an address.
    unsafe { libc::__errno_location() as usize }
}
