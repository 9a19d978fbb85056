//! A read lease on a file: an open for writing, or a truncate, waits until the lease is given up.
//!
//! fcntl(2) has the rules: it is granted to the file's owner, or with CAP_LEASE, while nobody has the file open for
//! writing; a signal says that an opener waits; and the opener goes on after `/proc/sys/fs/lease-break-time` at the
//! latest. The descriptor is in a table that no close of the program reaches: its last close would give the lease up.

use crate::error;
use crate::table::Guarded;
use core::ffi::c_long;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

const F_SETSIG: usize = 10;
const F_SETOWN_EX: usize = 15;
const F_SETLEASE: usize = 1024;
const F_GETLEASE: usize = 1025;
const F_OWNER_TID: i32 = 0;

/// `struct f_owner_ex`.
#[repr(C)]
struct Owner {
    kind: i32,
    id: i32,
}

/// A read lease. It goes when this is dropped; in a child of fork it is the parent's.
#[doc(hidden)]
#[derive(Debug)]
pub struct ReadLease(Guarded);

impl ReadLease {
    /// Takes a lease on the file that is open there. When somebody waits for it, the thread of this number gets
    /// `signal`. The error is fcntl's: EAGAIN where somebody has the file open for writing, EACCES where it is
    /// somebody else's, EINVAL where its file system has no leases. It has no errno
    /// where /proc does not show this thread.
    pub fn take(file: BorrowedFd<'_>, thread: i32, signal: i32) -> io::Result<Self> {
        // SAFETY: only asks.
        let here = unsafe { sync::system_call!(libc::SYS_gettid) };
        // A description of its own: the program's has an owner and a signal of its own.
        let path = format!("/proc/self/task/{here}/fd/{}\0", file.as_raw_fd());
        let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
        let open = [
            libc::AT_FDCWD as usize,
            path.as_ptr() as usize,
            flags as usize,
            0,
            0,
            0,
        ];
        let owner = Owner {
            kind: F_OWNER_TID,
            id: thread,
        };
        let then = [
            (F_SETSIG, signal as usize),
            (F_SETOWN_EX, (&raw const owner) as usize),
            (F_SETLEASE, libc::F_RDLCK as usize),
        ];
        let then =
            then.map(|(command, value)| (libc::SYS_fcntl as c_long, [command, value, 0, 0, 0]));
        // SAFETY: a path that ends in zero, and the structure that the call takes; the descriptor is new.
        let opened = unsafe { Guarded::open_and((libc::SYS_openat, open), then) };
        let (opened, answers) = opened.map_err(|errno| match errno {
            libc::ENOENT => error::no_proc(),
            _ => io::Error::from_raw_os_error(errno),
        })?;
        for answer in answers {
            answer.map_err(io::Error::from_raw_os_error)?;
        }
        Ok(Self(opened))
    }

    /// True if somebody waits for it, or it is not there any more.
    pub fn is_wanted(&self) -> bool {
        // SAFETY: only asks.
        let kind = unsafe { self.0.call(libc::SYS_fcntl, [F_GETLEASE, 0, 0, 0, 0]) };
        kind != Ok(libc::F_RDLCK as usize)
    }
}
