//! Unmapping in batches: one `process_madvise(2)` on ourselves is one TLB
//! shootdown for all its ranges.
//!
//! Pages that the program has locked in memory (`mlock(2)`, `mlockall(2)`) go as
//! well: the budget is a promise, and the program made its own without asking for the
//! pages to be kept ([`Mmap::lock`](crate::Mmap::lock)).

use super::this_process::ThisProcess;
use crate::errno::errno;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, Ordering};
use libc::{c_int, c_void, iovec};
use softfault_engine::lock::Mutex;

/// The most ranges that one call takes.
const RANGES: usize = 1024;

/// As `MADV_DONTNEED`, for memory that is locked too (Linux 5.18).
const DONTNEED_LOCKED: c_int = 24;

/// [`RANGES`] of them.
struct ZapVectors(Box<[iovec]>);

// SAFETY: addresses of windows, which belong to no thread.
unsafe impl Send for ZapVectors {}

/// Unmaps batches.
pub(super) struct Zap {
    /// Immutable.
    process: ThisProcess,
    /// True where the kernel refuses the call on ourselves (before Linux 6.13).
    refused: AtomicBool,
    /// Immutable. The advice that throws pages away, by the kernel's number.
    advice: c_int,
    /// Too large for a stack; made once.
    vectors: [Mutex<ZapVectors>; 2],
}

impl Zap {
    pub(super) fn new() -> Self {
        let vectors = || {
            let empty = iovec {
                iov_base: core::ptr::null_mut(),
                iov_len: 0,
            };
            Mutex::new(ZapVectors(vec![empty; RANGES].into_boxed_slice()))
        };
        Self {
            process: ThisProcess::new(),
            refused: AtomicBool::new(false),
            advice: best_advice(),
            vectors: [vectors(), vectors()],
        }
    }

    /// The inherited descriptor means the parent: it must not be used.
    pub(super) fn fork_child(&self) {
        self.process.fork_child();
    }

    pub(super) fn zap(&self, ranges: &[Range<usize>]) {
        let mut left = ranges;
        while left.len() > 1 && !self.refused.load(Ordering::Relaxed) {
            let count = left.len().min(RANGES);
            if !self.batch(&left[..count]) {
                break;
            }
            left = &left[count..];
        }
        for range in left {
            self.one(range);
        }
    }

    /// Unmaps one range; `false` if something may be left in it. Where the kernel
    /// refuses, pages stay: bytes that were right when they were mapped. It refuses
    /// memory that the program has sealed (`mseal(2)`), and that is no window any more.
    pub(super) fn one(&self, range: &Range<usize>) -> bool {
        let (start, bytes) = (range.start as *mut c_void, range.end - range.start);
        let mut unlocked = false;
        loop {
            // SAFETY: a range of a window of ours.
            if unsafe { sync::kernel_calls::madvise(start, bytes, self.advice) } == 0 {
                return true;
            }
            match errno() {
                libc::EAGAIN | libc::EINTR => {}
                libc::EINVAL if !unlocked => {
                    // An older system throws away pages that are not locked.
                    // SAFETY: as above; no byte changes.
                    unsafe { sync::kernel_calls::munlock(start, bytes) };
                    unlocked = true;
                }
                _ => return false,
            }
        }
    }

    /// One call, or as many as it takes when it stops short. `false` if the
    /// kernel refuses such calls.
    fn batch(&self, ranges: &[Range<usize>]) -> bool {
        let mut vectors = self.vectors[0]
            .try_lock()
            .unwrap_or_else(|| self.vectors[1].lock());
        for (vector, range) in vectors.0.iter_mut().zip(ranges) {
            vector.iov_base = range.start as *mut c_void;
            vector.iov_len = range.end - range.start;
        }
        let mut first = 0;
        while first < ranges.len() {
            // SAFETY: the ranges lie in windows of ours that are still
            // reserved: the caller holds their folios' locks.
            let done =
                unsafe { (self.process).madvise(&vectors.0[first..ranges.len()], self.advice) };
            let mut done = match done {
                Ok(done) => done,
                Err(libc::EINTR | libc::EAGAIN) => continue,
                Err(libc::EPERM | libc::EINVAL | libc::ENOSYS | libc::EBADF)
                    if first == 0 && !self.takes_calls() =>
                {
                    self.refused.store(true, Ordering::Relaxed);
                    return false;
                }
                Err(_) => {
                    self.one(&ranges[first]);
                    first += 1;
                    continue;
                }
            };
            while first < ranges.len() && done >= vectors.0[first].iov_len {
                done -= vectors.0[first].iov_len;
                first += 1;
            }
            if done > 0 {
                // Within a range: the rest of it again.
                self.one(&ranges[first]);
                first += 1;
            }
        }
        true
    }

    /// False if the kernel refuses the call itself, and not only a range, which may be sealed.
    fn takes_calls(&self) -> bool {
        // SAFETY: of nothing.
        unsafe { self.process.madvise(&[], self.advice) }.is_ok()
    }
}

/// The best that this kernel knows: it checks an advice before it looks for pages.
fn best_advice() -> c_int {
    // SAFETY: no bytes.
    match unsafe { sync::kernel_calls::madvise(core::ptr::null_mut(), 0, DONTNEED_LOCKED) } {
        0 => DONTNEED_LOCKED,
        _ => libc::MADV_DONTNEED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use softfault_engine::PAGE_SIZE;

    /// Before, one such page made each later range a call of its own, and a TLB shootdown, in the whole process.
    #[test]
    fn a_sealed_page_does_not_end_batches() {
        /// `mseal(2)`, of Linux 6.10.
        const MSEAL: libc::c_long = 462;
        let page = || sync::pages::map(PAGE_SIZE).unwrap().as_ptr();
        let (sealed, other) = (page(), page());
        // SAFETY: memory of this test, which is never unmapped.
        unsafe { (sealed.write(1), other.write(1)) };
        // SAFETY: the same. The kernel refuses to throw away what is sealed and only read.
        let refused = unsafe {
            sync::kernel_calls::mprotect(sealed.cast(), PAGE_SIZE, libc::PROT_READ);
            sync::system_call!(MSEAL, sealed, PAGE_SIZE, 0_usize)
        };
        if refused != 0 {
            let error = std::io::Error::last_os_error();
            return softfault_skip::skipped("kernel", format_args!("no mseal(2): {error}"));
        }
        let zap = Zap::new();
        let refused_before = zap.refused.load(Ordering::Relaxed) || !zap.takes_calls();
        let ranges = [sealed, other].map(|page| page.addr()..page.addr() + PAGE_SIZE);
        zap.zap(&ranges);
        // SAFETY: as above.
        let bytes = unsafe { [sealed.read(), other.read()] };
        assert_eq!(bytes, [1, 0]);
        let refused = zap.refused.load(Ordering::Relaxed);
        assert_eq!(refused, refused_before);
    }
}
