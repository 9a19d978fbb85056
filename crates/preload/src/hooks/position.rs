//! read(2) and readv(2) that are several calls here. The kernel reads the bytes of one call as one, though several threads read by one
//! descriptor: each has a part of the file that nobody else has. So the file's position moves over all of them before the first
//! is read. Where the device fails in the midst, it goes back, and another thread may have gone on behind.

use super::reading::bytes_of_file;
use super::receive::received;
use crate::call;
use core::cell::Cell;
use core::ffi::c_void;
use libc::{c_int, off_t, ssize_t};

/// Bytes of a file that this call alone reads. Dropped, those that were not read are the next call's, also where the call is unwound.
pub struct ClaimedBytes {
    fd: c_int,
    start: off_t,
    bytes: usize,
    read: Cell<usize>,
}

impl ClaimedBytes {
    /// Those from the file's position on, up to its end. `None` of what has no position.
    #[cold]
    pub fn claim(fd: c_int, bytes: usize) -> Option<Self> {
        let errno = call::errno();
        let claimed = Self::try_claim(fd, bytes);
        call::set_errno(errno);
        claimed
    }

    fn try_claim(fd: c_int, bytes: usize) -> Option<Self> {
        let length = bytes_of_file(fd)?;
        let all = off_t::try_from(bytes).ok()?;
        // SAFETY: only moves the position.
        let end = unsafe { libc::lseek(fd, all, libc::SEEK_CUR) };
        let start = end.checked_sub(all).filter(|_| end >= 0)?;
        let mut claimed = Self {
            fd,
            start,
            bytes,
            read: Cell::new(0),
        };
        // Another thread may write where the position is.
        let there = length.saturating_sub(start).clamp(0, all);
        claimed.move_back(all - there);
        claimed.bytes = there as usize;
        Some(claimed)
    }

    /// Reads some of them, behind `done` others.
    ///
    /// # Safety
    /// As of read(2).
    pub unsafe fn read(&self, to: *mut c_void, bytes: usize, done: usize) -> ssize_t {
        let some = bytes.min(self.bytes - done.min(self.bytes));
        // SAFETY: the caller's promise.
        let got =
            unsafe { super::direct::next_pread(self.fd, to, some, self.start + done as off_t) };
        self.read.set(done + received(got));
        got
    }

    /// The call is over, with this answer: not all that was read was put into memory.
    pub fn end(self, answer: ssize_t) {
        self.read.set(received(answer));
    }

    fn move_back(&self, bytes: off_t) {
        if bytes > 0 {
            // SAFETY: only moves the position.
            unsafe { softfault::system_call!(libc::SYS_lseek, self.fd, -bytes, libc::SEEK_CUR) };
        }
    }
}

impl Drop for ClaimedBytes {
    fn drop(&mut self) {
        let errno = call::errno();
        self.move_back(self.bytes.saturating_sub(self.read.get()) as off_t);
        call::set_errno(errno);
    }
}
