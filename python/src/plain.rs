//! A mapping of the kernel's own, for cases that the engine does not support, such as devices, odd flags, and memory that is shared with
//! children.

use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Mappings made so far. Relaxed: counts only.
static MADE: AtomicU64 = AtomicU64::new(0);

/// Mappings made so far in this process.
pub(crate) fn made() -> u64 {
    MADE.load(Ordering::Relaxed)
}

/// A mapping that is unmapped when this is dropped.
#[derive(Debug)]
pub(crate) struct Plain {
    /// Its first address. Changed by `resize` only, which has the mapping alone.
    start: usize,
    /// Its bytes. As `start`.
    len: usize,
}

impl Plain {
    /// mmap(2) at an address of the kernel's choice.
    pub(crate) fn new(
        file: Option<BorrowedFd<'_>>,
        len: usize,
        (prot, flags): (i32, i32),
        offset: i64,
    ) -> io::Result<Self> {
        if flags & libc::MAP_FIXED != 0 {
            let text = "MAP_FIXED is not supported: it would replace other mappings";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let fd = file.map_or(-1, |fd| fd.as_raw_fd());
        // SAFETY: a new mapping, which replaces none: there is no MAP_FIXED.
        let start = unsafe { libc::mmap(core::ptr::null_mut(), len, prot, flags, fd, offset) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        MADE.fetch_add(1, Ordering::Relaxed);
        Ok(Self {
            start: start as usize,
            len,
        })
    }

    pub(crate) fn start(&self) -> usize {
        self.start
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    fn at(&self, part: &Range<usize>) -> *mut core::ffi::c_void {
        (self.start + part.start) as *mut core::ffi::c_void
    }

    /// msync(2) with MS_SYNC.
    pub(crate) fn flush(&self, part: &Range<usize>) -> io::Result<()> {
        // SAFETY: within the mapping; writes only bytes that were stored.
        answered(unsafe { libc::msync(self.at(part), part.len(), libc::MS_SYNC) })
    }

    /// madvise(2).
    pub(crate) fn advise(&self, part: &Range<usize>, advice: i32) -> io::Result<()> {
        // SAFETY: within the mapping. Advice may change its bytes; the interpreter has no Rust reference to them, only copies and
        // pointers.
        answered(unsafe { libc::madvise(self.at(part), part.len(), advice) })
    }

    /// Brings pages in, as reads would, or writes. The kernel tells a page that it cannot read by EFAULT; before Linux 5.14, and of
    /// devices, it cannot be asked, and a later touch finds out.
    pub(crate) fn populate(&self, part: &Range<usize>, write: bool) -> io::Result<()> {
        let advice = match write {
            true => libc::MADV_POPULATE_WRITE,
            false => libc::MADV_POPULATE_READ,
        };
        self.advise(part, advice)
            .or_else(|error| match error.raw_os_error() {
                Some(libc::EINVAL) => Ok(()),
                Some(libc::EFAULT) => Err(io::Error::from_raw_os_error(libc::EIO)),
                _ => Err(error),
            })
    }

    /// mlock(2) or munlock(2) of all of it.
    pub(crate) fn lock(&self, locked: bool) -> io::Result<()> {
        let all = self.at(&(0..0));
        // SAFETY: the mapping's addresses; no byte changes.
        answered(unsafe {
            match locked {
                true => libc::mlock(all, self.len),
                false => libc::munlock(all, self.len),
            }
        })
    }

    /// mremap(2): it may be elsewhere then. Nobody has its addresses, since this is borrowed for writing.
    pub(crate) fn resize(&mut self, len: usize) -> io::Result<()> {
        let all = self.at(&(0..0));
        // SAFETY: this mapping alone, of which nobody has an address.
        let start = unsafe { libc::mremap(all, self.len, len, libc::MREMAP_MAYMOVE) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        (self.start, self.len) = (start as usize, len);
        Ok(())
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        // SAFETY: this mapping alone, of which nobody has an address any more.
        unsafe { libc::munmap(self.at(&(0..0)), self.len) };
    }
}

fn answered(answer: i32) -> io::Result<()> {
    match answer {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
