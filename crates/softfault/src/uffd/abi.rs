//! The system calls of userfaultfd(2) and their structures, as Linux's
//! `uapi/linux/userfaultfd.h` gives them. Written out because the crates that
//! wrap them allocate, or need a C compiler; these are called in a handler.

use core::ops::Range;
use libc::{c_int, c_long};

/// Serve faults of user mode only: needs no privilege.
const UFFD_USER_MODE_ONLY: c_int = 1;
const UFFD_API: u64 = 0xAA;
/// The faulting thread gets SIGBUS instead of a message being queued.
const UFFD_FEATURE_SIGBUS: u64 = 1 << 7;
const UFFDIO_REGISTER_MODE_MISSING: u64 = 1;
/// Nobody waits on a SIGBUS-mode fault, so nobody has to be woken.
const DONTWAKE: u64 = 1;

const UFFDIO_API: u64 = read_write(0x3F, size_of::<Api>());
const UFFDIO_REGISTER: u64 = read_write(0x00, size_of::<Register>());
const UFFDIO_COPY: u64 = read_write(0x03, size_of::<Copy>());
const UFFDIO_ZEROPAGE: u64 = read_write(0x04, size_of::<ZeroPage>());

/// `_IOWR(0xAA, number, size)`.
const fn read_write(number: u64, size: usize) -> u64 {
    3 << 30 | (size as u64) << 16 | 0xAA << 8 | number
}

#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct Register {
    start: u64,
    len: u64,
    mode: u64,
    ioctls: u64,
}

#[repr(C)]
struct Copy {
    dst: u64,
    src: u64,
    len: u64,
    mode: u64,
    copied: i64,
}

#[repr(C)]
struct ZeroPage {
    start: u64,
    len: u64,
    mode: u64,
    zeroed: i64,
}

/// The calling thread's errno.
pub fn errno() -> c_int {
    // SAFETY: points to the thread's errno.
    unsafe { *libc::__errno_location() }
}

/// Sets the calling thread's errno.
pub fn set_errno(errno: c_int) {
    // SAFETY: points to the thread's errno.
    unsafe { *libc::__errno_location() = errno }
}

/// A userfaultfd in SIGBUS mode, or the errno.
pub fn open() -> Result<c_int, c_int> {
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | UFFD_USER_MODE_ONLY;
    // SAFETY: makes a file descriptor.
    let fd: c_long = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
    if fd < 0 {
        return Err(errno());
    }
    let fd = fd as c_int;
    let mut api = Api {
        api: UFFD_API,
        features: UFFD_FEATURE_SIGBUS,
        ioctls: 0,
    };
    // SAFETY: the structure is the one that this ioctl takes.
    if unsafe { libc::ioctl(fd, UFFDIO_API, &mut api) } < 0 {
        let error = errno();
        // SAFETY: ours, and not used any more.
        unsafe { libc::close(fd) };
        return Err(error);
    }
    Ok(fd)
}

/// Registers a range for missing faults.
pub fn register(fd: c_int, range: &Range<usize>) -> Result<(), c_int> {
    let mut register = Register {
        start: range.start as u64,
        len: (range.end - range.start) as u64,
        mode: UFFDIO_REGISTER_MODE_MISSING,
        ioctls: 0,
    };
    // SAFETY: the structure is the one that this ioctl takes.
    match unsafe { libc::ioctl(fd, UFFDIO_REGISTER, &mut register) } {
        0 => Ok(()),
        _ => Err(errno()),
    }
}

/// How far a copy or a zeroing got: bytes done, and the errno that stopped it.
pub struct Progress {
    /// Bytes done from the front.
    pub bytes: usize,
    /// What stopped it, if something did.
    pub stopped: Option<c_int>,
}

fn progress(answer: c_int, done: i64) -> Progress {
    match (answer, done) {
        (0, done) => Progress {
            bytes: done.max(0) as usize,
            stopped: None,
        },
        // Stopped half-way: the count is what was done before.
        (_, done) if done > 0 => Progress {
            bytes: done as usize,
            stopped: Some(libc::EAGAIN),
        },
        _ => Progress {
            bytes: 0,
            stopped: Some(errno()),
        },
    }
}

/// UFFDIO_COPY.
///
/// # Safety
/// `source` is readable for `bytes`; the target lies in a window of ours.
pub unsafe fn copy(fd: c_int, target: usize, source: *const u8, bytes: usize) -> Progress {
    let mut copy = Copy {
        dst: target as u64,
        src: source as u64,
        len: bytes as u64,
        mode: DONTWAKE,
        copied: 0,
    };
    // SAFETY: the structure is the one that this ioctl takes, and the caller
    // vouches for the memory.
    let answer = unsafe { libc::ioctl(fd, UFFDIO_COPY, &mut copy) };
    progress(answer, copy.copied)
}

/// UFFDIO_ZEROPAGE.
pub fn zero(fd: c_int, target: usize, bytes: usize) -> Progress {
    let mut zero = ZeroPage {
        start: target as u64,
        len: bytes as u64,
        mode: DONTWAKE,
        zeroed: 0,
    };
    // SAFETY: the structure is the one that this ioctl takes; it maps zeros
    // only where nothing is mapped in a registered range.
    let answer = unsafe { libc::ioctl(fd, UFFDIO_ZEROPAGE, &mut zero) };
    progress(answer, zero.zeroed)
}
