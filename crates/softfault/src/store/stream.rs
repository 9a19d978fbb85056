//! Long scans. Through the page cache the kernel reads ahead of them too; past it, it is to serve them (`files/served/scan.rs`).
//!
//! The engine reads ahead itself, so the kernel's read-ahead is off (`POSIX_FADV_RANDOM`); otherwise each would
//! read pages that neither needs. But the kernel's puts a scan into large folios, which cost a quarter of the
//! processor time of single pages, also for later readers of the page cache. So once reads have gone on
//! for 16 MiB, it is switched on: it goes beyond the end of the scan by its own `read_ahead_kb` at most, twice. It is
//! switched off again when reads are elsewhere.

use super::descriptor::Descriptor;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

/// Bytes after which a scan is believed to go on.
pub(super) const LONG: u64 = 16 << 20;
/// The same where the file was read in order just now.
pub(super) const AGAIN: u64 = 4 << 20;
/// Reads this near to where a scan has come are of it: several threads, or an order that is only nearly one.
const NEAR: u64 = 1 << 20;
/// Scans that are known at a time.
const SCANS: usize = 4;
/// Reads in a row that are of no long scan, after which there is none.
const ELSEWHERE: u32 = 32;

/// The scans of one file. Relaxed: any mixture is a guess.
#[derive(Debug, Default)]
pub(super) struct Streams {
    scans: [Scan; SCANS],
    /// The next to be forgotten.
    oldest: AtomicU32,
    elsewhere: AtomicU32,
    /// The kernel reads ahead.
    on: AtomicBool,
}

#[derive(Debug, Default)]
struct Scan {
    from: AtomicU64,
    end: AtomicU64,
    bytes: AtomicU64,
}

impl Scan {
    fn is_near(&self, offset: u64) -> bool {
        self.end.load(Relaxed).abs_diff(offset) <= NEAR
    }
}

impl Streams {
    /// Notes a read: the scan that it is of, and the bytes of that before. `None`: of a new one.
    fn note(&self, offset: u64, bytes: u64) -> Option<(&Scan, u64)> {
        let known = self.scans.iter().find(|scan| scan.is_near(offset));
        match known {
            Some(scan) => {
                scan.end.fetch_max(offset + bytes, Relaxed);
                Some((scan, scan.bytes.fetch_add(bytes, Relaxed)))
            }
            None => {
                let oldest = self.oldest.fetch_add(1, Relaxed) as usize % SCANS;
                self.scans[oldest].from.store(offset, Relaxed);
                self.scans[oldest].end.store(offset + bytes, Relaxed);
                self.scans[oldest].bytes.store(bytes, Relaxed);
                None
            }
        }
    }

    /// A read through the page cache. `Some`: the kernel's read-ahead is to be on, or off. Once more for each 16 MiB of a long scan: where
    /// the kernel was to serve it, and could not just then, it may now.
    pub(super) fn read(&self, offset: u64, bytes: u64) -> Option<bool> {
        let (is_long, goes_on) = match self.note(offset, bytes) {
            Some((_, before)) => {
                let now = before + bytes;
                (now >= LONG, before / LONG != now / LONG)
            }
            None => (false, false),
        };
        let elsewhere = match is_long {
            true => 0,
            false => self.elsewhere.load(Relaxed) + 1,
        };
        self.elsewhere.store(elsewhere, Relaxed);
        let was = self.on.load(Relaxed);
        let on = is_long || was && elsewhere < ELSEWHERE;
        let changes = on != was && self.on.swap(on, Relaxed) != on;
        (changes || on && goes_on).then_some(on)
    }

    /// A read past the page cache. For so many bytes `each` of a scan that reads all of the file but an eighth: how far it has come.
    pub(super) fn read_past(&self, offset: u64, bytes: u64, each: u64) -> Option<u64> {
        let (scan, before) = self.note(offset, bytes)?;
        let (now, end) = (before + bytes, scan.end.load(Relaxed));
        let all = end.saturating_sub(scan.from.load(Relaxed));
        (before / each != now / each && now >= all - all / 8).then_some(end)
    }
}

impl Descriptor {
    /// Switches the kernel's read-ahead. Only advice, so by the number.
    pub(super) fn kernel_reads_ahead(&self, on: bool) {
        let advice = match on {
            true => libc::POSIX_FADV_NORMAL,
            false => libc::POSIX_FADV_RANDOM,
        };
        self.advise(0, 0, advice);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: u64 = 64 << 10;

    /// Reads `bytes` from an offset on in order; returns the switch that was made.
    fn scan(streams: &Streams, from: u64, bytes: u64) -> Vec<bool> {
        let steps = (0..bytes).step_by(STEP as usize);
        steps
            .filter_map(|at| streams.read(from + at, STEP))
            .collect()
    }

    #[test]
    fn the_kernel_reads_ahead_in_long_scans_only() {
        let streams = Streams::default();
        assert_eq!(scan(&streams, 0, LONG - STEP), []);
        assert_eq!(
            scan(&streams, LONG - STEP, 1 << 30),
            [true; 64],
            "once each 16 MiB"
        );
        // Elsewhere: each read is of a scan of its own.
        let far = |at: u64| at * 7919 * (4 << 20);
        let switched: Vec<_> = (100..200)
            .filter_map(|at| streams.read(far(at), 4096))
            .collect();
        assert_eq!(switched, [false]);
        // Blocks of 8 MiB, anywhere.
        assert!((0..100).all(|at| scan(&streams, far(at), 8 << 20).is_empty()));
    }

    #[test]
    fn a_scan_that_leaves_pages_out_is_not_dense() {
        for (stride, is_dense) in [(STEP, true), (STEP + STEP / 16, true), (2 * STEP, false)] {
            for each in [LONG, AGAIN] {
                let streams = Streams::default();
                let reads = 2 * LONG / STEP;
                let come: Vec<_> = (0..reads)
                    .filter_map(|read| streams.read_past(read * stride, STEP, each))
                    .collect();
                let nth = |nth: u64| (nth * each / STEP - 1) * stride + STEP;
                let expected = (1..=2 * LONG / each).map(nth).filter(|_| is_dense);
                assert_eq!(
                    come,
                    expected.collect::<Vec<_>>(),
                    "a read each {stride} bytes"
                );
            }
        }
    }

    #[test]
    fn threads_and_small_disorder_are_scans() {
        let streams = Streams::default();
        let mut on = Vec::new();
        for at in 0..2000 {
            // Two threads, each of which swaps its pairs.
            on.extend(streams.read((at ^ 1) * STEP, STEP));
            on.extend(streams.read((4 << 30) + (at ^ 1) * STEP, STEP));
        }
        assert_eq!(on, vec![true; on.len()]);
        assert_eq!(on.len() as u64, 2 * (2000 * STEP / LONG));
    }
}
