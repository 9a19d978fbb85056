//! Reads in the calling thread, and how a read that came short goes on.

use softfault_engine::PAGE_SIZE;

use super::descriptor::Descriptor;
use super::read_path::ReadPath;
use super::refusals::Refusals;
use crate::table;
use std::os::fd::RawFd;

/// The next step after a part of a read has arrived.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// All there is: so many bytes.
    Over(usize),
    /// Read on from this byte of the buffer.
    Rest(usize),
}

/// `arrived` bytes came at byte `done` (a multiple of the page size) of a read
/// of `bytes`. A part that is no whole number of pages is usually the file's
/// tail, but a signal or a file being written may cut reads too: only a part
/// that brings no further page is the end.
pub(super) fn after(done: usize, arrived: usize, bytes: usize) -> Step {
    let end = done + arrived;
    let pages = end & !(PAGE_SIZE - 1);
    if end >= bytes || pages <= done {
        Step::Over(end)
    } else {
        Step::Rest(pages)
    }
}

/// Calls `pread` for the rest from a byte of the buffer on, until that is all, or the file's end, or an
/// error; in any case, until it has brought nothing for too long.
pub(super) fn read_with(
    bytes: usize,
    mut pread: impl FnMut(usize) -> Result<usize, i32>,
) -> Result<usize, i32> {
    let (mut done, mut refusals) = (0, Refusals::default());
    loop {
        match pread(done) {
            Ok(arrived) => match after(done, arrived, bytes) {
                Step::Over(end) => return Ok(end),
                Step::Rest(from) => {
                    done = from;
                    refusals.progress();
                }
            },
            Err(no) => refusals.again(no)?,
        }
    }
}

impl Descriptor {
    /// Reads `bytes` at `offset`, both multiples of the page size; fewer only at the end
    /// of the file. An error anywhere fails the whole. The bytes in the buffer are of this
    /// file.
    ///
    /// # Safety
    /// `buffer` is writable for `bytes` and nobody else touches it meanwhile.
    pub(crate) unsafe fn read(
        &self,
        offset: u64,
        buffer: *mut u8,
        bytes: usize,
    ) -> Result<usize, i32> {
        // SAFETY: the caller's promise.
        unsafe { self.read_flagged(0, offset, buffer, bytes) }
    }

    /// The same, and `how` says which pages stay in the page cache.
    ///
    /// # Safety
    /// As of [`read`](Self::read).
    pub(super) unsafe fn read_as(
        &self,
        how: ReadPath,
        offset: u64,
        buffer: *mut u8,
        bytes: usize,
    ) -> Result<usize, i32> {
        let flags = how.flags();
        // SAFETY: the caller's promise.
        let read = |flags| unsafe { self.read_flagged(flags, offset, buffer, bytes) };
        match read(flags) {
            // The flag may be refused, or the call that has flags: bytes come before that.
            Err(_) if flags != 0 => read(0),
            arrived => arrived,
        }
    }

    /// # Safety
    /// As of [`read`](Self::read).
    unsafe fn read_flagged(
        &self,
        flags: i32,
        offset: u64,
        buffer: *mut u8,
        bytes: usize,
    ) -> Result<usize, i32> {
        let at = |done: usize| i64::try_from(offset + done as u64).map_err(|_| libc::EINVAL);
        let mut failed = libc::EBADF;
        for _ in 0..2 {
            let Some(number) = self.number() else { break };
            let arrived = read_with(bytes, |done| {
                let (into, left) = (buffer.wrapping_add(done), bytes - done);
                // SAFETY: `done` is less than `bytes`, for which the buffer is writable.
                unsafe { pread(number.fd(), (into, left), at(done)?, flags) }
            });
            match (self.is_still(number), arrived) {
                (true, Ok(arrived)) => return Ok(arrived),
                // It may be another's descriptor of the file, not open for reading.
                (true, Err(no)) => {
                    failed = no;
                    break;
                }
                (false, _) => self.forget(number),
            }
        }
        let Some(guarded) = self.guarded() else {
            return Err(failed);
        };
        read_with(bytes, |done| {
            let (into, left, at) = (buffer.wrapping_add(done), bytes - done, at(done)? as usize);
            let part = part(into, left);
            let (call, args) = match flags {
                0 => (libc::SYS_pread64, [into.addr(), left, at, 0, 0]),
                _ => {
                    let part = (&raw const part).addr();
                    (libc::SYS_preadv2, [part, 1, at, 0, flags as usize])
                }
            };
            // SAFETY: as above.
            unsafe { guarded.call(call, args) }
        })
    }

    /// The same from the page cache alone, all of it or nothing (EAGAIN): waits for no device, and lets
    /// the kernel begin to read the missing pages.
    ///
    /// # Safety
    /// As of [`read`](Self::read).
    pub(super) unsafe fn read_if_there(
        &self,
        how: ReadPath,
        offset: u64,
        buffer: *mut u8,
        bytes: usize,
    ) -> Result<usize, i32> {
        let number = self.number_for_queue().ok_or(libc::EAGAIN)?;
        let at = i64::try_from(offset).map_err(|_| libc::EINVAL)?;
        let flags = how.flags() | libc::RWF_NOWAIT;
        // SAFETY: the caller's promise.
        let arrived = unsafe { pread(number.fd(), (buffer, bytes), at, flags) };
        match arrived {
            Ok(arrived) if arrived == bytes && self.is_still(number) => Ok(arrived),
            _ => Err(libc::EAGAIN),
        }
    }
}

fn part(buffer: *mut u8, bytes: usize) -> libc::iovec {
    libc::iovec {
        iov_base: buffer.cast(),
        iov_len: bytes,
    }
}

/// pread(2) or preadv2(2), past the C library: a library that has taken these names over would look at it as at a read of the program's, and may
/// wait there for a thread that waits for this one ([`kernel_calls`](sync::kernel_calls)).
///
/// # Safety
/// The buffer is writable for so many bytes.
unsafe fn pread(
    fd: RawFd,
    (buffer, bytes): (*mut u8, usize),
    at: i64,
    flags: i32,
) -> Result<usize, i32> {
    let (fd, at) = (fd as usize, at as usize);
    let part = part(buffer, bytes);
    let (number, args) = match flags {
        0 => (libc::SYS_pread64, [fd, buffer.addr(), bytes, at, 0, 0]),
        _ => {
            let part = (&raw const part).addr();
            (libc::SYS_preadv2, [fd, part, 1, at, 0, flags as usize])
        }
    };
    // SAFETY: as above; the vector lives until the call is over.
    unsafe { table::call(number, &args) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every errno that `pread` can answer, once and for ever, at the beginning and half-way.
    #[test]
    fn a_read_ends_for_every_answer_of_the_system() {
        for errno in 1..4096 {
            let waits = [libc::EINTR, libc::EAGAIN].contains(&errno);
            let mut calls = 0;
            let for_ever = read_with(8192, |_| {
                calls += 1;
                assert!(calls < 5000, "{errno}: no end");
                Err(errno)
            });
            assert_eq!(for_ever, Err(errno));
            let half_way = read_with(8192, |done| match done {
                0 => Ok(4096),
                _ => Err(errno),
            });
            assert_eq!(half_way, Err(errno));
            let mut first = true;
            let once = read_with(8192, |_| match core::mem::take(&mut first) {
                true => Err(errno),
                false => Ok(8192),
            });
            assert_eq!(once, if waits { Ok(8192) } else { Err(errno) });
        }
    }

    #[test]
    fn reads_go_on_until_whole_or_without_a_further_page() {
        assert_eq!(after(0, 8192, 8192), Step::Over(8192));
        assert_eq!(after(0, 0, 8192), Step::Over(0));
        // Cut in the middle of the second page, then the rest.
        assert_eq!(after(0, 5000, 8192), Step::Rest(4096));
        assert_eq!(after(4096, 4096, 8192), Step::Over(8192));
        // The file's tail: the second try brings the same bytes.
        assert_eq!(after(4096, 904, 8192), Step::Over(5000));
        // The tail is a whole page: nothing follows.
        assert_eq!(after(4096, 0, 8192), Step::Over(4096));
        assert_eq!(after(0, 100, 8192), Step::Over(100));
    }
}
