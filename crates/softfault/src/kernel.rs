//! Maps that the kernel serves, since they are small or userfaultfd is closed: the same verbs, by its
//! own calls. And what it serves, counted.

use crate::error::{answered, too_large};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use libc::{c_int, c_void};
use softfault_engine::PAGE_SIZE;
use softfault_engine::mm::Protection;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// What the kernel serves by policy, counted for the whole process. It is not in any budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KernelCount {
    /// Small maps that were made.
    SmallMaps,
    /// Their bytes.
    SmallBytes,
    /// Times that it got a window of the engine's to serve.
    Shown,
    /// Bytes of these.
    ShownBytes,
    /// Times that one was taken back.
    TakenOver,
}

static COUNTS: [AtomicU64; 5] = [const { AtomicU64::new(0) }; 5];

impl KernelCount {
    pub(crate) fn add(self, count: u64) {
        COUNTS[self as usize].fetch_add(count, Relaxed);
    }

    pub(crate) fn get(self) -> u64 {
        COUNTS[self as usize].load(Relaxed)
    }
}

/// What is mapped.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Of<'a> {
    /// Zeros.
    Nothing,
    /// A file from this byte on, shared or private.
    File(BorrowedFd<'a>, u64, c_int),
}

/// A mapping of the kernel's.
#[derive(Debug)]
pub(crate) struct KernelMap {
    start: usize,
    /// Bytes of the mapping before the first of the map.
    skip: usize,
    len: usize,
}

impl KernelMap {
    /// Maps `len` bytes.
    pub(crate) fn new(of: Of<'_>, len: usize, protection: Protection) -> io::Result<Self> {
        let (fd, offset, kind) = match of {
            Of::Nothing => (-1, 0, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS),
            Of::File(fd, offset, kind) => (fd.as_raw_fd(), offset, kind),
        };
        let skip = (offset % PAGE_SIZE as u64) as usize;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let addr = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                len + skip,
                flags(protection),
                kind | libc::MAP_NORESERVE,
                fd,
                (offset - skip as u64) as libc::off_t,
            )
        };
        match addr {
            libc::MAP_FAILED => Err(io::Error::last_os_error()),
            addr => Ok(Self {
                start: addr as usize,
                skip,
                len,
            }),
        }
    }

    /// Where the first byte is.
    pub(crate) fn start(&self) -> usize {
        self.start + self.skip
    }

    /// Bytes of the map.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    fn all(&self) -> (*mut c_void, usize) {
        (self.start as *mut c_void, self.skip + self.len)
    }

    /// Keeps it in memory, or not any more.
    pub(crate) fn lock(&self, locked: bool) -> io::Result<()> {
        let (start, bytes) = self.all();
        // SAFETY: a mapping of ours.
        answered(unsafe {
            match locked {
                true => libc::mlock(start, bytes),
                false => libc::munlock(start, bytes),
            }
        })
    }

    /// Lets it be used for this.
    pub(crate) fn protect(&self, protection: Protection) -> io::Result<()> {
        let (start, bytes) = self.all();
        // SAFETY: a mapping of ours, which its owner has for itself.
        answered(unsafe { libc::mprotect(start, bytes, flags(protection)) })
    }

    /// Makes it shorter or longer.
    pub(crate) fn remap(&mut self, new_len: usize, may_move: bool) -> io::Result<()> {
        let (start, bytes) = self.all();
        let new = (self.skip.checked_add(new_len)).filter(|&new| isize::try_from(new).is_ok());
        let new = new.ok_or_else(too_large)?.max(1);
        let flags = if may_move { libc::MREMAP_MAYMOVE } else { 0 };
        // SAFETY: a mapping of ours, which its owner has for itself.
        let addr = unsafe { libc::mremap(start, bytes.max(1), new, flags) };
        if addr == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        (self.start, self.len) = (addr as usize, new_len);
        Ok(())
    }

    /// Takes it away; nobody has a reference to the bytes any more.
    pub(crate) fn unmap(&mut self) {
        let (start, bytes) = self.all();
        // SAFETY: mapped in `new`.
        unsafe { libc::munmap(start, bytes.max(1)) };
    }
}

fn flags(protection: Protection) -> c_int {
    match protection {
        Protection::None => libc::PROT_NONE,
        Protection::Read => libc::PROT_READ,
        Protection::ReadWrite => libc::PROT_READ | libc::PROT_WRITE,
    }
}
