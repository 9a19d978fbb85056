//! The frame pool: where folios live between the read and the touch.
//!
//! Frames are the I/O buffers themselves. The pool grows by chunks of 2 MiB,
//! each charged to the budget when it is taken and given back whole; a chunk
//! is 32 blocks of 16 pages, so that a folio's frames are contiguous and one
//! copy maps them. Allocation prefers the lowest chunk, so that the highest
//! become free and can be given back.
//!
//! A frame under I/O belongs to a locked folio and is freed only by the
//! completion, so it is never reused before.

use super::folio::BLOCK_PAGES;
use crate::budget::Budget;
use crate::lock::Mutex;
use crate::{PAGE_SIZE, mmu::TABLE_SPAN};
use sync::Arc;

/// Pages of a chunk.
pub const CHUNK_PAGES: usize = TABLE_SPAN / PAGE_SIZE;
const CHUNK_BLOCKS: usize = CHUNK_PAGES / BLOCK_PAGES;
/// Of what was in use once and is not now, each batch of reclaim forgets this
/// part. Giving a chunk back that is wanted again at the next window of
/// read-ahead costs more than the pages are worth: a sequential scan spent an
/// eighth of its time on that.
const FORGET: usize = 128;
/// Page tables beneath a chunk, where it is not one huge page.
const CHUNK_TABLES: u64 = 1;

/// Memory for frames: chunks that can be given back to the system.
pub trait FrameMemory: Send + Sync {
    /// The first byte of the whole pool; page-aligned, `bytes` long.
    fn base(&self) -> *mut u8;
    /// Bytes of address space.
    fn bytes(&self) -> usize;
    /// Drops the memory beneath `offset..offset + bytes`.
    fn discard(&self, offset: usize, bytes: usize);
}

#[derive(Debug, Clone, Copy)]
struct Chunk {
    /// A bit for each free page of each block.
    free: [u16; CHUNK_BLOCKS],
    /// Free pages in all.
    free_pages: u16,
    /// Charged, and given out from.
    present: bool,
}

const ABSENT: Chunk = Chunk {
    free: [0; CHUNK_BLOCKS],
    free_pages: 0,
    present: false,
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
    inner: Mutex<Inner>,
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
    /// A pool over `memory`.
    pub fn new(memory: Arc<dyn FrameMemory>, budget: Arc<Budget>) -> Self {
        Self {
            inner: Mutex::new(Inner {
                chunks: vec![ABSENT; memory.bytes() / TABLE_SPAN].into(),
                high: 0,
                lowest: 0,
                present: 0,
                used_pages: 0,
                most_used: 0,
            }),
            memory,
            budget,
        }
    }

    /// Bytes of the pool's own table.
    pub fn table_bytes(&self) -> usize {
        size_of_val(&*self.inner.lock().chunks)
    }

    /// The address of a frame.
    pub fn address(&self, frame: u32) -> *mut u8 {
        let offset = frame as usize * PAGE_SIZE;
        assert!(offset < self.memory.bytes());
        self.memory.base().wrapping_add(offset)
    }

    /// Takes `pages` contiguous frames of one block. Grows the pool by a chunk
    /// if that leaves it within `most` pages and the budget with `reserve`
    /// pages to spare.
    pub fn alloc(&self, pages: usize, most: usize, reserve: u64) -> Option<u32> {
        let mut inner = self.inner.lock();
        if let Some(frame) = inner.take(pages) {
            return Some(frame);
        }
        if (inner.present + 1) * CHUNK_PAGES > most.max(CHUNK_PAGES) {
            return None;
        }
        let charge = CHUNK_PAGES as u64 + CHUNK_TABLES;
        // The first chunk was paid for at the start.
        if inner.present > 0 && !self.budget.try_charge(charge, reserve) {
            return None;
        }
        inner.grow();
        inner.take(pages)
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
            self.memory.discard(chunk * TABLE_SPAN, TABLE_SPAN);
            drop(inner);
            let charge = CHUNK_PAGES as u64 + CHUNK_TABLES;
            self.budget.uncharge(charge);
            given += charge;
        }
    }

    /// Pages that the pool should keep: the most that were in use of late. Each
    /// call forgets a part of what is no longer true.
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

impl Inner {
    fn take(&mut self, pages: usize) -> Option<u32> {
        for index in self.lowest..self.high {
            let free = self.chunks[index].free_pages as usize;
            if free == 0 && index == self.lowest {
                self.lowest += 1;
            }
            if free < pages {
                continue;
            }
            if let Some(page) = self.chunks[index].take(pages) {
                self.used_pages += pages;
                self.most_used = self.most_used.max(self.used_pages);
                return Some((index * CHUNK_PAGES + page) as u32);
            }
        }
        None
    }

    fn put(&mut self, frame: usize, pages: usize) {
        let index = frame / CHUNK_PAGES;
        self.chunks[index].put(frame % CHUNK_PAGES, pages);
        self.used_pages -= pages;
        self.lowest = self.lowest.min(index);
    }

    fn grow(&mut self) {
        let index = (0..self.chunks.len())
            .find(|&index| index >= self.high || !self.chunks[index].present)
            .expect("the address space holds every chunk that the budget can");
        self.chunks[index] = Chunk {
            free: [u16::MAX; CHUNK_BLOCKS],
            free_pages: CHUNK_PAGES as u16,
            present: true,
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
