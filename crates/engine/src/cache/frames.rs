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
//! A frame under I/O belongs to a locked folio and is freed only by the
//! completion, so it is never reused before.

use super::folio::BLOCK_PAGES;
use crate::budget::Budget;
use crate::lock::{Mutex, order};
use crate::table::table;
use crate::{PAGE_SIZE, mmu::TABLE_SPAN};
use core::ptr::{self, NonNull};
use sync::Arc;
use sync::atomic::{AtomicPtr, Ordering};

/// Pages of a chunk.
pub const CHUNK_PAGES: usize = TABLE_SPAN / PAGE_SIZE;
const CHUNK_BLOCKS: usize = CHUNK_PAGES / BLOCK_PAGES;
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

#[derive(Debug, Clone, Copy)]
struct Chunk {
    /// A bit for each free page of each block.
    free: [u16; CHUNK_BLOCKS],
    /// Free pages in all.
    free_pages: u16,
    /// Charged, and given out from.
    present: bool,
    /// Kept for a span of a window; others take its pages last.
    row: bool,
}

const ABSENT: Chunk = Chunk {
    free: [0; CHUNK_BLOCKS],
    free_pages: 0,
    present: false,
    row: false,
};

struct Inner {
    /// One a chunk of the address space.
    chunks: Box<[Chunk]>,
    /// Chunks from here on were never present.
    high: usize,
    /// No chunk before this one has a free page.
    lowest: usize,
    present: usize,
    used_pages: usize,
    /// The most pages in use of late; see [`Frames::wanted`].
    most_used: usize,
}

/// The pool.
pub struct Frames {
    inner: Mutex<Inner, { order::FRAME_POOL }>,
    /// Where each chunk is, or null: written under `inner`. Relaxed: the owner
    /// of a chunk's frame got it under that lock.
    places: Box<[AtomicPtr<u8>]>,
    memory: Arc<dyn FrameMemory>,
    budget: Arc<Budget>,
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
        let frames = Self {
            inner: Mutex::ranked(Inner {
                chunks: table(count, || ABSENT)?,
                high: 0,
                lowest: 0,
                present: 0,
                used_pages: 0,
                most_used: 0,
            }),
            places: table(count, || AtomicPtr::new(ptr::null_mut()))?,
            memory,
            budget,
        };
        // A demand fault always has frames to turn to.
        frames.provide(0).then_some(frames)
    }

    /// Bytes of the pool's own table; where each chunk is, 8 bytes for 2 MiB, is not
    /// counted.
    pub fn table_bytes(&self) -> usize {
        size_of_val(&*self.inner.lock().chunks)
    }

    /// The address of a frame, which the caller has.
    pub fn address(&self, frame: u32) -> *mut u8 {
        let (chunk, page) = (frame as usize / CHUNK_PAGES, frame as usize % CHUNK_PAGES);
        let at = self.places[chunk].load(Ordering::Relaxed);
        assert!(!at.is_null(), "a frame of a chunk that is there");
        at.wrapping_add(page * PAGE_SIZE)
    }

    /// Sees to it that a chunk has memory; the caller has `inner` locked, or the
    /// pool to itself.
    fn provide(&self, chunk: usize) -> bool {
        let place = &self.places[chunk];
        if place.load(Ordering::Relaxed).is_null() {
            let Some(at) = self.memory.provide(chunk) else {
                return false;
            };
            place.store(at.as_ptr(), Ordering::Relaxed);
        }
        true
    }

    /// Gives a chunk's memory back; as above.
    fn discard(&self, chunk: usize) {
        let at = self.places[chunk].swap(ptr::null_mut(), Ordering::Relaxed);
        if let Some(at) = NonNull::new(at) {
            self.memory.discard(chunk, at);
        }
    }

    /// Takes `pages` contiguous frames of one block. Grows the pool by a chunk
    /// if that leaves it within `most` pages and the budget with `reserve`
    /// pages to spare.
    pub fn alloc(&self, pages: usize, most: usize, reserve: u64) -> Option<u32> {
        let mut inner = self.inner.lock();
        if let Some(frame) = inner.take(pages) {
            return Some(frame);
        }
        match self.grow(&mut inner, most, reserve) {
            Some(_) => inner.take(pages),
            None => inner.take_of_rows(pages),
        }
    }

    /// The same of the chunks that there are, but for those that are kept for spans.
    pub fn alloc_present(&self, pages: usize) -> Option<u32> {
        self.inner.lock().take(pages)
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
        let mut inner = self.inner.lock();
        let index = match beside {
            Some(frame) => frame as usize / CHUNK_PAGES,
            None => (inner.free_chunk()).or_else(|| self.grow(&mut inner, most, reserve))?,
        };
        inner.take_block(index, block)
    }

    /// True if the chunk of `frame` is kept for a span, all of it is taken, and it may go.
    pub fn is_full_row(&self, frame: u32) -> bool {
        let inner = self.inner.lock();
        let chunk = &inner.chunks[frame as usize / CHUNK_PAGES];
        chunk.row && chunk.free_pages == 0 && inner.present > 1
    }

    /// The pages of a chunk, all of which the caller has, are in a window now: the chunk goes. Its charge is paid back. `false`
    /// if it is the last one: then its frames are the caller's still, with no pages.
    pub fn give_away(&self, frame: u32) -> bool {
        let index = frame as usize / CHUNK_PAGES;
        let mut inner = self.inner.lock();
        assert!(
            inner.chunks[index].free_pages == 0,
            "all of it is the caller's"
        );
        if inner.present <= 1 {
            return false;
        }
        inner.chunks[index] = ABSENT;
        inner.present -= 1;
        inner.used_pages -= CHUNK_PAGES;
        self.discard(index);
        drop(inner);
        self.budget.uncharge(CHUNK_PAGES as u64 + CHUNK_TABLES);
        true
    }

    /// Adds a chunk to the pool, if that leaves it within `most` pages and the budget with `reserve` pages to spare.
    fn grow(&self, inner: &mut Inner, most: usize, reserve: u64) -> Option<usize> {
        if (inner.present + 1) * CHUNK_PAGES > most.max(CHUNK_PAGES) {
            return None;
        }
        let charge = CHUNK_PAGES as u64 + CHUNK_TABLES;
        // The first chunk was paid for at the start.
        if inner.present > 0 && !self.budget.try_charge(charge, reserve) {
            return None;
        }
        let chunk = inner.absent_chunk();
        if !self.provide(chunk) {
            // As if the pool was not to be any larger.
            if inner.present > 0 {
                self.budget.uncharge(charge);
            }
            return None;
        }
        inner.grow(chunk);
        Some(chunk)
    }

    /// Puts `pages` frames from `frame` back.
    pub fn free(&self, frame: u32, pages: usize) {
        self.inner.lock().put(frame as usize, pages);
    }

    /// Gives free chunks back while the pool has more than `keep` pages;
    /// returns how many pages went back to the budget.
    pub fn shrink(&self, keep: usize) -> u64 {
        let mut given = 0;
        loop {
            let mut inner = self.inner.lock();
            if inner.present * CHUNK_PAGES < keep + CHUNK_PAGES || inner.present <= 1 {
                return given;
            }
            let Some(chunk) = inner.take_free_chunk() else {
                return given;
            };
            // Discarded under the lock: the chunk may be taken again at once.
            self.discard(chunk);
            drop(inner);
            let charge = CHUNK_PAGES as u64 + CHUNK_TABLES;
            self.budget.uncharge(charge);
            given += charge;
        }
    }

    /// Pages that the pool should keep: the most that were in use of late. Each
    /// call forgets a part of the surplus.
    pub fn wanted(&self) -> usize {
        let mut inner = self.inner.lock();
        let unused = inner.most_used - inner.used_pages;
        inner.most_used -= unused.div_ceil(FORGET);
        inner.most_used
    }

    /// How the pool is filled.
    pub fn counts(&self) -> FrameCounts {
        let inner = self.inner.lock();
        FrameCounts {
            present: inner.present * CHUNK_PAGES,
            used: inner.used_pages,
        }
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        for chunk in 0..self.places.len() {
            self.discard(chunk);
        }
    }
}

impl Inner {
    fn take(&mut self, pages: usize) -> Option<u32> {
        for index in self.lowest..self.high {
            let free = self.chunks[index].free_pages as usize;
            if free == 0 && index == self.lowest {
                self.lowest += 1;
            }
            if free < pages || self.chunks[index].row {
                continue;
            }
            if let Some(page) = self.chunks[index].take(pages) {
                return Some(self.taken(index, page, pages));
            }
        }
        None
    }

    /// As `take`, of chunks that are kept for spans.
    fn take_of_rows(&mut self, pages: usize) -> Option<u32> {
        (self.lowest..self.high).find_map(|index| {
            let chunk = &mut self.chunks[index];
            let page = chunk.row.then(|| chunk.take(pages)).flatten()?;
            Some(self.taken(index, page, pages))
        })
    }

    /// Takes one block of a chunk, if it is whole, and keeps the rest for its neighbours.
    fn take_block(&mut self, index: usize, block: usize) -> Option<u32> {
        let chunk = &mut self.chunks[index];
        let is_whole = chunk.free_pages as usize == CHUNK_PAGES;
        if !chunk.present || chunk.free[block] != u16::MAX || !(chunk.row || is_whole) {
            return None;
        }
        chunk.row = true;
        chunk.free[block] = 0;
        chunk.free_pages -= BLOCK_PAGES as u16;
        Some(self.taken(index, block * BLOCK_PAGES, BLOCK_PAGES))
    }

    fn taken(&mut self, index: usize, page: usize, pages: usize) -> u32 {
        self.used_pages += pages;
        self.most_used = self.most_used.max(self.used_pages);
        (index * CHUNK_PAGES + page) as u32
    }

    /// The lowest chunk of which nothing is taken.
    fn free_chunk(&self) -> Option<usize> {
        (self.lowest..self.high).find(|&index| {
            let chunk = &self.chunks[index];
            chunk.present && chunk.free_pages as usize == CHUNK_PAGES
        })
    }

    fn put(&mut self, frame: usize, pages: usize) {
        let index = frame / CHUNK_PAGES;
        let chunk = &mut self.chunks[index];
        chunk.put(frame % CHUNK_PAGES, pages);
        chunk.row &= (chunk.free_pages as usize) < CHUNK_PAGES;
        self.used_pages -= pages;
        self.lowest = self.lowest.min(index);
    }

    /// The chunk to grow by.
    fn absent_chunk(&self) -> usize {
        (0..self.chunks.len())
            .find(|&index| index >= self.high || !self.chunks[index].present)
            .expect("there are as many chunks as the budget can have")
    }

    fn grow(&mut self, index: usize) {
        self.chunks[index] = Chunk {
            free: [u16::MAX; CHUNK_BLOCKS],
            free_pages: CHUNK_PAGES as u16,
            present: true,
            row: false,
        };
        self.high = self.high.max(index + 1);
        self.lowest = self.lowest.min(index);
        self.present += 1;
    }

    /// Marks the highest wholly free chunk absent.
    fn take_free_chunk(&mut self) -> Option<usize> {
        let index = (0..self.high).rev().find(|&index| {
            let chunk = self.chunks[index];
            chunk.present && chunk.free_pages as usize == CHUNK_PAGES
        })?;
        self.chunks[index] = ABSENT;
        self.present -= 1;
        Some(index)
    }
}

impl Chunk {
    fn take(&mut self, pages: usize) -> Option<usize> {
        debug_assert!((1..=BLOCK_PAGES).contains(&pages));
        let run = run_mask(pages);
        // Broken blocks first, so that whole ones stay for read-ahead.
        let broken = (0..CHUNK_BLOCKS)
            .filter(|&block| self.free[block] != u16::MAX)
            .find_map(|block| fit(self.free[block], run, pages).map(|bit| (block, bit)));
        let whole = || {
            let block = self.free.iter().position(|&free| free == u16::MAX)?;
            Some((block, 0))
        };
        let (block, bit) = broken.or_else(whole)?;
        self.free[block] &= !(run << bit);
        self.free_pages -= pages as u16;
        Some(block * BLOCK_PAGES + bit)
    }

    fn put(&mut self, page: usize, pages: usize) {
        let mask = run_mask(pages) << (page % BLOCK_PAGES);
        let free = &mut self.free[page / BLOCK_PAGES];
        assert!(*free & mask == 0, "frame freed twice");
        *free |= mask;
        self.free_pages += pages as u16;
    }
}

fn run_mask(pages: usize) -> u16 {
    (u16::MAX as u32 >> (BLOCK_PAGES - pages)) as u16
}

/// The lowest place in `free` where the run fits.
fn fit(free: u16, run: u16, pages: usize) -> Option<usize> {
    if free == 0 {
        return None;
    }
    (0..=BLOCK_PAGES - pages).find(|&bit| (free >> bit) & run == run)
}
