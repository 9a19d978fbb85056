//! Structures that the program hands to the kernel, and that a hook looks at as well. Where there are none the kernel answers
//! EFAULT, and so must a hook, in whose place a load would end the process.

use super::again::PAGE;
use super::served::Served;
use crate::call;
use core::ffi::c_void;

/// True if a hook may look at so many bytes. A page that the engine serves comes in when the hook does.
pub fn is_readable(start: *const c_void, bytes: usize) -> bool {
    let end = (start as usize).saturating_add(bytes);
    let mut page = start as usize & !(PAGE - 1);
    let mut served = Served::default();
    while page < end {
        if !is_page(page) && !served.has(page) {
            return false;
        }
        page = page.saturating_add(PAGE);
    }
    true
}

/// True if the kernel can read a page. It reads a set of signals before it looks at what is to be done with it, which is nothing.
pub fn is_page(page: usize) -> bool {
    const NOTHING: usize = usize::MAX;
    let errno = call::errno();
    // The page at address 0 would be no set at all.
    let set = page + size_of::<u64>();
    // SAFETY: changes nothing.
    let answer = unsafe {
        call::any(
            libc::SYS_rt_sigprocmask,
            [NOTHING, set, 0, size_of::<u64>()],
        )
    };
    let is_there = answer == 0 || call::errno() != libc::EFAULT;
    call::set_errno(errno);
    is_there
}
