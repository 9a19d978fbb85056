//! ioctl(2), one of whose calls is about memory: a program may serve the faults of its own memory (userfaultfd(2)).

use super::again::{Reads, again};
use super::arguments::ioctl_bytes;
use super::mapping;
use super::next::hooks;
use super::readable::is_readable;
use libc::{c_int, c_ulong, c_void};

/// `UFFDIO_REGISTER` of linux/userfaultfd.h.
const REGISTER: c_ulong = 0xC020_AA00;

/// A range that the program is about to register.
fn registered(request: c_ulong, with: *const c_void) -> Option<[u64; 2]> {
    let is_register = request & 0xFFFF_FFFF == REGISTER && is_readable(with, 32);
    // SAFETY: it was looked at; the range is in front.
    is_register.then(|| unsafe { with.cast::<[u64; 2]>().read_unaligned() })
}

hooks! {
    /// ioctl(2). In C its last argument may be missing: then it is not looked at.
    fn ioctl(fd: c_int, request: c_ulong, with: *mut c_void) -> c_int = |next| {
        let bytes = ioctl_bytes(request);
        let reads = [Reads::Bytes(with, bytes), Reads::Into(with, bytes)];
        let call = || again(&reads, || next(fd, request, with));
        match registered(request, with) {
            Some([start, bytes]) => mapping::served_by_program(start as *const c_void, bytes as usize, call),
            None => call(),
        }
    };
}
