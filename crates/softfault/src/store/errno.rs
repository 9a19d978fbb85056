//! The system's answer, as a value.

use std::io;

use crate::errno::errno;
use softfault_engine::store::StoreError;

/// A system call's answer: not negative, or errno.
pub(crate) fn check(answer: libc::c_int) -> Result<libc::c_int, i32> {
    if answer < 0 { Err(errno()) } else { Ok(answer) }
}

/// A system call's answer that counts bytes: not negative, or errno.
pub(crate) fn check_long(answer: i64) -> Result<u64, i32> {
    u64::try_from(answer).map_err(|_| errno())
}

/// An errno for the engine.
pub(super) fn store(errno: i32) -> StoreError {
    StoreError::Io(errno)
}

/// The same of a call, which is named where somebody denies it: the file cannot be the reason then.
pub(super) fn of_call(name: &'static str) -> impl Fn(i32) -> io::Error {
    move |errno| match errno {
        libc::EPERM | libc::ENOSYS => crate::error::call(name, errno),
        errno => io(errno),
    }
}

/// An errno for callers of the library.
pub(super) fn io(errno: i32) -> io::Error {
    io::Error::from_raw_os_error(errno)
}
