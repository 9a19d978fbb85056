//! read(2) and readv(2) that are several calls here. The kernel reads the bytes of one call as one, though several threads read by one
//! descriptor: each has a part of the file that nobody else has. So the file's position moves over all of them before the first
//! is read.

use super::reading::is_file_of_bytes;
use super::receive::received;
use crate::call;
use core::ffi::c_void;
use libc::{c_int, off_t, ssize_t};

/// Bytes of a file that this call alone reads.
pub struct ClaimedBytes {
    fd: c_int,
    start: off_t,
    bytes: usize,
}

impl ClaimedBytes {
    /// Those from the file's position on. `None` of what has no position.
    #[cold]
    pub fn claim(fd: c_int, bytes: usize) -> Option<Self> {
        let errno = call::errno();
        let claimed = Self::try_claim(fd, bytes);
        call::set_errno(errno);
        claimed
    }

    fn try_claim(fd: c_int, bytes: usize) -> Option<Self> {
        let all = off_t::try_from(bytes).ok()?;
        if !is_file_of_bytes(fd) {
            return None;
        }
        // SAFETY: only moves the position.
        let end = unsafe { libc::lseek(fd, all, libc::SEEK_CUR) };
        let start = end.checked_sub(all).filter(|_| end >= 0)?;
        Some(Self { fd, start, bytes })
    }

    /// Reads some of them, behind `done` others.
    ///
    /// # Safety
    /// As of read(2).
    pub unsafe fn read(&self, to: *mut c_void, bytes: usize, done: usize) -> ssize_t {
        // SAFETY: the caller's promise.
        unsafe { super::direct::next_pread(self.fd, to, bytes, self.start + done as off_t) }
    }

    /// The call is over, with this answer: what was not read is the next one's.
    pub fn end(self, answer: ssize_t) {
        let left = self.bytes.saturating_sub(received(answer)) as off_t;
        if left > 0 {
            let errno = call::errno();
            // SAFETY: only moves the position.
            unsafe { libc::lseek(self.fd, -left, libc::SEEK_CUR) };
            call::set_errno(errno);
        }
    }
}
