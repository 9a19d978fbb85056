//! Counters in memory that child and parent share: a child that is killed leaves in them the work it had
//! done.
//!
//! One page-aligned region of a memfd: a header, then a slot for each thread. The child writes, the
//! parent reads at any time. Nothing needs an order between two counters except `started` and `ended`,
//! which are read last and published with Release.

use super::files;
use super::huge_counts::HugeSlot;
use super::stats::{EngineStats, RANGES, WORDS};
use super::usage::Usage;
use crate::results::row::{FINE_RANGES, WAITED};
use memmap2::{MmapOptions, MmapRaw};
use softfault::clock::now_ns;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// Bytes of an error's text that are kept.
const ERROR_BYTES: usize = 1000;

/// A child's error is its own fault, or the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The run failed.
    Run = 1,
    /// The caller's request is impossible.
    Input = 2,
}

/// Usage as words: `Usage`'s fields in their order, all ones being unknown.
type UsageWords = [AtomicU64; 7];

/// The region's head. Every field is written by the child alone.
#[repr(C, align(64))]
struct Header {
    /// Monotonic nanoseconds at which the measured part began; 0 before.
    started: AtomicU64,
    /// Monotonic nanoseconds at which the last thread yet ended.
    ended: AtomicU64,
    /// 1 once the measured part is over and all counters are final.
    finished: AtomicU32,
    /// 1 once `stats` holds anything.
    has_stats: AtomicU32,
    before: UsageWords,
    after: UsageWords,
    stats: [AtomicU64; WORDS],
    /// The most bytes that a forked child had resident; 0 where there was none.
    child_peak: AtomicU64,
    /// 0, or the `Blame` of the error in `error`.
    blame: AtomicU32,
    /// Set by the first thread that has an error to tell.
    error_taken: AtomicU32,
    error: [AtomicU8; ERROR_BYTES],
}

/// One thread's counters, alone on their cache lines.
#[repr(C, align(64))]
pub struct Slot {
    /// Pages touched.
    pub accesses: AtomicU64,
    /// Rounds completed.
    pub rounds: AtomicU64,
    /// Pairs of mapping and unmapping.
    pub maps: AtomicU64,
    /// Wall clock of populations, in nanoseconds; of those that all threads do together one thread
    /// counts it.
    pub populate_ns: AtomicU64,
    /// User and system time of this thread's populations, in nanoseconds.
    pub populate_cpu_ns: AtomicU64,
    /// The longest wait of each kind in nanoseconds, in `Waited`'s order.
    pub longest_ns: [AtomicU64; WAITED],
    /// How many of each kind waited how long, likewise.
    pub waits: [[AtomicU64; RANGES]; WAITED],
    /// How many touches waited how long, finer.
    pub touches: [AtomicU64; FINE_RANGES],
    /// Of huge memory.
    pub huge: HugeSlot,
}

/// The region, as child or parent sees it. All fields immutable.
pub struct Counters {
    map: MmapRaw,
    file: File,
    threads: usize,
}

impl Counters {
    /// A fresh region, all zero, for the parent.
    pub fn create(threads: usize) -> io::Result<Self> {
        // No CLOEXEC: the child inherits it.
        let file = files::in_memory(0)?;
        file.set_len((size_of::<Header>() + threads * size_of::<Slot>()) as u64)?;
        Self::over(file, threads)
    }

    /// The child's view of the region behind an inherited descriptor.
    ///
    /// # Safety
    /// `fd` is one that `create(threads)` made in the parent, and nobody in this process owns it.
    pub unsafe fn inherited(fd: RawFd, threads: usize) -> io::Result<Self> {
        // SAFETY: as the caller promises.
        Self::over(unsafe { File::from_raw_fd(fd) }, threads)
    }

    fn over(file: File, threads: usize) -> io::Result<Self> {
        let map = MmapOptions::new().map_raw(&file)?;
        assert!(map.len() >= size_of::<Header>() + threads * size_of::<Slot>());
        Ok(Self { map, file, threads })
    }

    /// The descriptor that the child inherits.
    pub fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    fn header(&self) -> &Header {
        // SAFETY: the map is as long as `over` asserts, page-aligned, lives as long as `self`, and holds
        // nothing but atomics, for which any bits are valid.
        unsafe { &*self.map.as_ptr().cast::<Header>() }
    }

    /// The threads' counters.
    pub fn slots(&self) -> &[Slot] {
        // SAFETY: as in `header`; the slots follow the header, whose size is a multiple of their
        // alignment.
        unsafe {
            let first = self.map.as_ptr().add(size_of::<Header>()).cast::<Slot>();
            std::slice::from_raw_parts(first, self.threads)
        }
    }

    /// Child: the measured part begins.
    pub fn start(&self, before: Usage) {
        store_usage(&self.header().before, before);
        // Release, with the Acquire in `started`: a reader that sees the start sees the usage before it.
        self.header().started.store(now_ns(), Ordering::Release);
    }

    /// Child: a thread has ended.
    pub fn end_thread(&self) {
        self.header().ended.fetch_max(now_ns(), Ordering::Relaxed);
    }

    /// Child: everything is counted.
    pub fn finish(&self, after: Usage) {
        store_usage(&self.header().after, after);
        // Release, with the Acquire in `finished`: a reader that sees it sees the final counters.
        self.header().finished.store(1, Ordering::Release);
    }

    /// A forked child: the most that it had resident.
    pub fn set_child_peak(&self, bytes: u64) {
        self.header().child_peak.store(bytes, Ordering::Relaxed);
    }

    /// The most bytes that a forked child had resident.
    pub fn child_peak(&self) -> Option<u64> {
        Some(self.header().child_peak.load(Ordering::Relaxed)).filter(|&bytes| bytes > 0)
    }

    /// Child: the engine's counters as they are now.
    pub fn publish(&self, stats: EngineStats) {
        for (word, value) in self.header().stats.iter().zip(stats.to_words()) {
            word.store(value, Ordering::Relaxed);
        }
        // Release, with the Acquire in `stats`.
        self.header().has_stats.store(1, Ordering::Release);
    }

    /// Child: the error; the first one is kept.
    pub fn fail(&self, blame: Blame, text: &str) {
        let header = self.header();
        // Relaxed: decides only which thread writes; the text is published by `blame`.
        if header.error_taken.swap(1, Ordering::Relaxed) == 0 {
            self.put_error(blame, text);
        }
    }

    /// Child: the error of a thread while others have not ended, and may never: [`fail`](Self::fail) replaces it.
    pub fn fail_meanwhile(&self, text: &str) {
        if self.header().error_taken.load(Ordering::Relaxed) == 0 {
            self.put_error(Blame::Run, text);
        }
    }

    fn put_error(&self, blame: Blame, text: &str) {
        let header = self.header();
        for (to, byte) in header.error.iter().zip(text.bytes().chain([0])) {
            to.store(byte, Ordering::Relaxed);
        }
        // Release, with the Acquire in `error`.
        header.blame.store(blame as u32, Ordering::Release);
    }

    /// When the measured part began, if it has.
    pub fn started(&self) -> Option<u64> {
        // Acquire, with the Release in `start`.
        let at = self.header().started.load(Ordering::Acquire);
        (at != 0).then_some(at)
    }

    /// When the last thread ended.
    pub fn ended(&self) -> u64 {
        self.header().ended.load(Ordering::Relaxed)
    }

    /// Whether the counters are final.
    pub fn finished(&self) -> bool {
        // Acquire, with the Release in `finish`.
        self.header().finished.load(Ordering::Acquire) == 1
    }

    /// Usage when the measured part began.
    pub fn before(&self) -> Usage {
        load_usage(&self.header().before)
    }

    /// Usage when it was over; only if `finished`.
    pub fn after(&self) -> Usage {
        load_usage(&self.header().after)
    }

    /// The engine's counters, if it has any.
    pub fn stats(&self) -> Option<EngineStats> {
        // Acquire, with the Release in `publish`.
        if self.header().has_stats.load(Ordering::Acquire) == 0 {
            return None;
        }
        let words = std::array::from_fn(|i| self.header().stats[i].load(Ordering::Relaxed));
        Some(EngineStats::from_words(words))
    }

    /// The error, if there was one.
    pub fn error(&self) -> Option<(Blame, String)> {
        // Acquire, with the Release in `fail`.
        let blame = match self.header().blame.load(Ordering::Acquire) {
            0 => return None,
            2 => Blame::Input,
            _ => Blame::Run,
        };
        let bytes = self
            .header()
            .error
            .iter()
            .map(|b| b.load(Ordering::Relaxed));
        let text: Vec<u8> = bytes.take_while(|&b| b != 0).collect();
        Some((blame, String::from_utf8_lossy(&text).into_owned()))
    }
}

fn store_usage(words: &UsageWords, usage: Usage) {
    let values = [
        usage.bytes_read.unwrap_or(u64::MAX),
        usage.bytes_written.unwrap_or(u64::MAX),
        usage.swapped_out.unwrap_or(u64::MAX),
        usage.peak_rss.unwrap_or(u64::MAX),
        usage.cpu_us,
        usage.major_faults,
        usage.minor_faults,
    ];
    for (word, value) in words.iter().zip(values) {
        word.store(value, Ordering::Relaxed);
    }
}

fn load_usage(words: &UsageWords) -> Usage {
    let value = |index: usize| words[index].load(Ordering::Relaxed);
    let known = |index: usize| Some(value(index)).filter(|&value| value != u64::MAX);
    Usage {
        bytes_read: known(0),
        bytes_written: known(1),
        swapped_out: known(2),
        peak_rss: known(3),
        cpu_us: value(4),
        major_faults: value(5),
        minor_faults: value(6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_view_reads_the_writes_of_the_other() {
        let parent = Counters::create(3).unwrap();
        let fd = parent.file.try_clone().unwrap();
        let child = Counters::over(fd, 3).unwrap();
        assert!(parent.started().is_none() && parent.error().is_none() && parent.stats().is_none());
        let usage = Usage {
            bytes_read: None,
            bytes_written: Some(4),
            swapped_out: Some(5),
            peak_rss: None,
            cpu_us: 1,
            major_faults: 2,
            minor_faults: 3,
        };
        child.start(usage);
        child.slots()[2].accesses.store(9, Ordering::Relaxed);
        child.fail_meanwhile("a thread's, which is long");
        let text = "a thread's, which is long".to_owned();
        assert_eq!(parent.error(), Some((Blame::Run, text)));
        child.fail(Blame::Input, "first");
        child.fail_meanwhile("late");
        child.fail(Blame::Run, "second");
        assert!(parent.started().is_some() && !parent.finished());
        assert_eq!(parent.before(), usage);
        assert_eq!(parent.slots()[2].accesses.load(Ordering::Relaxed), 9);
        assert_eq!(parent.error(), Some((Blame::Input, "first".into())));
    }
}
