//! userfaultfd(2) as far as it is measured or tried; numbers from
//! `uapi/linux/userfaultfd.h`.

use super::memory::Memory;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

const USER_MODE_ONLY: i32 = 1;
const API: u64 = 0xAA;
/// A fault raises SIGBUS in the faulting thread (Linux 4.14).
pub const FEATURE_SIGBUS: u64 = 1 << 7;
const MODE_MISSING: u64 = 1;
/// Nobody waits in SIGBUS mode.
const DONTWAKE: u64 = 1;

/// `_IOWR(0xAA, number, words * 8)`.
const fn request(number: u64, words: u64) -> u64 {
    3 << 30 | (words * 8) << 16 | 0xAA << 8 | number
}

/// One in SIGBUS mode, with all of `memory` registered for missing pages.
pub fn over(memory: &Memory) -> io::Result<OwnedFd> {
    let fd = open()?;
    enable(&fd, FEATURE_SIGBUS)?;
    register(&fd, memory)?;
    Ok(fd)
}

/// Opens one for faults of user mode, as the library does.
pub fn open() -> io::Result<OwnedFd> {
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | USER_MODE_ONLY;
    // SAFETY: makes a file descriptor.
    let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, so it is nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// Asks for `features`, all or none. Once for each descriptor.
pub fn enable(fd: &OwnedFd, features: u64) -> io::Result<()> {
    let mut api = [API, features, 0];
    // SAFETY: the request takes three words.
    unsafe { ioctl(fd.as_raw_fd(), request(0x3F, 3), &mut api) }
}

/// Registers all of `memory` for missing pages.
pub fn register(fd: &OwnedFd, memory: &Memory) -> io::Result<()> {
    let (start, bytes) = (memory.at(0).addr() as u64, memory.bytes() as u64);
    let mut range = [start, bytes, MODE_MISSING, 0];
    // SAFETY: the request takes four words.
    unsafe { ioctl(fd.as_raw_fd(), request(0x00, 4), &mut range) }
}

/// UFFDIO_COPY. Fit for a signal handler.
///
/// # Safety
/// `from` is readable for `bytes`; `to` lies in memory registered with `fd`.
pub unsafe fn copy(fd: RawFd, to: usize, from: usize, bytes: usize) -> io::Result<()> {
    let mut words = [to as u64, from as u64, bytes as u64, DONTWAKE, 0];
    // SAFETY: the request takes five words; the caller vouches for
    // the memory.
    unsafe { ioctl(fd, request(0x03, 5), &mut words) }
}

/// # Safety
/// `request` takes a structure of N words, and their memory is the caller's.
unsafe fn ioctl<const N: usize>(fd: RawFd, request: u64, words: &mut [u64; N]) -> io::Result<()> {
    // SAFETY: the caller's promise.
    match unsafe { libc::ioctl(fd, request as libc::Ioctl, words.as_mut_ptr()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
