//! Frames: the memory behind soft page tables, by number. Pages and tables
//! both live in them.
//!
//! ```text
//!   memory  | zeros | frame 1 | frame 2 | ...            untouched until used
//!   notes   |   0   | note 1  | note 2  | ...            16 bytes a frame
//! ```
//!
//! Frame 0 is the page of zeros that all holes show; it is never written to.
//! The others are free, or fresh (never used), or in use. Free ones form
//! lists through their notes (`chain.rs`): a short one in each shard, for the
//! processors with one number modulo [`SHARDS`], and depots for the rest. A shard that has run dry
//! takes a batch from the depot that it shares with its neighbours, then from any other, and
//! a few fresh ones only when all are empty: the frames that were ever used are the most
//! used at one time, and those that shards keep (`KEPT` each).
//!
//! Lock rules: a shard's lock, then a depot's; never two shards', nor two depots'.

use super::chain::{BATCH, Chain, FREE, FreeBatches};
use crate::PAGE_SIZE;
use crate::lock::{Mutex, order};
use core::ops::Range;
use core::ptr::NonNull;
use sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use sync::atomic::{AtomicBool, AtomicU32};
use sync::{bytes, hint, pages};

/// The page of zeros. As a link: the end of a list.
pub const ZEROS: u32 = 0;
/// Shards of the product.
pub const SHARDS: usize = 256;
/// Shards that have a depot together. One where the world has few processors, so that models see several depots. (With one
/// depot for all, threads on 256 processors that thrashed slept for its lock most of all, and their shards' locked.)
const NEIGHBOURS: usize = if sync::PROCESSORS < 8 { 1 } else { 16 };
/// Frames that are opened at a time: 4 MiB.
const OPENED: u32 = 1024;
/// Free frames that a shard keeps at most. It takes as many as a batch at a time, from the depot or fresh.
const KEPT: u32 = 2 * BATCH;

/// The state of a frame.
#[derive(Debug)]
pub(super) struct FrameState {
    /// References, 1 and up; or [`FREE`] and the next free frame.
    pub(super) word: AtomicU32,
    /// Of the first frame of a batch: the first one of the next.
    pub(super) next_batch: AtomicU32,
    /// Of a leaf table: its lock, and how many of its entries are in use.
    leaf: Mutex<u32, { order::SOFT_LEAF }>,
}

/// All frames of some page tables.
#[derive(Debug)]
pub struct Frames {
    /// A page a frame. Immutable; whose a page is, its note says.
    memory: NonNull<u8>,
    /// A note a frame. Written when the frame is first taken, atomics from
    /// then on.
    notes: NonNull<FrameState>,
    /// Frames, with the page of zeros. Immutable.
    count: u32,
    /// Frames behind them that have no notes: huge pages are made of them. Immutable.
    huge: u32,
    /// Frames from here on are in no shard yet.
    fresh: AtomicU32,
    /// Frames from here on, and their notes, may not be touched yet: memory that the program
    /// locks (`mlockall`) is not filled before it is of use. Raised with
    /// `opening` locked.
    opened: AtomicU32,
    opening: Mutex<()>,
    shards: Box<[Shard]>,
    /// Free frames that no shard keeps.
    depots: Box<[Depot]>,
}

// SAFETY: the memory is owned; the notes, which are atomics, and the page tables
// say which pages are in use.
unsafe impl Send for Frames {}
// SAFETY: as above.
unsafe impl Sync for Frames {}

#[derive(Debug)]
#[repr(align(64))]
struct Shard(Mutex<FreeFrames, { order::FRAME_SHARD }>);

#[derive(Debug)]
#[repr(align(64))]
struct Depot {
    batches: Mutex<FreeBatches, { order::FRAME_DEPOT }>,
    /// Whether there is one, for a look without the lock. Written under it.
    is_empty: AtomicBool,
}

impl Depot {
    fn new() -> Self {
        Self {
            batches: Mutex::ranked(FreeBatches::default()),
            is_empty: AtomicBool::new(true),
        }
    }

    fn pop(&self, frames: &Frames) -> Option<u32> {
        // Relaxed: the shards' locks order it for a thread that looks for the last free frames; for others it is a guess.
        if self.is_empty.load(Relaxed) {
            return None;
        }
        let mut batches = self.batches.lock();
        let batch = batches.pop(frames);
        self.note(&batches);
        batch
    }

    fn splice(&self, frames: &Frames, more: FreeBatches) {
        let mut batches = self.batches.lock();
        batches.splice(frames, more);
        self.note(&batches);
    }

    fn note(&self, batches: &FreeBatches) {
        // Not where nothing has changed: others read it.
        if self.is_empty.load(Relaxed) != batches.is_empty() {
            self.is_empty.store(batches.is_empty(), Relaxed);
        }
    }
}

/// Free frames of a shard.
#[derive(Debug, Default)]
struct FreeFrames {
    free: Chain,
    /// Never used so far.
    fresh: Range<u32>,
}

impl Frames {
    /// `bytes` of memory for frames, in so many shards. None of it is touched
    /// before it is used. `None` where the system has no address space.
    pub fn new(bytes: usize, shards: usize) -> Option<Self> {
        Self::with_huge(bytes, 0, shards)
    }

    /// The same, and so many bytes for huge pages.
    pub fn with_huge(bytes: usize, huge_bytes: usize, shards: usize) -> Option<Self> {
        let (count, huge) = (bytes / PAGE_SIZE, huge_bytes / PAGE_SIZE);
        assert!(count > 1, "{count} frames");
        if count.saturating_add(huge) >= FREE as usize {
            return None;
        }
        let notes = pages::reserve(note_bytes(count)).ok()?;
        let Ok(memory) = pages::reserve((count + huge) * PAGE_SIZE) else {
            // SAFETY: reserved above, and nobody has seen it.
            unsafe { pages::unmap(notes, note_bytes(count)) };
            return None;
        };
        let shard = |_| Shard(Mutex::ranked(FreeFrames::default()));
        let frames = Self {
            memory,
            notes: notes.cast(),
            count: count as u32,
            huge: huge as u32,
            fresh: AtomicU32::new(ZEROS + 1),
            opened: AtomicU32::new(0),
            opening: Mutex::new(()),
            shards: (0..shards).map(shard).collect(),
            depots: (0..shards.div_ceil(NEIGHBOURS))
                .map(|_| Depot::new())
                .collect(),
        };
        // SAFETY: the pages of the huge frames.
        let huge =
            huge == 0 || unsafe { pages::open(memory.add(count * PAGE_SIZE), huge * PAGE_SIZE) };
        (huge && frames.open_to(ZEROS + 1)).then_some(frames)
    }

    /// Lets the frames below `end` be touched, and their notes. `false` where the
    /// system does not let them.
    fn open_to(&self, end: u32) -> bool {
        // Acquire pairs with the Release below, for the system's work on the memory.
        if end <= self.opened.load(Acquire) {
            return true;
        }
        let _opening = self.opening.lock();
        let opened = self.opened.load(Relaxed);
        if end <= opened {
            return true;
        }
        let next = end.next_multiple_of(OPENED).min(self.count);
        let notes = note_bytes(opened as usize)..note_bytes(next as usize);
        let pages = opened as usize * PAGE_SIZE..next as usize * PAGE_SIZE;
        // SAFETY: parts of both reservations, which have room for all frames.
        let done = unsafe {
            pages::open(self.memory.add(pages.start), pages.len())
                && pages::open(self.notes.cast::<u8>().add(notes.start), notes.len())
        };
        if done {
            self.opened.store(next, Release);
        }
        done
    }

    /// The frames that huge pages are made of.
    pub fn huge(&self) -> Range<u32> {
        self.count..self.count + self.huge
    }

    /// Frames that were ever used: those take up memory.
    pub fn used(&self) -> usize {
        // Relaxed: a count for people.
        self.fresh.load(Relaxed) as usize - 1
    }

    /// Takes a frame for each place of `taken`, or none. Each has one
    /// reference, and its last contents.
    #[inline]
    pub fn alloc(&self, taken: &mut [u32]) -> bool {
        let own = sync::cpu() % self.shards.len();
        let mut stock = self.shards[own].0.lock();
        let mut got = 0;
        while got < taken.len() {
            match self.take(own, &mut stock) {
                Some(frame) => taken[got] = frame,
                None => {
                    drop(stock);
                    return self.alloc_from_others(own, taken, got);
                }
            }
            got += 1;
        }
        if let Some(next) = stock.free.next() {
            // Its next owner will write it: reading all of a page from memory
            // takes a good half of a fault's time.
            hint::prefetch(self.address(next), PAGE_SIZE);
        }
        true
    }

    /// The same for one frame.
    #[inline]
    pub fn alloc_one(&self) -> Option<u32> {
        let mut taken = [ZEROS];
        self.alloc(&mut taken).then_some(taken[0])
    }

    #[inline]
    fn take(&self, own: usize, stock: &mut FreeFrames) -> Option<u32> {
        stock.free.pop(self).or_else(|| self.take_more(own, stock))
    }

    /// The same where the shard has no free frame.
    fn take_more(&self, own: usize, stock: &mut FreeFrames) -> Option<u32> {
        let (others, first) = self.depots.split_at(own / NEIGHBOURS);
        let mut depots = first.iter().chain(others);
        // Fresh ones that the shard has already come first: else the depots' locks
        // would be everybody's for as long as they are empty.
        if stock.fresh.is_empty()
            && let Some(batch) = depots.find_map(|depot| depot.pop(self))
        {
            stock.free.fill(batch);
        }
        stock.free.pop(self).or_else(|| self.take_fresh(stock))
    }

    fn take_fresh(&self, stock: &mut FreeFrames) -> Option<u32> {
        if stock.fresh.is_empty() {
            // Relaxed: it only has to be another's each time.
            let more = |fresh: u32| {
                (fresh < self.count).then_some(fresh.saturating_add(BATCH).min(self.count))
            };
            let first = self.fresh.fetch_update(Relaxed, Relaxed, more).ok()?;
            let last = first.saturating_add(BATCH).min(self.count);
            if !self.open_to(last) {
                // Lost, until the page tables go.
                return None;
            }
            stock.fresh = first..last;
        }
        let frame = stock.fresh.next()?;
        let note = FrameState {
            word: AtomicU32::new(1),
            next_batch: AtomicU32::new(ZEROS),
            leaf: Mutex::ranked(0),
        };
        // SAFETY: there is a note for each frame below `count`, and nobody has
        // looked at that of a fresh one.
        unsafe { self.notes.add(frame as usize).write(note) };
        Some(frame)
    }

    /// Shard `own`, the depots and the fresh frames are used up: takes frames that the
    /// other shards keep.
    #[cold]
    fn alloc_from_others(&self, own: usize, taken: &mut [u32], mut got: usize) -> bool {
        for step in 0..self.shards.len() {
            let other = (own + step) % self.shards.len();
            let mut stock = self.shards[other].0.lock();
            while got < taken.len()
                && let Some(frame) = self.take(other, &mut stock)
            {
                taken[got] = frame;
                got += 1;
            }
            if got == taken.len() {
                return true;
            }
        }
        for &frame in &taken[..got] {
            self.put(frame);
        }
        false
    }

    /// Gives a list of frames back. Batches that are too many for the shard go to its depot.
    pub fn free(&self, mut chain: Chain) {
        let own = sync::cpu() % self.shards.len();
        let mut surplus = FreeBatches::default();
        let mut stock = self.shards[own].0.lock();
        if stock.free.frames() + chain.frames() > KEPT {
            surplus = chain.take_others();
        }
        stock.free.splice(self, chain);
        if stock.free.frames() > KEPT {
            surplus.splice(self, stock.free.take_others());
        }
        // With the shard locked: a thread that looks through all shards for the last free frames finds these in one or the other.
        if !surplus.is_empty() {
            self.depots[own / NEIGHBOURS].splice(self, surplus);
        }
    }

    /// Another reference to a frame that the caller has one to.
    pub fn get(&self, frame: u32) {
        // Relaxed: the new reference is handed on by the caller's locks.
        let refs = self.note(frame).word.fetch_add(1, Relaxed);
        assert!(refs & FREE == 0 && refs > 0, "frame {frame} is free");
    }

    /// Drops a reference; the last one frees the frame.
    pub fn put(&self, frame: u32) {
        let word = &self.note(frame).word;
        if !self.is_only(frame) {
            // AcqRel: the holder of the last one comes after all that
            // the others did with the frame, here or in `is_only`.
            let refs = word.fetch_sub(1, AcqRel);
            assert!(refs & FREE == 0 && refs > 0, "frame {frame} is free");
            if refs > 1 {
                return;
            }
            // Others were faster: it has become the last.
            word.store(1, Relaxed);
        }
        let mut chain = Chain::default();
        chain.push(self, frame);
        self.free(chain);
    }

    /// True if the caller's reference is the only one. It stays so, since a
    /// reference comes from a reference.
    pub fn is_only(&self, frame: u32) -> bool {
        // Acquire pairs with the Release of `put`.
        self.note(frame).word.load(Acquire) == 1
    }

    /// The lock of a leaf table. Any frame that was ever taken has one: a thread that
    /// comes late locks a frame that is no leaf any more, and finds that out.
    pub fn leaf(&self, frame: u32) -> &Mutex<u32, { order::SOFT_LEAF }> {
        &self.note(frame).leaf
    }

    pub(super) fn note(&self, frame: u32) -> &FrameState {
        assert!(frame != ZEROS && frame < self.count, "no frame {frame}");
        // SAFETY: there is a note for each frame below `count`; it was written
        // before the number was first given out.
        unsafe { self.notes.add(frame as usize).as_ref() }
    }

    /// Where a frame is. The page lives as long as `self`.
    pub fn address(&self, frame: u32) -> NonNull<u8> {
        assert!(frame < self.count + self.huge, "no frame {frame}");
        // SAFETY: there is a page for each frame, and for those of huge pages.
        unsafe { self.memory.add(frame as usize * PAGE_SIZE) }
    }

    /// Fills a frame with zeros.
    ///
    /// # Safety
    /// The caller has the only reference, and nobody reads the frame.
    pub unsafe fn clear(&self, frame: u32) {
        assert!(frame != ZEROS);
        // SAFETY: a whole page, the caller's alone.
        unsafe { bytes::clear(self.address(frame).as_ptr(), PAGE_SIZE) };
    }

    /// Fills a frame with the page at `source`.
    ///
    /// # Safety
    /// As `clear`; `source` is readable for a page, and nobody writes it.
    pub unsafe fn copy_from(&self, frame: u32, source: *const u8) {
        assert!(frame != ZEROS);
        let page = self.address(frame).as_ptr();
        // SAFETY: the caller's promise.
        unsafe { bytes::copy(source, page, PAGE_SIZE) };
    }

    /// Copies bytes out of a frame that others may be writing to.
    ///
    /// # Safety
    /// The frame is not reused meanwhile.
    #[inline]
    pub unsafe fn load(&self, frame: u32, at: usize, target: &mut [u8]) {
        assert!(at + target.len() <= PAGE_SIZE);
        // SAFETY: within a page, whose bytes are accessed in this way by all
        // while it is shown; a page ends with an aligned word.
        unsafe {
            let source = self.address(frame).add(at).as_ptr();
            bytes::load(source, target.as_mut_ptr(), target.len());
        }
    }

    /// Copies bytes into a frame that others may be accessing.
    ///
    /// # Safety
    /// The frame is not reused meanwhile.
    #[inline]
    pub unsafe fn store(&self, frame: u32, at: usize, source: &[u8]) {
        assert!(frame != ZEROS && at + source.len() <= PAGE_SIZE);
        // SAFETY: as in `load`.
        unsafe {
            let target = self.address(frame).add(at).as_ptr();
            bytes::store(source.as_ptr(), target, source.len());
        }
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        let count = self.count as usize;
        // SAFETY: mapped in `new`, and nobody borrows the frames any more.
        // Notes own nothing.
        unsafe {
            pages::unmap(self.memory, (count + self.huge as usize) * PAGE_SIZE);
            pages::unmap(self.notes.cast(), note_bytes(count));
        }
    }
}

fn note_bytes(frames: usize) -> usize {
    (frames * size_of::<FrameState>()).next_multiple_of(PAGE_SIZE)
}
