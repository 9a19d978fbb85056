//! Whether a page is there, by asking the kernel.

use crate::errno::errno;
use libc::{c_int, c_void};
use softfault_engine::PAGE_SIZE;

/// No way to change a mask: the kernel reads the set, and then refuses.
const NO_WAY: c_int = -1;
/// Bytes of a mask, as the kernel has it.
const MASK_BYTES: usize = 8;

/// True if the page of a window is certainly missing. What is there and may not be
/// read, or is in the system's swap, is not missing.
///
/// The kernel is asked to read from the page: a fault of the kernel's on a missing page
/// of a window is served by nobody, and changes nothing. No descriptor is involved, no
/// filter of system calls refuses it, and where the page is there no lock is taken.
pub fn is_missing(addr: usize) -> bool {
    let page = (addr & !(PAGE_SIZE - 1)) as *mut c_void;
    // SAFETY: reads a page of a window of ours, if it can, and changes nothing.
    let answer = unsafe {
        let nothing = core::ptr::null_mut::<c_void>();
        libc::syscall(libc::SYS_rt_sigprocmask, NO_WAY, page, nothing, MASK_BYTES)
    };
    if answer == 0 || errno() != libc::EFAULT {
        return false;
    }
    // Or the program has taken the leave to read away.
    let mut there = 0_u8;
    // SAFETY: fills the byte.
    let known = unsafe { sync::kernel_calls::mincore(page, PAGE_SIZE, &mut there) == 0 };
    known && there & 1 == 0
}
