//! Bringing huge pages in, with errors as values.

use super::map::HugeMap;
use crate::FaultError;
use crate::errno::errno;
use crate::huge_faults::{HugeBacking, MADV_POPULATE_READ};
use crate::range::offsets;
use crate::store::Refusals;
use core::ops::{Range, RangeBounds};
use libc::{c_int, c_void};

/// As `MADV_POPULATE_READ`, and the pages may be written to without another fault. (Linux 5.14)
const MADV_POPULATE_WRITE: c_int = 23;

impl HugeMap {
    /// Brings a range into memory and maps it. If a page is not available, this returns an error and raises no signal;
    /// the pages before it are in memory.
    pub fn populate(&self, range: impl RangeBounds<usize>) -> Result<(), FaultError> {
        let range = self.addresses(offsets(range, self.len()))?;
        if range.is_empty() {
            return Ok(());
        }
        let page = self.page_size().bytes();
        let start = self.as_ptr() as usize;
        let whole = |addr: usize| start + (addr - start) / page * page;
        let all = whole(range.start)..whole(range.end - 1) + page;
        if self.bring(&all) == 0 {
            if let (true, Some(entry)) = (self.is_read_only(), self.entry()) {
                entry.window().keep(all.start - start, all.len());
            }
            return Ok(());
        }
        all.step_by(page)
            .try_for_each(|addr| self.page(addr..addr + page))
    }

    /// Brings one page in.
    fn page(&self, range: Range<usize>) -> Result<(), FaultError> {
        let mut refusals = Refusals::default();
        loop {
            let refused = self.bring(&range);
            if refused == 0 {
                return Ok(());
            }
            // Others may take the page again, or the kernel refuse it, but not for ever.
            refusals
                .again(libc::EAGAIN)
                .map_err(|_| FaultError::Io(refused))?;
            match refused {
                libc::EINTR | libc::EAGAIN => continue,
                libc::EFAULT | libc::ENOMEM | libc::EINVAL | libc::EPERM | libc::ENOSYS => {}
                errno => return Err(FaultError::Io(errno)),
            }
            let is_denied = matches!(refused, libc::EINVAL | libc::EPERM | libc::ENOSYS);
            match self.entry() {
                Some(entry) => entry.window().fill(range.start, entry.counted())?,
                None if is_denied => self.allocate(&range)?,
                None => return Err(self.why(range.start)),
            }
            if is_denied {
                // A kernel that does not know the advice, or a filter that denies it: the page is there, or was a moment ago.
                // SAFETY: within the map.
                unsafe { (range.start as *const u8).read_volatile() };
                return Ok(());
            }
        }
    }

    /// Lets the file have a page of a map that the kernel serves, so that a touch finds it. Of a file that is only read (by its
    /// descriptor, or a seal) the touch itself has to bring the page in.
    fn allocate(&self, range: &Range<usize>) -> Result<(), FaultError> {
        let at = self.offset_of(range.start);
        if at >= self.bytes_of_memory()? {
            return Err(FaultError::BeyondEnd);
        }
        let Ok(fd) = self.memory().fd() else {
            return Ok(());
        };
        let (at, mode) = (at as libc::off_t, libc::FALLOC_FL_KEEP_SIZE);
        // SAFETY: makes room in a file of ours.
        let answer = unsafe { libc::fallocate(fd, mode, at, range.len() as libc::off_t) };
        match answer {
            0 => Ok(()),
            _ if matches!(errno(), libc::ENOSPC | libc::ENOMEM) => Err(self.why(range.start)),
            _ => Ok(()),
        }
    }

    /// Asks the kernel to map the present pages; returns the errno, or 0.
    fn bring(&self, range: &Range<usize>) -> c_int {
        let advice = match self.is_read_only() {
            true => MADV_POPULATE_READ,
            false => MADV_POPULATE_WRITE,
        };
        // SAFETY: within the map; no bytes change.
        match unsafe {
            sync::kernel_calls::madvise(range.start as *mut c_void, range.len(), advice)
        } {
            0 => 0,
            _ => errno(),
        }
    }

    /// The error of a page that the kernel could not provide, in a map that it serves.
    fn why(&self, addr: usize) -> FaultError {
        match (self.bytes_of_memory(), self.backing()) {
            (Ok(bytes), _) if self.offset_of(addr) >= bytes => FaultError::BeyondEnd,
            (Ok(_), HugeBacking::Hugetlb) => FaultError::PoolEmpty,
            (Ok(_), _) => FaultError::NoMemory,
            (Err(error), _) => error,
        }
    }

    fn offset_of(&self, addr: usize) -> u64 {
        self.offset() + (addr - self.as_ptr() as usize) as u64
    }

    fn bytes_of_memory(&self) -> Result<u64, FaultError> {
        let bytes = self.memory().bytes();
        bytes.map_err(|error| FaultError::Io(error.raw_os_error().unwrap_or(libc::EIO)))
    }
}
