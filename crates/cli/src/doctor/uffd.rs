//! userfaultfd(2) as far as the checks need it; structures and numbers from `uapi/linux/userfaultfd.h`.

use super::memory::Memory;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// A fault raises SIGBUS in the faulting thread (Linux 4.14).
pub const FEATURE_SIGBUS: u64 = 1 << 7;
/// UFFDIO_MOVE (Linux 6.8).
pub const FEATURE_MOVE: u64 = 1 << 16;

const USER_MODE_ONLY: i32 = 1;
const API: u64 = 0xAA;
const MODE_MISSING: u64 = 1;

/// `_IOWR(0xAA, number, words * 8)`.
const fn request(number: u64, words: u64) -> u64 {
    3 << 30 | (words * 8) << 16 | 0xAA << 8 | number
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
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Asks for `features`, all or none; the answer is what the kernel has. Once for each descriptor.
pub fn enable(fd: &OwnedFd, features: u64) -> io::Result<u64> {
    let mut words = [API, features, 0];
    // SAFETY: three words are what the request takes.
    unsafe { ioctl(fd, request(0x3F, 3), &mut words) }?;
    Ok(words[1])
}

/// Registers a part of `memory` for missing faults.
pub fn register(fd: &OwnedFd, memory: &Memory, offset: usize, bytes: usize) -> io::Result<()> {
    let mut words = [memory.at(offset) as u64, bytes as u64, MODE_MISSING, 0];
    // SAFETY: four words are what the request takes.
    unsafe { ioctl(fd, request(0x00, 4), &mut words) }
}

/// UFFDIO_MOVE of `bytes` within `memory`.
pub fn move_pages(
    fd: &OwnedFd,
    memory: &Memory,
    to: usize,
    from: usize,
    bytes: usize,
) -> io::Result<()> {
    let (to, from) = (memory.at(to) as u64, memory.at(from) as u64);
    let mut words = [to, from, bytes as u64, 0, 0];
    // SAFETY: five words are what the request takes; both ranges are ours.
    unsafe { ioctl(fd, request(0x05, 5), &mut words) }
}

/// # Safety
/// `request` takes a structure of N words, and what they name is the caller's.
unsafe fn ioctl<const N: usize>(
    fd: &OwnedFd,
    request: u64,
    words: &mut [u64; N],
) -> io::Result<()> {
    // SAFETY: the caller's promise.
    match unsafe { libc::ioctl(fd.as_raw_fd(), request as libc::Ioctl, words.as_mut_ptr()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
