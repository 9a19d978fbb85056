//! Which parts of the file have space on the disk.
//!
//! The file is as long as it may get, and empty. Space is taken a cluster at a
//! time, before anything of it is written, so that a full disk shows as an error
//! of the write that wanted more, and never as half a write. It is given back a
//! cluster at a time too, by a thread of its own ([`trim`](super::trim)): a fault
//! that frees a slot only counts.
//!
//! A cluster is one word: how much of it is held, and whether it has its space.
//!
//! ```text
//!            hold, first          all released
//!   empty ───────────────► ready ─────────────► ready, 0 held
//!     ▲     (under `filling`)                        │ trim, under `filling`
//!     └──────────────────────────────────────────────┘
//! ```
//!
//! A thread that holds and finds `READY` in the same step knows that no trim can come
//! between: that needs the word at `READY` and nothing. One that does not find it takes
//! `filling`, and so waits for a trim under way.

use super::file::PAGE;
use super::table::{BITS, SlotWords, words};
use crate::store::Descriptor;
use core::ops::Range;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use softfault_engine::lock::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};
use sync::wait::WaitWord;

/// Bytes of a cluster.
pub(super) const CLUSTER: u64 = 16 << 20;

/// Of a word: all of the cluster has space.
const READY: u32 = 1 << 31;
/// Of a word: some of it has.
const SOME: u32 = 1 << 30;
/// Of a word: how much is held.
const HELD: u32 = SOME - 1;

/// How long a disk that was full is taken to be full. Reclaim tries page after page, and each try that finds out anew costs a
/// file system the taking of what is left, and giving it back.
const FULL_FOR: Duration = Duration::from_millis(50);

/// Values of the word that trimming waits on.
const ASLEEP: u32 = 0;
const CALLED: u32 = 1;
const STOPPED: u32 = 2;

/// The clusters of a file.
pub(super) struct Clusters {
    /// Immutable. The file whose space is taken and given back.
    file: Arc<Descriptor>,
    /// Immutable. Bytes of the file.
    bytes: u64,
    words: Box<[sync::atomic::AtomicU32]>,
    /// Held while space is taken or given back. When there was no space last, and the error; `None` if space was given back since.
    filling: Mutex<Option<(Instant, i32)>>,
    /// A bit a page of the file: all of it has space, in a cluster of which only some has. Changed under `filling`.
    parts: SlotWords,
    /// False once the file system said that it gives nothing back.
    trims: AtomicBool,
    /// [`ASLEEP`], [`CALLED`] or [`STOPPED`].
    trimming: WaitWord,
}

impl Clusters {
    /// `None` where the system has no memory.
    pub(super) fn new(file: Arc<Descriptor>, bytes: u64) -> Option<Self> {
        let count = bytes.div_ceil(CLUSTER);
        Some(Self {
            file,
            bytes,
            words: (0..count).map(|_| Default::default()).collect(),
            filling: Mutex::new(None),
            parts: SlotWords::new(pages(0..bytes).end.div_ceil(BITS) as usize)?,
            trims: AtomicBool::new(true),
            trimming: WaitWord::new(ASLEEP),
        })
    }

    /// `count` more are in use of the cluster that `range` lies in, which is about
    /// to be written. They are held even if there turns out to be no space for
    /// them, which is the error, as an errno.
    pub(super) fn hold(&self, range: Range<u64>, count: u32) -> Result<(), i32> {
        let cluster = (range.start / CLUSTER) as usize;
        // Acquire pairs with the Release in `fill` and `trim`.
        let before = self.words[cluster].fetch_add(count, Acquire);
        if before & READY != 0 {
            return Ok(());
        }
        self.fill(cluster, range)
    }

    #[cold]
    fn fill(&self, cluster: usize, range: Range<u64>) -> Result<(), i32> {
        let mut full = self.filling.lock();
        let word = &self.words[cluster];
        if word.load(Relaxed) & READY != 0 {
            return Ok(());
        }
        let is_part = word.load(Relaxed) & SOME != 0;
        // A part that has space has it still.
        if is_part && self.has_space_in_part(&range) {
            return Ok(());
        }
        if let Some((at, errno)) = *full
            && at.elapsed() < FULL_FOR
        {
            return Err(errno);
        }
        if !is_part {
            match self.allocate(self.range(cluster)) {
                // A file system that takes no space beforehand, or a filter that denies it: the write
                // will tell.
                Ok(()) | Err(libc::EOPNOTSUPP | libc::ENOSYS | libc::EPERM) => {
                    // Release pairs with the Acquire in `hold`.
                    word.fetch_or(READY, Release);
                    return Ok(());
                }
                // The space that it took before space ran out (ext4 keeps it) is in the way of what is wanted. Nobody
                // uses any of it: some would be known to have space.
                Err(_) => self.punch(self.range(cluster)),
            }
        }
        // Less than a cluster may be left.
        let taken = self.allocate(range.clone());
        match taken {
            Ok(()) => {
                word.fetch_or(SOME, Release);
                for (place, mask) in words(range.start.div_ceil(PAGE)..range.end / PAGE) {
                    self.parts[place].fetch_or(mask, Relaxed);
                }
            }
            Err(_) if !is_part => self.punch(self.range(cluster)),
            Err(_) => {}
        }
        if let Err(errno @ (libc::ENOSPC | libc::EDQUOT)) = taken {
            *full = Some((Instant::now(), errno));
        }
        taken
    }

    /// True if every page that `range` reaches into has space. The caller holds `filling`.
    fn has_space_in_part(&self, range: &Range<u64>) -> bool {
        // Relaxed: changed under `filling`.
        words(pages(range.clone()))
            .all(|(place, mask)| self.parts[place].load(Relaxed) & mask == mask)
    }

    /// `count` are not in use any more of the cluster that has `offset`.
    pub(super) fn release(&self, offset: u64, count: u32) {
        if count == 0 {
            return;
        }
        let cluster = (offset / CLUSTER) as usize;
        // Release pairs with the Acquire in `trim`.
        let before = self.words[cluster].fetch_sub(count, Release);
        debug_assert!(before & HELD >= count, "cluster {cluster}");
        let left = before - count;
        // AcqRel: where the trimmer has taken calls anew already, it is woken; where it
        // has not, its Acquire pairs with this, and it sees the release.
        if left & HELD == 0
            && self.trims.load(Relaxed)
            && self.trimming.fetch_or(CALLED, AcqRel) == ASLEEP
        {
            self.trimming.wake(1);
        }
    }

    /// True if all of the cluster that has `offset` has space.
    pub(super) fn has_space(&self, offset: u64) -> bool {
        // Relaxed: a later writer holds it first.
        self.words[(offset / CLUSTER) as usize].load(Relaxed) & READY != 0
    }

    /// Gives the space of all clusters back of which nothing is in use.
    pub(super) fn trim(&self) {
        for (cluster, word) in self.words.iter().enumerate() {
            let idle = word.load(Relaxed);
            if idle & HELD != 0 || idle == 0 || !self.trims.load(Relaxed) {
                continue;
            }
            let mut full = self.filling.lock();
            // AcqRel: Acquire pairs with the Release in `release`, Release with the
            // Acquire in `hold`.
            if word.compare_exchange(idle, 0, AcqRel, Relaxed).is_ok() {
                for (place, mask) in words(pages(self.range(cluster))) {
                    self.parts[place].fetch_and(!mask, Relaxed);
                }
                self.punch(self.range(cluster));
                *full = None;
            }
        }
    }

    /// Waits until there may be something to trim; false when it is over.
    pub(super) fn wait_for_work(&self) -> bool {
        while self.trimming.load(Relaxed) == ASLEEP {
            self.trimming.wait(ASLEEP, None);
        }
        self.trimming.load(Relaxed) == CALLED
    }

    /// Lets `ns` pass, and takes calls anew; false when it is over.
    pub(super) fn wait_for_calm(&self, ns: u64) -> bool {
        self.trimming.wait(CALLED, Some(ns));
        // Acquire pairs with the Release in `release`.
        (self.trimming)
            .compare_exchange(CALLED, ASLEEP, AcqRel, Relaxed)
            .is_ok()
    }

    /// Ends both waits for good.
    pub(super) fn stop(&self) {
        self.trimming.swap(STOPPED, Relaxed);
        self.trimming.wake(1);
    }

    /// Bytes that have space.
    pub(super) fn bytes_on_disk(&self) -> u64 {
        // Blocks in a stat are of 512 bytes, on every file system.
        self.file
            .stat()
            .map_or(0, |stat| stat.st_blocks as u64 * 512)
    }

    fn range(&self, cluster: usize) -> Range<u64> {
        let start = cluster as u64 * CLUSTER;
        start..(start + CLUSTER).min(self.bytes)
    }

    fn allocate(&self, range: Range<u64>) -> Result<(), i32> {
        self.file.fallocate(0, range)
    }

    fn punch(&self, range: Range<u64>) {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        if let Err(libc::EOPNOTSUPP | libc::ENOSYS | libc::EPERM) = self.file.fallocate(mode, range)
        {
            self.trims.store(false, Relaxed);
        }
    }
}

/// The pages of the file that `range` reaches into.
fn pages(range: Range<u64>) -> Range<u64> {
    range.start / PAGE..range.end.div_ceil(PAGE)
}

/// `range`, cut at multiples of `size`.
pub(super) fn parts(range: Range<u64>, size: u64) -> impl Iterator<Item = Range<u64>> {
    let mut left = range;
    core::iter::from_fn(move || {
        let end = ((left.start / size + 1) * size).min(left.end);
        let part = left.start..end;
        left.start = end;
        (!part.is_empty()).then_some(part)
    })
}
