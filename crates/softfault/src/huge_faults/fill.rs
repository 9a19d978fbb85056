//! Asking the kernel for a missing page, in the SIGBUS handler or out of it.

use super::backing::HugeBacking;
use super::count::{self, Counters};
use super::size::HugeSize;
use crate::FaultError;
use crate::errno::errno;
use crate::table::Identity;
use core::mem::MaybeUninit;
use core::ops::Range;
use libc::{c_int, c_void};

/// Faults a range in as a read would, without a signal: an error is a value. (Linux 5.14)
pub(crate) const MADV_POPULATE_READ: c_int = 22;

/// The facts that a handler needs of a map. Immutable.
#[derive(Debug, Clone)]
pub(crate) struct HugeWindow {
    pub(crate) start: usize,
    pub(crate) bytes: usize,
    /// Where the map begins in the file.
    pub(crate) offset: u64,
    /// Where the byte at `offset` is in the alias.
    pub(crate) alias: usize,
    pub(crate) fd: c_int,
    /// The identity of the file of `fd`: the program may have closed it, and taken the number.
    pub(crate) file: Identity,
    pub(crate) page: HugeSize,
    pub(crate) backing: HugeBacking,
}

impl HugeWindow {
    /// Of nothing.
    pub(super) const NONE: Self = Self {
        start: 0,
        bytes: 0,
        offset: 0,
        alias: 0,
        fd: -1,
        file: Identity::NONE,
        page: HugeSize::TwoMiB,
        backing: HugeBacking::BasePages,
    };

    /// Its addresses.
    pub(super) fn range(&self) -> Range<usize> {
        self.start..self.start + self.bytes
    }

    /// Lets the file have the page that this address is in. It is not mapped by that.
    pub(crate) fn fill(&self, addr: usize, counted: &Counters) -> Result<(), FaultError> {
        let page = self.page.bytes();
        let at = (addr - self.start) & !(page - 1);
        let offset = self.offset + at as u64;
        // Only for the count, and for the name of an error: a program that has closed the number has its pages all the same.
        let before = self.blocks(offset)?;
        match self.ask(at, page) {
            0 => {
                let after = self.blocks(offset)?;
                if before.is_some_and(|before| after > Some(before)) {
                    count::page(counted);
                }
                Ok(())
            }
            // The touch is repeated, and so is this.
            libc::EINTR | libc::EAGAIN => Ok(()),
            libc::EFAULT | libc::ENOMEM | libc::ENOSPC => {
                self.blocks(offset)?;
                count::pool_empty(counted);
                Err(match self.backing {
                    HugeBacking::Hugetlb => FaultError::PoolEmpty,
                    _ => FaultError::NoMemory,
                })
            }
            errno => Err(FaultError::Io(errno)),
        }
    }

    /// Asks for the page `at` bytes from the start; the errno, or 0.
    fn ask(&self, at: usize, page: usize) -> c_int {
        let alias = (self.alias + at) as *mut c_void;
        // SAFETY: in the alias, which is there as long as the map is; no bytes change.
        match unsafe { sync::kernel_calls::madvise(alias, page, MADV_POPULATE_READ) } {
            0 => {}
            // A kernel that does not know the advice, or a filter that denies it.
            _ if matches!(errno(), libc::EINVAL | libc::EPERM | libc::ENOSYS) => {
                return self.allocate(at, page);
            }
            _ => return errno(),
        }
        if self.backing != HugeBacking::Hugetlb {
            self.keep(at, page);
            // Of small pages the alias would have as many entries again, and the process would look
            // twice as large. The pages stay with the file.
            // SAFETY: shared memory, of which another mapping is used.
            unsafe { sync::kernel_calls::madvise(alias, page, libc::MADV_DONTNEED) };
        }
        0
    }

    /// Marks pages that are there as dirty. Those that came by a read are clean, and so the kernel's to
    /// drop when memory is short, or at `drop_caches`: they are zeros still, but missing
    /// again, and no longer counted. Allocating an allocated page only marks it.
    pub(crate) fn keep(&self, at: usize, bytes: usize) {
        if self.backing != HugeBacking::Hugetlb {
            // Where it is denied, the pages stay clean.
            self.allocate(at, bytes);
        }
    }

    /// Lets the file have pages; the errno, or 0. A page that is past the end by the time it comes stays with
    /// the file, as zeros that nobody sees, until it is truncated again.
    fn allocate(&self, at: usize, page: usize) -> c_int {
        let offset = self.offset + at as u64;
        // The program may have closed the descriptor, and have a file of its own there.
        if !matches!(self.blocks(offset), Ok(Some(_))) {
            return libc::EBADF;
        }
        let (offset, mode) = (offset as libc::off_t, libc::FALLOC_FL_KEEP_SIZE);
        // SAFETY: makes room in a file of ours.
        match unsafe { libc::fallocate(self.fd, mode, offset, page as libc::off_t) } {
            0 => 0,
            _ => errno(),
        }
    }

    /// Blocks that the file has now, if this byte is not past its end. `None`: nobody knows, since the number is not the file's any
    /// more.
    fn blocks(&self, offset: u64) -> Result<Option<i64>, FaultError> {
        let mut stat = MaybeUninit::<libc::stat>::uninit();
        // SAFETY: fills the structure.
        let stat = unsafe {
            if libc::fstat(self.fd, stat.as_mut_ptr()) != 0 {
                return Ok(None);
            }
            stat.assume_init()
        };
        if Identity::of(&stat) != self.file {
            return Ok(None);
        }
        match offset < stat.st_size as u64 {
            true => Ok(Some(stat.st_blocks)),
            false => Err(FaultError::BeyondEnd),
        }
    }
}
