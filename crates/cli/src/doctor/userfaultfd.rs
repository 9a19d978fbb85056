//! userfaultfd: whether one can be had, and whether it has the mode that maps need. Structures and numbers are those
//! of `uapi/linux/userfaultfd.h`.

use super::check::{Check, Tried, Whereabouts};
use super::machine;
use super::memory::Memory;
use super::place::PAGE;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// userfaultfd(2) for faults of user mode, which needs no privilege (Linux 5.11).
pub const OPENED: Check = Check {
    name: "userfaultfd",
    costs: "no map can be served; Fallback::Kernel maps with the kernel's mmap, without a budget, and \
            Builder::build_soft serves calls",
    run: |_| match open() {
        Ok(_) => Tried::ok(format!("opened for faults of user mode{}", sysctl())),
        Err(e) => refused(&e),
    },
    whereabouts: Whereabouts::Child,
};

/// The value of the sysctl, which most guides name and which does not matter here.
fn sysctl() -> String {
    machine::sysctl("vm.unprivileged_userfaultfd").map_or_else(String::new, |value| {
        format!("; vm.unprivileged_userfaultfd = {value}, which is not needed")
    })
}

/// The meaning of a refusal, and its remedy.
fn refused(error: &io::Error) -> Tried {
    let mend = match error.raw_os_error() {
        Some(libc::EINVAL) => machine::newer_kernel(5, 11),
        Some(libc::ENOSYS) if !machine::is_filtered() => {
            "boot a kernel built with CONFIG_USERFAULTFD=y".to_owned()
        }
        Some(libc::EPERM | libc::ENOSYS) if machine::is_filtered() => {
            machine::open_call("userfaultfd")
        }
        Some(libc::EPERM | libc::EACCES) => {
            "let the security module allow it (SELinux: class anon_inode, permission create)"
                .to_owned()
        }
        Some(libc::EMFILE) => "ulimit -n 65536".to_owned(),
        Some(libc::ENFILE) => "sysctl -w fs.file-max=1000000".to_owned(),
        _ => "free memory for the kernel".to_owned(),
    };
    Tried::missing(format!("refused: {error}"), mend)
}

/// userfaultfd's SIGBUS mode: the faulting thread serves itself (Linux 4.14).
pub const SIGBUS_MODE: Check = Check {
    name: "sigbus-mode",
    costs: "no map can be served",
    run: |_| {
        let fd = match open() {
            Ok(fd) => fd,
            Err(e) => return refused(&e),
        };
        let registered = enable(&fd, FEATURE_SIGBUS)
            .and_then(|_| Memory::map(4 * PAGE))
            .and_then(|memory| register(&fd, &memory, 0, 4 * PAGE));
        match registered {
            Ok(()) => Tried::ok("a missing page raises SIGBUS in the thread that touches it"),
            Err(e) => Tried::missing(format!("refused: {e}"), machine::newer_kernel(5, 11)),
        }
    },
    whereabouts: Whereabouts::Child,
};

/// A fault raises SIGBUS in the faulting thread (Linux 4.14).
const FEATURE_SIGBUS: u64 = 1 << 7;

const USER_MODE_ONLY: i32 = 1;
const API: u64 = 0xAA;
const MODE_MISSING: u64 = 1;

/// `_IOWR(0xAA, number, words * 8)`.
const fn request(number: u64, words: u64) -> u64 {
    3 << 30 | (words * 8) << 16 | 0xAA << 8 | number
}

/// Whether the call is allowed for faults of user mode.
pub fn is_allowed() -> bool {
    open().is_ok()
}

/// Opens one for faults of user mode, as the library does.
fn open() -> io::Result<OwnedFd> {
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | USER_MODE_ONLY;
    // SAFETY: makes a file descriptor.
    let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, so it is nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Asks for `features`, all or none; returns the kernel's features. Once for each descriptor.
fn enable(fd: &OwnedFd, features: u64) -> io::Result<u64> {
    let mut words = [API, features, 0];
    // SAFETY: the request takes three words.
    unsafe { ioctl(fd, request(0x3F, 3), &mut words) }?;
    Ok(words[1])
}

/// Registers a part of `memory` for missing faults.
fn register(fd: &OwnedFd, memory: &Memory, offset: usize, bytes: usize) -> io::Result<()> {
    let mut words = [memory.at(offset) as u64, bytes as u64, MODE_MISSING, 0];
    // SAFETY: the request takes four words.
    unsafe { ioctl(fd, request(0x00, 4), &mut words) }
}

/// # Safety
/// `request` takes a structure of N words, and their memory is the caller's.
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
