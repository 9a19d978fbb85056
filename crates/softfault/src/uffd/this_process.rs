//! This process, for `process_madvise(2)`.

use crate::errno::errno;
use crate::table::Working;
use libc::{c_int, iovec};

/// `PIDFD_SELF_THREAD_GROUP` of `linux/pidfd.h`: the process itself, without a descriptor.
/// (Linux 6.14)
const PIDFD_SELF: c_int = -10001;

/// This process, by the means that the kernel has.
pub(super) enum ThisProcess {
    /// Without a descriptor.
    Here,
    /// By a pidfd.
    By(Working),
    /// It has none.
    Unknown,
}

impl ThisProcess {
    pub(super) fn new() -> Self {
        // SAFETY: of nothing.
        if unsafe { Self::Here.madvise(&[], libc::MADV_DONTNEED) }.is_ok() {
            return Self::Here;
        }
        let id = std::process::id() as usize;
        // SAFETY: makes a file descriptor; close-on-exec by itself.
        let made = unsafe { Working::open(libc::SYS_pidfd_open, [id, 0, 0, 0, 0, 0]) };
        let by = made.map_or(Self::Unknown, Self::By);
        // Before Linux 6.13 the advice is refused by a pidfd, too. Such a one is not kept. Before 6.9 it shares its inode with
        // each epoll, eventfd and timerfd, so that a child could not tell its number from one that the program has there by
        // then, and would close that.
        // SAFETY: of nothing.
        match unsafe { by.madvise(&[], libc::MADV_DONTNEED) } {
            Ok(_) => by,
            Err(_) => Self::Unknown,
        }
    }

    /// Bytes of the ranges for which the advice was taken, or an errno.
    ///
    /// # Safety
    /// The advice may be given for these ranges.
    pub(super) unsafe fn madvise(&self, ranges: &[iovec], advice: c_int) -> Result<usize, c_int> {
        let start = ranges.as_ptr();
        match self {
            Self::Here => {
                let count = ranges.len();
                let call = libc::SYS_process_madvise;
                // SAFETY: the caller's promise.
                match unsafe { sync::system_call!(call, PIDFD_SELF, start, count, advice, 0) } {
                    done if done >= 0 => Ok(done as usize),
                    _ => Err(errno()),
                }
            }
            Self::By(pidfd) => {
                let args = [start as usize, ranges.len(), advice as usize, 0, 0];
                // Another process cannot be told so. (EINVAL)
                // SAFETY: the caller's promise.
                unsafe { pidfd.call(libc::SYS_process_madvise, args) }
            }
            Self::Unknown => Err(libc::ENOSYS),
        }
    }

    /// An inherited descriptor means the parent: it must not be used.
    pub(super) fn fork_child(&self) {
        if let Self::By(pidfd) = self {
            pidfd.close();
        }
    }
}
