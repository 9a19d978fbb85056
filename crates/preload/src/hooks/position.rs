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
        // SAFETY: moves the position, or only asks.
        let seek = |by: off_t| unsafe { libc::lseek(fd, by, libc::SEEK_CUR) };
        // Not past the end, where another thread may be about to write.
        let there = |start: off_t| length.saturating_sub(start).clamp(0, all);
        let wanted = Some(there(seek(0))).filter(|&wanted| wanted > 0)?;
        let end = seek(wanted);
        let start = end.checked_sub(wanted).filter(|_| end >= 0)?;
        let mut claimed = Self {
            fd,
            start,
            bytes: wanted as usize,
            read: Cell::new(0),
        };
        // Another thread has moved it in between.
        let left = there(start).min(wanted);
        claimed.move_back(wanted - left);
        claimed.bytes = left as usize;
        // Where there is nothing by its length, the kernel knows better.
        (left > 0).then_some(claimed)
    }

    /// Reads some of them, behind `done` others.
    ///
    /// # Safety
    /// As of read(2).
    pub unsafe fn read(&self, to: *mut c_void, bytes: usize, done: usize) -> ssize_t {
        let left = self.bytes.saturating_sub(done);
        if left == 0 {
            return 0;
        }
        // All of it: a device reads whole blocks, and comes up short at the end.
        let at = self.start + done as off_t;
        // SAFETY: the caller's promise.
        let got = unsafe { super::direct::next_pread(self.fd, to, bytes, at) };
        let got = got.min(left as ssize_t);
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
