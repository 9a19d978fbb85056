//! The frame pool: where folios live between the read and the touch.
//!
//! Frames are the I/O buffers themselves. The pool grows by chunks of 2 MiB,
//! each charged to the budget and mapped when it is taken, and given back whole:
//! the pool reserves no address space, so mlockall, which fills mapped memory,
//! and RLIMIT_AS, which counts it, see no more than is in use. A chunk
//! is 32 blocks of 16 pages, so that a folio's frames are contiguous and one
//! copy maps them. Allocation prefers the lowest chunk, so that the highest
//! become free and can be given back.
//!
//! **Rows.** A chunk may be kept for one page table's span of a window: each block in the
//! place that its address has in the span ([`Frames::alloc_in_row`]). Once all of it is
//! read, the pages themselves may go to the window, and the chunk with them
//! ([`Frames::give_away`]).
//!
//! **Parts.** Each part has the chunks of some numbers, and a lock; each processor takes frames of one part as long as there
//! are any, then of the others. So 256 processors do not wait for one lock, and a frame that is free is found by all. A small
//! pool has one part.
//!
//! Locks: one a part, innermost; nobody holds two of them. How many chunks there are is one number, raised before a chunk is
//! taken and lowered with the chunk's part locked.
//!
//! A frame under I/O belongs to a locked folio and is freed only by the
//! completion, so it is never reused before.

mod chunk;
mod part;

use super::folio::BLOCK_PAGES;
use crate::budget::Budget;
use crate::table::table;
use crate::{PAGE_SIZE, mmu::TABLE_SPAN};
use core::ptr::{self, NonNull};
use part::{LockedPart, Part};
use sync::Arc;
use sync::atomic::{AtomicPtr, AtomicUsize, Ordering::Relaxed};

/// Pages of a chunk.
pub const CHUNK_PAGES: usize = TABLE_SPAN / PAGE_SIZE;
const CHUNK_BLOCKS: usize = CHUNK_PAGES / BLOCK_PAGES;
/// Parts of a pool, at most.
const PARTS: usize = if sync::PROCESSORS < 16 {
    sync::PROCESSORS
} else {
    64
};
/// Chunks of a part, at least, if there are several. Few where the world has few processors, so that models see several parts.
const PART_CHUNKS: usize = if sync::PROCESSORS < 8 { 1 } else { 8 };
/// Each batch of reclaim forgets this part of the pages that were in use once and are not
/// now. Giving a chunk back that is wanted again at the next window of
/// read-ahead costs more than the pages are worth: a sequential scan spent an
/// eighth of its time on that.
const FORGET: usize = 128;
/// Page tables beneath a chunk, where it is not one huge page.
const CHUNK_TABLES: u64 = 1;

/// Memory for frames, by the chunk.
pub trait FrameMemory: Send + Sync {
    /// Bytes of all the chunks that the pool may ever have.
    fn bytes(&self) -> usize;
    /// Memory for this chunk, page-aligned; `None` where the system has none.
    fn provide(&self, chunk: usize) -> Option<NonNull<u8>>;
    /// Takes a chunk back that was provided here; nobody uses it.
    fn discard(&self, chunk: usize, at: NonNull<u8>);
}

/// The pool.
pub struct Frames {
    parts: Box<[Part]>,
    chunks: Chunks,
    /// Where each chunk is, or null: written with its part locked. Relaxed: the owner
    /// of a chunk's frame got it under that lock.
    places: Box<[AtomicPtr<u8>]>,
    memory: Arc<dyn FrameMemory>,
    budget: Arc<Budget>,
}

/// Numbers of the whole pool. All orderings are relaxed: they order nothing.
#[repr(align(64))]
struct Chunks {
    /// Chunks that are there. At least one. Raised with the lock of the chunk's part, and lowered with it.
    present: AtomicUsize,
    /// The same, and those that a thread is about to add, which may fail: none of these lets another go. Bounds the pool.
    expected: AtomicUsize,
    /// The most pages in use of late; see [`Frames::wanted`].
    most_used: AtomicUsize,
}

/// How a pool is filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameCounts {
    /// Pages charged.
    pub present: usize,
    /// Pages that folios hold.
    pub used: usize,
}

impl Frames {
    /// A pool over `memory`, with memory for its first chunk. `None` where the
    /// system has not as much.
    pub fn new(memory: Arc<dyn FrameMemory>, budget: Arc<Budget>) -> Option<Self> {
        let count = memory.bytes() / TABLE_SPAN;
        let parts = (count / PART_CHUNKS).clamp(1, PARTS);
        let mut made = Vec::new();
        made.try_reserve_exact(parts).ok()?;
        for number in 0..parts {
            made.push(Part::new(number, parts, (count - number).div_ceil(parts))?);
        }
        let frames = Self {
            parts: made.into_boxed_slice(),
            chunks: Chunks {
                present: AtomicUsize::new(1),
                expected: AtomicUsize::new(1),
                most_used: AtomicUsize::new(0),
            },
            places: table(count, || AtomicPtr::new(ptr::null_mut()))?,
            memory,
            budget,
        };
        // A demand fault always has frames to turn to. They were paid for by the caller.
        let first = frames.provide(0);
        frames.parts[0].lock().grow(0);
        first.then_some(frames)
    }

    /// Bytes of the pool's own table; where each chunk is, 8 bytes for 2 MiB, is not
    /// counted.
    pub fn table_bytes(&self) -> usize {
        self.parts.iter().map(Part::table_bytes).sum()
    }

    /// The address of a frame, which the caller has.
    pub fn address(&self, frame: u32) -> *mut u8 {
        let (chunk, page) = (frame as usize / CHUNK_PAGES, frame as usize % CHUNK_PAGES);
        let at = self.places[chunk].load(Relaxed);
        assert!(!at.is_null(), "a frame of a chunk that is there");
        at.wrapping_add(page * PAGE_SIZE)
    }

    /// Sees to it that a chunk has memory; the caller has its part locked, or the
    /// pool to itself.
    fn provide(&self, chunk: usize) -> bool {
        let place = &self.places[chunk];
        if place.load(Relaxed).is_null() {
            let Some(at) = self.memory.provide(chunk) else {
                return false;
            };
            place.store(at.as_ptr(), Relaxed);
        }
        true
    }

    /// Gives a chunk's memory back; as above.
    fn discard(&self, chunk: usize) {
        let at = self.places[chunk].swap(ptr::null_mut(), Relaxed);
        if let Some(at) = NonNull::new(at) {
            self.memory.discard(chunk, at);
        }
    }

    /// The parts, the caller's processor's first.
    fn own_first(&self) -> impl Iterator<Item = &Part> {
        let own = sync::cpu() % self.parts.len();
        self.parts[own..].iter().chain(&self.parts[..own])
    }

    /// Locks those one after the other that have so many pages free.
    fn with_free(&self, pages: usize) -> impl Iterator<Item = LockedPart<'_>> {
        let has_free = move |part: &&Part| part.free_pages() >= pages;
        self.own_first().filter(has_free).map(Part::lock)
    }

    /// The part of a frame, which the caller has.
    fn part_of(&self, frame: u32) -> LockedPart<'_> {
        self.parts[frame as usize / CHUNK_PAGES % self.parts.len()].lock()
    }

    /// Takes `pages` contiguous frames of one block. Grows the pool by a chunk
    /// if that leaves it within `most` pages and the budget with `reserve`
    /// pages to spare.
    pub fn alloc(&self, pages: usize, most: usize, reserve: u64) -> Option<u32> {
        self.alloc_present(pages)
            .or_else(|| self.grow(most, reserve, |part, _| part.take(pages)))
            .or_else(|| {
                let mut parts = self.with_free(pages);
                parts.find_map(|mut part| part.take_of_rows(pages))
            })
    }

    /// The same of the chunks that there are, but for those that are kept for spans.
    pub fn alloc_present(&self, pages: usize) -> Option<u32> {
        let mut parts = self.with_free(pages);
        parts.find_map(|mut part| part.take(pages))
    }

    /// Takes the frames of block `block` of a chunk that is kept for the span that this block is of: the chunk of `beside`,
    /// which another block of the span has, or, where there is none, a chunk of its own, for which the pool grows as in
    /// [`alloc`](Self::alloc). `None` where there is no such chunk, or others have taken that part of it.
    pub fn alloc_in_row(
        &self,
        block: usize,
        beside: Option<u32>,
        most: usize,
        reserve: u64,
    ) -> Option<u32> {
        if let Some(frame) = beside {
            return self.part_of(frame).take_block(frame, block);
        }
        let mut parts = self.with_free(CHUNK_PAGES);
        parts
            .find_map(|mut part| {
                let first = part.free_chunk()?;
                part.take_block(first, block)
            })
            .or_else(|| self.grow(most, reserve, |part, first| part.take_block(first, block)))
    }

    /// True if the chunk of `frame` is kept for a span, all of it is taken, and it may go.
    pub fn is_full_row(&self, frame: u32) -> bool {
        self.part_of(frame).is_full_row(frame) && self.chunks.present.load(Relaxed) > 1
    }

    /// The pages of a chunk, all of which the caller has, are in a window now: the chunk goes. Its charge is paid back. `false`
    /// if it is the last one: then its frames are the caller's still, with no pages.
    pub fn give_away(&self, frame: u32) -> bool {
        let mut part = self.part_of(frame);
        if !self.has_one_less(0) {
            return false;
        }
        let chunk = part.give_away(frame);
        self.discard(chunk);
        drop(part);
        self.budget.uncharge(CHUNK_PAGES as u64 + CHUNK_TABLES);
        true
    }

    /// Adds a chunk to the pool, if that leaves it within `most` pages and the budget with `reserve` pages to spare, and takes
    /// frames of it, by its first frame.
    fn grow(
        &self,
        most: usize,
        reserve: u64,
        take: impl Fn(&mut LockedPart<'_>, u32) -> Option<u32>,
    ) -> Option<u32> {
        let Chunks {
            present, expected, ..
        } = &self.chunks;
        let more = |expected: usize| {
            let is_within = (expected + 1) * CHUNK_PAGES <= most.max(CHUNK_PAGES);
            is_within.then_some(expected + 1)
        };
        expected.fetch_update(Relaxed, Relaxed, more).ok()?;
        let charge = CHUNK_PAGES as u64 + CHUNK_TABLES;
        if !self.budget.try_charge(charge, reserve) {
            expected.fetch_sub(1, Relaxed);
            return None;
        }
        for part in self.own_first() {
            let mut part = part.lock();
            let Some(chunk) = part.absent_chunk() else {
                continue;
            };
            if !self.provide(chunk) {
                break;
            }
            part.grow(chunk);
            present.fetch_add(1, Relaxed);
            return take(&mut part, (chunk * CHUNK_PAGES) as u32);
        }
        // As if the pool was not to be any larger.
        expected.fetch_sub(1, Relaxed);
        self.budget.uncharge(charge);
        None
    }

    /// Puts `pages` frames from `frame` back.
    pub fn free(&self, frame: u32, pages: usize) {
        self.part_of(frame).put(frame, pages);
    }

    /// Gives free chunks back while the pool has more than `keep` pages;
    /// returns how many pages went back to the budget.
    pub fn shrink(&self, keep: usize) -> u64 {
        let charge = CHUNK_PAGES as u64 + CHUNK_TABLES;
        let mut given = 0;
        while may_have_less(self.chunks.present.load(Relaxed), keep) {
            let mut parts = self.with_free(CHUNK_PAGES);
            let is_less = parts.any(|mut part| {
                let Some(chunk) = part.last_free_chunk() else {
                    return false;
                };
                let is_less = self.has_one_less(keep);
                if is_less {
                    part.make_absent(chunk);
                    // Discarded under the lock: the chunk may be taken again at once.
                    self.discard(chunk);
                }
                is_less
            });
            if !is_less {
                break;
            }
            self.budget.uncharge(charge);
            given += charge;
        }
        given
    }

    /// Counts a chunk out, if the pool has `keep` pages without it, and has another. The caller has a part locked from which
    /// a chunk is to go.
    fn has_one_less(&self, keep: usize) -> bool {
        let less = |present: usize| may_have_less(present, keep).then(|| present - 1);
        let Chunks {
            present, expected, ..
        } = &self.chunks;
        let is_less = present.fetch_update(Relaxed, Relaxed, less).is_ok();
        if is_less {
            expected.fetch_sub(1, Relaxed);
        }
        is_less
    }

    /// Pages that the pool should keep: the most that were in use of late. Each
    /// call forgets a part of the surplus.
    pub fn wanted(&self) -> usize {
        let used = self.used();
        let most_used = &self.chunks.most_used;
        let most = most_used.load(Relaxed);
        let less = most - most.saturating_sub(used).div_ceil(FORGET);
        // Where others change it meanwhile, they forget.
        let _ = most_used.compare_exchange(most, less, Relaxed, Relaxed);
        less
    }

    /// Pages that folios hold, about, while others take and give.
    fn used(&self) -> usize {
        let used = self.parts.iter().map(Part::used_pages).sum();
        let most_used = &self.chunks.most_used;
        if most_used.load(Relaxed) < used {
            most_used.fetch_max(used, Relaxed);
        }
        used
    }

    /// Pages charged. Cheaper than [`counts`](Self::counts), which looks at all parts.
    pub fn present(&self) -> usize {
        self.chunks.present.load(Relaxed) * CHUNK_PAGES
    }

    /// How the pool is filled, about, while others take and give.
    pub fn counts(&self) -> FrameCounts {
        FrameCounts {
            present: self.present(),
            used: self.used(),
        }
    }
}

/// True if one of so many chunks may go: the others have `keep` pages, and there is another.
fn may_have_less(present: usize, keep: usize) -> bool {
    present > 1 && present * CHUNK_PAGES >= keep + CHUNK_PAGES
}

impl Drop for Frames {
    fn drop(&mut self) {
        for chunk in 0..self.places.len() {
            self.discard(chunk);
        }
    }
}
