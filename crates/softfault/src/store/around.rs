//! Reading around single pages, while the pages may stay in the page cache.
//!
//! A page in no order costs a wait for the device, and its neighbours cost little more. Whether that
//! pays is a question of how many of them are wanted later: an index that is searched lies about in clusters, a
//! hash table does not. While memory is plentiful nothing else is lost by trying. So it is tried, and pages
//! that are found in the page cache afterwards are counted:
//!
//! ```text
//!             fewer finds than a quarter                  waits without
//!   Around ───────────────────────────► Without, longer ─────────────────► Around, by 128 KiB
//!      │ ▲   of the waits               each time
//!      └─┘ as many: go on; three finds a wait: twice as far, up to 1 MiB
//! ```
//!
//! The kernel reads the rest of a block by itself (`POSIX_FADV_WILLNEED`): only the page that is wanted is waited
//! for.

use core::ops::Range;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

/// The least that is read around a page: aligned.
const LEAST: u64 = 128 << 10;
/// The most is so many times as much, as a power of two.
const LARGEST: u32 = 3;
/// Reads that are not larger are of single pages.
const SINGLE: usize = 32 << 10;
/// Waits after which it is judged.
const TRIAL: u32 = 32;
/// Waits for one find, at most. A block of 128 KiB took a third longer than a page alone, and a find saves a wait: three
/// waits for one find are even. A little less is borne, since finds become more as more of the file is there.
const WORTH: u32 = 4;
/// Waits without it, at first and at most: twice as many each time.
const FIRST_PAUSE: u32 = 2 * TRIAL;
const LONGEST_PAUSE: u32 = 128 * TRIAL;

/// The state of one file. Relaxed: any mixture is a guess.
#[derive(Debug, Default)]
pub(super) struct Around {
    /// Waits for the device, and reads that found their bytes, since the last judgement.
    waits: AtomicU32,
    finds: AtomicU32,
    /// Waits until it is tried again; 0: it is.
    pause: AtomicU32,
    /// The last pause.
    paused: AtomicU32,
    /// Blocks are of `LEAST << this`.
    order: AtomicU32,
}

/// True if a read of so many bytes is one of single pages.
pub(super) fn is_single(bytes: usize) -> bool {
    bytes <= SINGLE
}

impl Around {
    /// A page was there.
    pub(super) fn found(&self) {
        self.finds.fetch_add(1, Relaxed);
    }

    /// A page was not in the page cache, and has to be waited for. Returns the range to read around it, if any.
    pub(super) fn missed(&self, offset: u64) -> Option<Range<u64>> {
        let one_less = |pause: u32| pause.checked_sub(1);
        if let Ok(left) = self.pause.fetch_update(Relaxed, Relaxed, one_less) {
            if left == 1 {
                self.begin();
            }
            return None;
        }
        if self.waits.fetch_add(1, Relaxed) + 1 >= TRIAL {
            self.judge();
        }
        let block = LEAST << self.order.load(Relaxed).min(LARGEST);
        let start = offset & !(block - 1);
        Some(start..start + block)
    }

    fn judge(&self) {
        let (waits, finds) = (self.waits.load(Relaxed), self.finds.load(Relaxed));
        self.begin();
        let order = self.order.load(Relaxed);
        // Finds are counted from one judgement to the next, and there may be billions.
        if finds.saturating_mul(WORTH) < waits {
            let paused = self.paused.load(Relaxed);
            let pause = (paused * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
            self.paused.store(pause, Relaxed);
            self.order.store(0, Relaxed);
            self.pause.store(pause, Relaxed);
            return;
        }
        self.paused.store(0, Relaxed);
        if finds >= 3 * waits {
            self.order.store((order + 1).min(LARGEST), Relaxed);
        }
    }

    /// Counts anew.
    fn begin(&self) {
        self.waits.store(0, Relaxed);
        self.finds.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 4096;

    /// A file that is read page by page: how many waits there were, and how many pages were read around them.
    fn touch(around: &Around, pages: impl Iterator<Item = u64>) -> (u32, u64) {
        let mut there = std::collections::HashSet::new();
        let (mut waits, mut read) = (0, 0);
        for page in pages {
            if there.contains(&page) {
                around.found();
                continue;
            }
            waits += 1;
            there.insert(page);
            let block = around.missed(page * PAGE).unwrap_or(0..0);
            let new = (block.start / PAGE..block.end / PAGE).filter(|page| there.insert(*page));
            read += new.count() as u64;
        }
        (waits, read)
    }

    fn random(from: u64) -> impl FnMut() -> u64 {
        let mut word = 88_172_645_463_325_252 + from;
        move || {
            word ^= word << 13;
            word ^= word >> 7;
            word ^= word << 17;
            word >> 8
        }
    }

    #[test]
    fn clusters_are_read_around() {
        // A quarter of the pages of each block of 128 KiB, one block in two, blocks in any order.
        let mut next = random(1);
        let blocks: Vec<u64> = (0..2000).map(|_| next() % 8192).collect();
        let pages = blocks.iter().flat_map(|block| {
            let mut next = random(*block);
            (0..8).map(move |_| block * 32 + next() % 32)
        });
        let (waits, _) = touch(&Around::default(), pages);
        assert!(waits < 2100, "{waits} waits for about 15,000 pages");
    }

    #[test]
    fn scattered_pages_are_read_alone() {
        let mut next = random(2);
        let pages = (0..20_000).map(|_| next() % (1 << 24));
        let (waits, read) = touch(&Around::default(), pages);
        assert!(waits > 19_000);
        assert!(read < 20_000 / 2, "{read} pages in vain");
    }

    #[test]
    fn it_is_tried_again() {
        let around = Around::default();
        let mut next = random(3);
        touch(&around, (0..1000).map(|_| next() % (1 << 24)));
        let (waits, _) = touch(&around, (1 << 25)..(1 << 25) + 20_000);
        assert!(waits < 3000, "{waits}");
    }
}
