//! A window that is read in order, whose file does not fit in free memory: the kernel serves it a segment at a time, as its reader comes to
//! them (`uffd/segments.rs`), and the engine serves all other touches of it.
//!
//! ```text
//!   read in order for 16 MiB ──► begin ──► a segment is shown ──► another one is: the first is taken back, and
//!                                   ▲          (a fault)       goes out of the page cache   (the thread)
//!                                   │                                  │
//!                                   └── after a pause ◄── end ◄────────┴── no segment for a second, or somebody holds the window
//! ```
//!
//! A scan by copies takes ten times the processor time: each page is copied, mapped and zapped by itself, where the kernel maps huge
//! folios. What the kernel has of the file is charged to the budget: the segments that are shown, and what it reads ahead. A segment that
//! the page cache had before stays there.

use super::{FIRST_PAUSE, LONGEST_PAUSE, Place, Served, Server, State, to_show};
use crate::kernel::KernelCount;
use crate::store::{FileStore, ReadPolicy, took_back};
use crate::uffd::{KernelScan, LARGEST_SPARE, SCAN_BYTES, SEGMENT};
use core::ops::Range;
use softfault_engine::PAGE_SIZE;
use softfault_engine::cache::{HeldPages, PageCache};
use softfault_engine::mmu::TABLE_SPAN;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Segments of the first scan; then twice as many each time: the kernel reads no more in vain than was read in order before.
const FIRST_SEGMENTS: usize = 4;
const MOST_SEGMENTS: usize = 512;
/// A scan has at most one of so many bytes of the budget.
const SHARE: u64 = 6;
/// Bytes of the least budget that has scans.
pub(in crate::files) const LEAST_BUDGET: u64 = SHARE * SCAN_BYTES as u64;
/// Fewer bytes are not worth it.
const LEAST: usize = 8 * SEGMENT;
// A window with mappings of its file is of no use to another file.
const _: () = assert!(LEAST >= LARGEST_SPARE);
/// A reader that comes to no other segment in this time has gone elsewhere.
const IDLE: Duration = Duration::from_secs(1);
/// If another one reads in order meanwhile, this is enough.
const STALE: Duration = Duration::from_millis(100);

/// The scans of a window.
pub(super) struct ScanState {
    /// The kernel serves segments of the window, as its reader comes to them. Nobody holds it meanwhile.
    pub(super) now: Option<Arc<Scan>>,
    /// When there may be the next.
    not_before: Option<Instant>,
    pause: Duration,
    /// The segments of the next.
    segments: usize,
}

/// A scan that the kernel serves.
pub(super) struct Scan {
    kernel: KernelScan,
    /// The memory that the kernel has for it.
    _held: HeldPages,
    seen: Mutex<Seen>,
}

/// What was seen of it so far.
struct Seen {
    /// Segments that were shown, and when the last one was.
    count: usize,
    since: Instant,
    /// Where segments begin that the page cache had before, ascending; and the end of what was looked at.
    there: Vec<usize>,
    looked_to: usize,
}

impl Scan {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long its reader has come to no other segment.
    fn idle_for(&self) -> Duration {
        let count = self.kernel.count();
        let mut seen = self.seen();
        if seen.count != count {
            (seen.count, seen.since) = (count, Instant::now());
        }
        seen.since.elapsed()
    }

    /// True if a reader in order may have the next one instead.
    fn is_over(&self) -> bool {
        self.kernel.is_at_its_end() || self.idle_for() >= STALE
    }

    /// Notes which of the next segments the page cache has. The kernel may have begun to read the first of them: that was looked at when it was the
    /// second.
    fn look_ahead(&self, file: &FileStore, window: usize) {
        let is_there = |segment: &Range<usize>| {
            let part = (segment.start - window) as u64..(segment.end - window) as u64;
            let there = file.cached_in(part).unwrap_or(0);
            there >= segment.len() as u64 / 2
        };
        let mut seen = self.seen();
        for segment in self.kernel.next_two() {
            if !segment.is_empty() && seen.looked_to <= segment.start {
                seen.looked_to = segment.end;
                if is_there(&segment) {
                    seen.there.push(segment.start);
                }
            }
        }
    }

    /// Drops a segment from the page cache, unless it had that before.
    fn drop_behind(&self, file: &FileStore, window: usize, segment: &Range<usize>) {
        let mut seen = self.seen();
        let was_there = seen.there.binary_search(&segment.start).is_ok();
        seen.there.retain(|&start| start > segment.start);
        if !was_there {
            file.drop_from_page_cache(
                &((segment.start - window) as u64..(segment.end - window) as u64),
            );
        }
    }
}

/// True if the budget has room for the memory of a scan.
fn fits(cache: &PageCache) -> bool {
    cache.node().budget.limit() * PAGE_SIZE as u64 >= LEAST_BUDGET
}

impl Served {
    /// The kernel serves the window from now on, a segment at a time, if its reader goes on where it has come to. False if it cannot be, or
    /// somebody holds the window. Signals are masked.
    fn begin_scan(&self, cache: &PageCache, read_to: u64, policy: &ReadPolicy) -> bool {
        let Some(file) = self.shown_file() else {
            return false;
        };
        let window = cache.reservation().range();
        let from = window.start + (read_to as usize).next_multiple_of(TABLE_SPAN);
        let is_worth_it = from.saturating_add(LEAST) <= window.end;
        // Where nobody says what the page cache has, others may need what would be dropped.
        if !is_worth_it || !fits(cache) || file.cached_in(0..1).is_none() || !self.may_scan() {
            return false;
        }
        // The last one has come to its end, or has lost its reader, and the engine has seen that somebody goes on in order.
        if let Some(last) = self.scan().filter(|last| last.is_over()) {
            drop(self.end_scan(self.state(), cache, &last));
        }
        let has_begun = self.begin_scan_at(cache, from, policy).is_some();
        if !has_begun {
            // It has made room, which is of no use.
            self.state().scans.put_off();
        }
        has_begun
    }

    fn begin_scan_at(&self, cache: &PageCache, from: usize, policy: &ReadPolicy) -> Option<()> {
        let (Place { process, .. }, file) = (self.of.as_ref()?, self.file.as_ref()?);
        let held = HeldPages::new(cache.node(), (SCAN_BYTES / PAGE_SIZE) as u64)?;
        let mut state = self.unheld()?;
        let may = state.by == Server::Engine && state.writers == 0;
        let shown = to_show(file).filter(|_| may)?;
        let window = cache.reservation().range();
        let rest = from..window.end.min(from + state.scans.segments * SEGMENT);
        let mmu = process.mmu();
        // SAFETY: a window that is only read, whose pages are the file's. Those of a segment that were brought in are forgotten when it is
        // taken back.
        let begun = unsafe { mmu.begin_scan(cache.reservation(), rest, shown, &policy.bell) };
        let scan = Scan {
            kernel: begun.ok().flatten()?,
            _held: held,
            seen: Mutex::new(Seen {
                count: 0,
                since: Instant::now(),
                there: Vec::new(),
                looked_to: 0,
            }),
        };
        scan.look_ahead(file, window.start);
        state.scans.now = Some(Arc::new(scan));
        Some(())
    }

    fn may_scan(&self) -> bool {
        let state = self.state();
        let early = state
            .scans
            .not_before
            .is_some_and(|then| Instant::now() < then);
        let is_free = state.by == Server::Engine && state.holds == 0 && state.writers == 0;
        is_free && !early && state.scans.now.as_ref().is_none_or(|last| last.is_over())
    }

    fn scan(&self) -> Option<Arc<Scan>> {
        self.state().scans.now.clone()
    }

    /// Takes back what its reader has left behind; false if the scan is over. Signals are masked.
    fn follow_scan(&self, cache: &PageCache) -> bool {
        let (Some(scan), Some(file)) = (self.scan(), &self.file) else {
            return false;
        };
        scan.look_ahead(file, cache.addresses().start);
        while let Some(segment) = scan.kernel.passed() {
            if !self.take_segment_back(cache, &scan, &segment) {
                break;
            }
        }
        let is_over = scan.idle_for() >= IDLE || !fits(cache);
        if is_over || file.is_random() || scan.kernel.has_failed() {
            let mut state = self.state();
            if scan.kernel.goes_on() {
                state.scans.put_off();
            }
            return !self.end_scan(state, cache, &scan).1;
        }
        true
    }

    /// False if that failed: the kernel serves it still.
    fn take_segment_back(
        &self,
        cache: &PageCache,
        scan: &Arc<Scan>,
        segment: &Range<usize>,
    ) -> bool {
        let (Some(shown), Some(file)) = (self.file.as_deref().and_then(to_show), &self.file) else {
            return false;
        };
        // Touches that began before it was shown have brought pages into the cache, and could not map them: the file may have
        // changed meanwhile. Those that are being read are waited for first, with nothing locked.
        cache.invalidate(segment.clone());
        let state = self.state();
        let is_now = (state.scans.now.as_ref()).is_some_and(|now| Arc::ptr_eq(now, scan));
        if !is_now || state.by != Server::Engine {
            // Another has ended it.
            return false;
        }
        cache.invalidate(segment.clone());
        // SAFETY: of this window and file, and with the state locked.
        let taken = unsafe { scan.kernel.take_back(cache.reservation(), segment, shown) };
        drop(state);
        if taken == Ok(true) {
            KernelCount::ScannedBytes.add(segment.len() as u64);
            took_back(segment.len() / PAGE_SIZE);
            scan.drop_behind(file, cache.addresses().start, segment);
        }
        taken.is_ok()
    }

    /// Ends a scan: the engine serves all of the window then. The state, and whether that was possible; where it was not, the kernel still serves
    /// a segment, and the next that looks at it tries again.
    fn end_scan<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        cache: &PageCache,
        scan: &Arc<Scan>,
    ) -> (MutexGuard<'a, State>, bool) {
        let (has_come_to_its_end, went_on) = (scan.kernel.is_at_its_end(), scan.kernel.goes_on());
        scan.kernel.stop();
        drop(state);
        while let Some(segment) = scan.kernel.oldest() {
            if !self.take_segment_back(cache, scan, &segment) {
                break;
            }
        }
        let mut state = self.state();
        let is_over = scan.kernel.oldest().is_none();
        if is_over
            && state
                .scans
                .now
                .as_ref()
                .is_some_and(|now| Arc::ptr_eq(now, scan))
        {
            state.scans.now = None;
            if let Some(file) = self
                .file
                .as_ref()
                .filter(|_| has_come_to_its_end || went_on)
            {
                file.was_scanned(has_come_to_its_end);
            }
            if has_come_to_its_end {
                state.scans.segments = MOST_SEGMENTS.min(2 * state.scans.segments);
                state.scans.pause = FIRST_PAUSE;
            } else if went_on {
                state.scans.segments = FIRST_SEGMENTS;
            }
        }
        (state, is_over)
    }

    /// The state, when nobody changes it, and the engine serves all of the window, or the kernel does. Where the kernel could not be made
    /// to give a segment back, the state has that scan still.
    pub(super) fn without_scan(&self) -> MutexGuard<'_, State> {
        let mut failed = None;
        loop {
            let ended = self
                .changed
                .wait_while(self.state(), |state| state.changing);
            let mut state = ended.unwrap_or_else(PoisonError::into_inner);
            let is_new =
                |scan: &Arc<Scan>| !failed.as_ref().is_some_and(|last| Arc::ptr_eq(last, scan));
            let Some(scan) = state.scans.now.clone().filter(is_new) else {
                return state;
            };
            let Some(cache) = self.of.as_ref().and_then(|place| place.cache.upgrade()) else {
                return state;
            };
            if scan.kernel.goes_on() {
                // Somebody calls, which cannot be served beside it.
                state.scans.put_off();
            }
            drop(self.end_scan(state, &cache, &scan));
            // Another may have begun meanwhile.
            failed = Some(scan);
        }
    }

    /// Ends a scan, if there is one.
    pub(in crate::files) fn end_any_scan(&self) {
        if self.scan().is_some() {
            drop(self.without_scan());
        }
    }

    /// No map of the window is left: no segment is shown any more. Those that are go with the window, or are taken back soon.
    pub(in crate::files) fn stop_scan(&self) {
        if let Some(scan) = self.scan() {
            scan.kernel.stop();
        }
    }
}

impl Default for ScanState {
    fn default() -> Self {
        Self {
            now: None,
            not_before: None,
            pause: FIRST_PAUSE,
            segments: FIRST_SEGMENTS,
        }
    }
}

impl ScanState {
    /// There is none for a while, the next time for twice as long.
    fn put_off(&mut self) {
        self.not_before = Some(Instant::now() + self.pause);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }
}

/// The windows of an engine that the kernel serves segments of.
#[derive(Default)]
pub(in crate::files) struct Scans(Vec<(Weak<PageCache>, Weak<Served>)>);

impl Scans {
    pub(in crate::files) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Begins one, if the file of a window has been read in order for a while; false if it was not.
    pub(in crate::files) fn consider(
        &mut self,
        (window, cache): (&Weak<PageCache>, impl FnOnce() -> Option<Arc<PageCache>>),
        served: &Arc<Served>,
        policy: &ReadPolicy,
    ) -> bool {
        #[cfg(test)]
        if !tests::FINDS.load(core::sync::atomic::Ordering::Relaxed) {
            return false;
        }
        let file = served.shown_file();
        let Some(read_to) = file.and_then(|file| file.take_scanned()) else {
            return false;
        };
        if let Some(cache) = cache()
            && served.begin_scan(&cache, read_to, policy)
            && !self.0.iter().any(|(known, _)| known.ptr_eq(window))
        {
            self.0.push((window.clone(), Arc::downgrade(served)));
        }
        true
    }

    /// Goes on with all of them.
    pub(in crate::files) fn follow(
        &mut self,
        upgrade: impl Fn(&Weak<PageCache>) -> Option<Arc<PageCache>>,
    ) {
        self.0.retain(|(window, served)| {
            match (upgrade(window), served.upgrade()) {
                (Some(cache), Some(served)) => served.follow_scan(&cache),
                (None, Some(served)) => {
                    // The window has gone, and a hold that was forgotten keeps this.
                    served.state().scans.now = None;
                    false
                }
                (_, None) => false,
            }
        });
    }
}

#[cfg(test)]
mod tests;
