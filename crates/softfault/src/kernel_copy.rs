//! Copies out of and into mappings that the kernel serves, with errors as values.
//!
//! Nothing keeps such pages in memory: if the file becomes shorter, or a page is reclaimed and cannot be read again, a load is a
//! SIGBUS, also right after the page was brought in. So the kernel copies: process_vm_readv(2) of this process itself says EFAULT.
//! The other side of a copy is any memory of the caller's, perhaps a map of an engine whose missing pages the kernel cannot
//! bring in. Its bytes go through a page of the stack.

use crate::errno::errno;
use crate::error::FaultError;
use libc::c_void;
use softfault_engine::PAGE_SIZE;

/// Copies bytes of a mapping out.
///
/// # Safety
/// At `from` are `len` bytes of a map that the kernel serves, and goes on to serve. `into` can be written to for as many, and
/// nobody else uses it. If others write to the mapping meanwhile, the copy has old or new bytes.
pub(crate) unsafe fn read(from: usize, into: *mut u8, len: usize) -> Result<(), FaultError> {
    let mut done = 0;
    while done < len {
        // SAFETY: the caller vouches for both.
        done += match unsafe { by_kernel(from + done, into.addr() + done, len - done) }? {
            // SAFETY: the same.
            0 => unsafe { read_through_page(from + done, into.add(done), len - done) }?,
            copied => copied,
        };
    }
    Ok(())
}

/// Copies bytes into a mapping.
///
/// # Safety
/// At `to` are `len` bytes of a map that the kernel serves, and goes on to serve. `from` can be read for as many. Code that uses
/// the mapping's bytes meanwhile tolerates data races.
pub(crate) unsafe fn write(to: usize, from: *const u8, len: usize) -> Result<(), FaultError> {
    let mut done = 0;
    while done < len {
        // SAFETY: the caller vouches for both.
        done += match unsafe { by_kernel(from.addr() + done, to + done, len - done) }? {
            // SAFETY: the same.
            0 => unsafe { write_through_page(to + done, from.add(done), len - done) }?,
            copied => copied,
        };
    }
    Ok(())
}

/// The first bytes of a [`read`]: how many, at least one.
#[cold]
unsafe fn read_through_page(from: usize, into: *mut u8, len: usize) -> Result<usize, FaultError> {
    let mut page = [0_u8; PAGE_SIZE];
    let len = len.min(PAGE_SIZE);
    // SAFETY: the caller's bytes, and a page of ours.
    let copied = unsafe { by_kernel(from, page.as_mut_ptr().addr(), len) }?;
    // SAFETY: within both.
    unsafe { into.copy_from_nonoverlapping(page.as_ptr(), copied) };
    some(copied)
}

/// The first bytes of a [`write`]: how many, at least one.
#[cold]
unsafe fn write_through_page(to: usize, from: *const u8, len: usize) -> Result<usize, FaultError> {
    let mut page = [0_u8; PAGE_SIZE];
    let len = len.min(PAGE_SIZE);
    // SAFETY: within both.
    unsafe { page.as_mut_ptr().copy_from_nonoverlapping(from, len) };
    // SAFETY: a page of ours, and the caller's bytes.
    some(unsafe { by_kernel(page.as_ptr().addr(), to, len) }?)
}

/// The kernel does not say whether a page is past the end, or could not be read.
fn some(copied: usize) -> Result<usize, FaultError> {
    match copied {
        0 => Err(FaultError::Io(libc::EIO)),
        copied => Ok(copied),
    }
}

/// Has the kernel copy as many bytes as it can: 0 if the first cannot be read or written. Where a filter of system calls
/// refuses that (seccomp), they are copied by loads and stores, as a program does that touches a map.
///
/// # Safety
/// There are `len` bytes at `from`, and at `to`, which nothing of Rust's refers to.
unsafe fn by_kernel(from: usize, to: usize, len: usize) -> Result<usize, FaultError> {
    let vector = |start: usize| libc::iovec {
        iov_base: start as *mut c_void,
        iov_len: len,
    };
    let (source, target) = (vector(from), vector(to));
    loop {
        // By this thread's number: the process's first one may have ended.
        // SAFETY: both vectors are there; the caller vouches for the target, and the kernel reports missing pages.
        let copied = unsafe { libc::process_vm_readv(libc::gettid(), &target, 1, &source, 1, 0) };
        if let Ok(copied) = usize::try_from(copied) {
            return Ok(copied);
        }
        match errno() {
            libc::EINTR => {}
            libc::EFAULT => return Ok(0),
            libc::ENOSYS | libc::EPERM => {
                // SAFETY: the caller vouches for both.
                unsafe { (to as *mut u8).copy_from_nonoverlapping(from as *const u8, len) };
                return Ok(len);
            }
            libc::ENOMEM => return Err(FaultError::NoMemory),
            errno => return Err(FaultError::Io(errno)),
        }
    }
}
