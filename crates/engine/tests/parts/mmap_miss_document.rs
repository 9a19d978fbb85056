//! The rules of `MmapMiss` give document 003's own tables, at its own size: a
//! page cache that does nothing but obey them, of pages that are absent, cached
//! or mapped, in the order in which they were read.

use softfault_engine::mm::Advice;
use softfault_engine::policy::MissAccounting::{
    self, Baseline, Both, FaultingAddress, IgnoreTried,
};
use softfault_engine::readahead::{Found, MmapMiss};
use softfault_oracle::mix;
use std::collections::VecDeque;
use std::ops::Range;

const GIB: u64 = (1 << 30) / 4096;
/// `read_ahead_kb` 8192.
const RA_PAGES: u32 = 2048;
/// The page cache of a guest of 8 GiB, about.
const CACHE: u64 = 29 * GIB / 4;

const ABSENT: u8 = 0;
const CACHED: u8 = 1;
const MAPPED: u8 = 2;

struct PageCache {
    pages: Vec<u8>,
    /// Runs of pages that were read, oldest first.
    runs: VecDeque<Range<u64>>,
    cached: u64,
    read: u64,
    markers: Vec<bool>,
    policy: MmapMiss,
    accounting: MissAccounting,
}

impl PageCache {
    fn new(file_pages: u64, accounting: MissAccounting) -> Self {
        Self {
            pages: vec![ABSENT; file_pages as usize],
            runs: VecDeque::new(),
            cached: 0,
            read: 0,
            markers: vec![false; file_pages as usize],
            policy: MmapMiss::new(RA_PAGES),
            accounting,
        }
    }

    fn file_pages(&self) -> u64 {
        self.pages.len() as u64
    }

    fn read(&mut self, range: Range<u64>) {
        let mut start = range.start;
        for page in range.start..=range.end {
            if page == range.end || self.pages[page as usize] != ABSENT {
                if start < page {
                    self.runs.push_back(start..page);
                    self.cached += page - start;
                    self.read += page - start;
                    self.pages[start as usize..page as usize].fill(CACHED);
                }
                start = page + 1;
            }
        }
        while self.cached > CACHE {
            let run = self.runs.pop_front().expect("a cached page is in a run");
            self.cached -= run.end - run.start;
            let run = run.start as usize..run.end as usize;
            self.pages[run.clone()].fill(ABSENT);
            self.markers[run].fill(false);
        }
    }

    fn touch(&mut self, page: u64) {
        let (at, file_pages) = (page as usize, self.file_pages());
        if self.pages[at] == MAPPED {
            return;
        }
        let tried = self.pages[at] == ABSENT;
        if tried {
            match self.policy.miss(page, Advice::Normal, file_pages) {
                Some(window) => self.window(window.pages(), window.marker),
                None => self.read(page..page + 1),
            }
        } else if std::mem::take(&mut self.markers[at]) {
            self.policy.hit(Advice::Normal);
            let absent = (page + 1..file_pages).find(|&page| self.pages[page as usize] == ABSENT);
            let next_miss = absent.unwrap_or(file_pages);
            if let Some(window) = self.policy.marker(page, next_miss, file_pages) {
                self.window(window.pages(), window.marker);
            }
        }
        let mut found = Found::default();
        let block = page & !15;
        for near in block..(block + 16).min(file_pages) {
            let here = near as usize;
            if self.pages[here] != ABSENT && !self.markers[here] {
                self.pages[here] = MAPPED;
                found.pages += 1;
                found.own |= near == page;
            }
        }
        self.policy.mapped(found, self.accounting, tried);
    }

    fn window(&mut self, pages: Range<u64>, marker: u64) {
        if pages.contains(&marker) && self.pages[marker as usize] == ABSENT {
            self.markers[marker as usize] = true;
        }
        self.read(pages);
    }
}

/// GiB read for touches of 1 % of a file, at page `next(touch)` each.
fn read(gib: u64, accounting: MissAccounting, next: impl Fn(u64, u64) -> u64) -> f64 {
    let file_pages = gib * GIB;
    let mut cache = PageCache::new(file_pages, accounting);
    for touch in 0..file_pages / 100 {
        cache.touch(next(touch, file_pages));
    }
    cache.read as f64 / GIB as f64
}

fn random(touch: u64, file_pages: u64) -> u64 {
    mix(touch.wrapping_mul(0x9E37_79B9_7F4A_7C15)) % file_pages
}

fn stride(stride: u64) -> impl Fn(u64, u64) -> u64 {
    move |touch, file_pages| touch * stride % file_pages
}

/// Asserts that the bytes read differ from the document's by so much at most.
fn check(what: &str, read: f64, document: f64, percent: f64) {
    println!("{what}: {read:.3} GiB, {document} in the document");
    let difference = (read - document).abs() / document * 100.0;
    assert!(difference <= percent, "{what}: {read:.3}, not {document}");
}

#[test]
fn larger_than_memory() {
    // Where the cached pages decide its misses, the size of memory does too.
    check("random", read(20, Baseline, random), 223.377, 6.0);
    check(
        "random P1",
        read(20, FaultingAddress, random),
        223.268,
        12.0,
    );
    check("random P2", read(20, IgnoreTried, random), 223.257, 6.0);
    check("random both", read(20, Both, random), 1.010, 5.0);
    let at = stride(1021);
    check("1021", read(20, Baseline, &at), 204.214, 1.0);
    check("1021 both", read(20, Both, &at), 204.208, 1.0);
    let at = stride(2053);
    check("2053", read(20, Baseline, &at), 409.584, 1.0);
    check("2053 P1", read(20, FaultingAddress, &at), 409.584, 1.0);
    check("2053 P2", read(20, IgnoreTried, &at), 15.722, 3.0);
    check("2053 both", read(20, Both, &at), 0.970, 2.0);
    let at = stride(4099);
    check("4099", read(20, Baseline, &at), 406.452, 2.0);
    check("4099 both", read(20, Both, &at), 0.975, 2.0);
    for accounting in [Baseline, FaultingAddress, IgnoreTried, Both] {
        check("sequential", read(20, accounting, stride(1)), 0.212, 3.0);
    }
}

#[test]
fn fit_in_memory() {
    check("random", read(4, Baseline, random), 3.987, 1.0);
    check("random both", read(4, Both, random), 0.980, 10.0);
    for accounting in [Baseline, Both] {
        check("1021", read(4, accounting, stride(1021)), 4.002, 1.0);
        check("sequential", read(4, accounting, stride(1)), 0.056, 3.0);
    }
    check("2053", read(4, Baseline, stride(2053)), 3.991, 1.0);
    check("2053 both", read(4, Both, stride(2053)), 0.811, 2.0);
    check("4099", read(4, Baseline, stride(4099)), 4.001, 1.0);
    check("4099 both", read(4, Both, stride(4099)), 0.819, 2.0);
}
