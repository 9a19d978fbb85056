//! The cost of the kernel's reads for touches of this process.
//!
//! It reads ahead of a touch that it had to wait for, as far as its disk's `read_ahead_kb` says. In order that is good: few
//! touches wait, and read pages are mapped soon. Where touches are scattered, each waits, and most of the read pages are never
//! touched. Two counts of the process tell these apart, since the last look:
//!
//! - touches that waited for the disk (`ru_majflt` of getrusage(2)), and pages of files that were
//!   mapped for them: up to 16 neighbours come with each, so fewer than 64 a wait are no order;
//! - bytes read from the disk (`ru_inblock`) but for those that our own reads have let come, against those
//!   pages.

use super::reads::ReadPolicy;
use super::room;
use crate::table::Guarded;
use core::sync::atomic::AtomicI64;
use core::sync::atomic::Ordering::Relaxed;
use softfault_engine::PAGE_SIZE;

/// Waits between two looks that may be.
const MOST_WAITS: i64 = 8;
/// Pages that are mapped for each, in order.
const PAGES: i64 = 64;
/// Bytes read for each byte mapped, at most, and the read-ahead that is allowed in any case.
const READ: i64 = 4;
const AHEAD: i64 = 64 << 20;

/// Waits of the threads that fill files, in all engines of the process (`fill.rs`). Relaxed: it is only counted.
static FILL_WAITS: AtomicI64 = AtomicI64::new(0);
/// Pages of segments that were taken back, in all engines (`files/served/scan.rs`). Relaxed, as that.
static TAKEN_BACK: AtomicI64 = AtomicI64::new(0);

/// Counts of the process, at the last look.
#[derive(Debug)]
pub(crate) struct KernelReads {
    /// Immutable. `statm` of the table's thread, which stays: that of the process has zeros once its first thread has ended.
    statm: Guarded,
    before: Counts,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Counts {
    /// Touches for which the kernel had to read.
    waits: i64,
    /// Bytes read from disks, less those of our own reads.
    read: i64,
    /// Pages of files that are mapped, and those that were and that the engine has taken back behind a reader in order.
    mapped: i64,
}

impl KernelReads {
    /// `None` where there is no table of descriptors to ask in.
    pub(crate) fn new() -> Option<Self> {
        let statm = room::open("/proc/thread-self/statm".as_ref())?;
        let mut reads = Self {
            statm,
            before: Counts::default(),
        };
        reads.before = reads.now();
        Some(reads)
    }

    /// From now on is since the last look.
    pub(crate) fn forget(&mut self) {
        self.before = self.now();
    }

    /// True if, since the last look, the kernel read for touches that were in no order.
    pub(crate) fn are_in_vain(&mut self) -> bool {
        let now = self.now();
        let before = core::mem::replace(&mut self.before, now);
        now.are_in_vain_since(before)
    }

    fn now(&self) -> Counts {
        let mut text = [0; 128];
        let shared = room::read(&self.statm, &mut text).and_then(|text| {
            let mut words = text.split(|&byte| byte == b' ');
            core::str::from_utf8(words.nth(2)?).ok()?.parse().ok()
        });
        let all = usage(libc::RUSAGE_SELF);
        Counts {
            waits: all.ru_majflt - FILL_WAITS.load(Relaxed),
            read: all.ru_inblock * 512 - ReadPolicy::device_bytes() as i64,
            mapped: shared.unwrap_or(0) + TAKEN_BACK.load(Relaxed),
        }
    }
}

/// Pages that the kernel has read and mapped for a reader in order were taken back.
pub(crate) fn took_back(pages: usize) {
    TAKEN_BACK.fetch_add(pages as i64, Relaxed);
}

/// Does something that waits for a device, which was no touch of the program.
pub(super) fn apart_from_touches<T>(work: impl FnOnce() -> T) -> T {
    let waits = || usage(libc::RUSAGE_THREAD).ru_majflt;
    let before = waits();
    let done = work();
    FILL_WAITS.fetch_add(waits() - before, Relaxed);
    done
}

fn usage(of: libc::c_int) -> libc::rusage {
    // SAFETY: numbers, of which zeros are valid ones; the call fills them.
    unsafe {
        let mut usage = core::mem::zeroed();
        libc::getrusage(of, &raw mut usage);
        usage
    }
}

impl Counts {
    fn are_in_vain_since(self, before: Self) -> bool {
        let waits = self.waits - before.waits;
        let read = self.read - before.read;
        // Pages mapped before may have gone meanwhile.
        let mapped = (self.mapped - before.mapped).max(0);
        let scattered = waits > MOST_WAITS && mapped < waits * PAGES;
        scattered || read > AHEAD + READ * mapped * PAGE_SIZE as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_order_and_scattered() {
        let since = |waits, mib: i64, mapped| {
            let read = mib << 20;
            Counts {
                waits,
                read,
                mapped,
            }
            .are_in_vain_since(Counts::default())
        };
        assert!(!since(0, 0, 0), "the page cache had all");
        assert!(!since(2, 128, 24_000), "a scan, 8192 KiB ahead");
        assert!(
            !since(300, 128, 32_000),
            "a scan by two threads, 128 KiB ahead"
        );
        assert!(since(20, 160, 320), "random, 8192 KiB ahead");
        assert!(since(500, 60, 8_000), "random, 128 KiB ahead");
        assert!(since(6, 96, 50), "few and slow");
    }

    #[test]
    fn segments_that_were_taken_back_were_read_for_somebody() {
        let Some(reads) = KernelReads::new() else {
            return softfault_skip::skipped("kernel", "there is no table of descriptors");
        };
        let before = reads.now();
        took_back(1 << 28);
        let after = reads.now();
        // Others' maps come and go, of less than that.
        assert!(after.mapped - before.mapped > 1 << 27);
    }

    #[test]
    fn counted_pages_are_there() {
        let Some(mut reads) = KernelReads::new() else {
            return softfault_skip::skipped("kernel", "there is no table of descriptors");
        };
        assert!(
            reads.before.mapped > 0,
            "this program's own pages: {reads:?}"
        );
        reads.are_in_vain();
    }
}
