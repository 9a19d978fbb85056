//! A part of the pool: some of its chunks, under one lock.

use super::CHUNK_PAGES;
use super::chunk::Chunk;
use crate::cache::folio::BLOCK_PAGES;
use crate::lock::{Mutex, MutexGuard, order};
use crate::table::table;
use sync::stat::Gauge;

/// Every so many chunks of the pool, from one on.
#[repr(align(64))]
pub(super) struct Part {
    inner: Mutex<Inner, { order::FRAME_POOL }>,
    unlocked: UnlockedCounts,
    /// Immutable: its number, and how many there are.
    number: usize,
    parts: usize,
    /// Immutable.
    slots: usize,
}

/// Numbers that are read without the lock, on a line of their own. Set under it; old at once.
#[derive(Default)]
#[repr(align(64))]
struct UnlockedCounts {
    free: Gauge,
    used: Gauge,
}

struct Inner {
    chunks: Box<[Chunk]>,
    /// Slots from here on never had a chunk.
    high: usize,
    /// No chunk before this one has a free page.
    lowest: usize,
    free_pages: usize,
    used_pages: usize,
}

impl Part {
    /// Part `number` of `parts`, with room for so many chunks. `None` where the system has no memory for its table.
    pub(super) fn new(number: usize, parts: usize, slots: usize) -> Option<Self> {
        Some(Self {
            inner: Mutex::ranked(Inner {
                chunks: table(slots, || Chunk::ABSENT)?,
                high: 0,
                lowest: 0,
                free_pages: 0,
                used_pages: 0,
            }),
            unlocked: UnlockedCounts::default(),
            number,
            parts,
            slots,
        })
    }

    pub(super) fn table_bytes(&self) -> usize {
        self.slots * size_of::<Chunk>()
    }

    /// Free pages of its chunks.
    pub(super) fn free_pages(&self) -> usize {
        self.unlocked.free.get() as usize
    }

    /// Pages of its chunks that folios hold.
    pub(super) fn used_pages(&self) -> usize {
        self.unlocked.used.get() as usize
    }

    pub(super) fn lock(&self) -> LockedPart<'_> {
        LockedPart {
            inner: self.inner.lock(),
            part: self,
        }
    }
}

/// A part, locked. Frames and chunks have their numbers in the pool.
pub(super) struct LockedPart<'a> {
    inner: MutexGuard<'a, Inner, { order::FRAME_POOL }>,
    part: &'a Part,
}

impl LockedPart<'_> {
    fn slot(&self, frame: u32) -> usize {
        frame as usize / CHUNK_PAGES / self.part.parts
    }

    fn chunk(&self, slot: usize) -> usize {
        slot * self.part.parts + self.part.number
    }

    fn frame(&self, slot: usize, page: usize) -> u32 {
        (self.chunk(slot) * CHUNK_PAGES + page) as u32
    }

    /// Takes a run of pages of one block, in the lowest chunk that has one and is kept for no span.
    pub(super) fn take(&mut self, pages: usize) -> Option<u32> {
        let inner = &mut *self.inner;
        for slot in inner.lowest..inner.high {
            let chunk = &mut inner.chunks[slot];
            let free = chunk.free_pages();
            if free == 0 && slot == inner.lowest {
                inner.lowest += 1;
            }
            if free < pages || chunk.is_row() {
                continue;
            }
            if let Some(page) = chunk.take(pages) {
                return Some(self.taken(slot, page, pages));
            }
        }
        None
    }

    /// As `take`, of chunks that are kept for spans.
    pub(super) fn take_of_rows(&mut self, pages: usize) -> Option<u32> {
        (self.inner.lowest..self.inner.high).find_map(|slot| {
            let chunk = &mut self.inner.chunks[slot];
            let page = chunk.is_row().then(|| chunk.take(pages)).flatten()?;
            Some(self.taken(slot, page, pages))
        })
    }

    /// Takes a block of the chunk of `frame`, as [`Chunk::take_block`].
    pub(super) fn take_block(&mut self, frame: u32, block: usize) -> Option<u32> {
        let slot = self.slot(frame);
        let is_taken = self.inner.chunks[slot].take_block(block);
        is_taken.then(|| self.taken(slot, block * BLOCK_PAGES, BLOCK_PAGES))
    }

    fn taken(&mut self, slot: usize, page: usize, pages: usize) -> u32 {
        self.inner.free_pages -= pages;
        self.inner.used_pages += pages;
        self.frame(slot, page)
    }

    /// The lowest chunk of which nothing is taken, by its first frame.
    pub(super) fn free_chunk(&self) -> Option<u32> {
        let inner = &*self.inner;
        let slot = (inner.lowest..inner.high).find(|&slot| inner.chunks[slot].is_free())?;
        Some(self.frame(slot, 0))
    }

    /// True if the chunk of `frame` is kept for a span, and all of it is taken.
    pub(super) fn is_full_row(&self, frame: u32) -> bool {
        let chunk = &self.inner.chunks[self.slot(frame)];
        chunk.is_row() && chunk.free_pages() == 0
    }

    /// Marks the chunk of `frame` absent, all of which is the caller's; which one it is.
    pub(super) fn give_away(&mut self, frame: u32) -> usize {
        let slot = self.slot(frame);
        let chunk = &mut self.inner.chunks[slot];
        assert!(chunk.free_pages() == 0, "all of it is the caller's");
        *chunk = Chunk::ABSENT;
        self.inner.used_pages -= CHUNK_PAGES;
        self.chunk(slot)
    }

    pub(super) fn put(&mut self, frame: u32, pages: usize) {
        let slot = self.slot(frame);
        let inner = &mut *self.inner;
        inner.chunks[slot].put(frame as usize % CHUNK_PAGES, pages);
        inner.free_pages += pages;
        inner.used_pages -= pages;
        inner.lowest = inner.lowest.min(slot);
    }

    /// The chunk to grow by.
    pub(super) fn absent_chunk(&self) -> Option<usize> {
        let mut chunks = self.inner.chunks.iter();
        let slot = chunks.position(|chunk| !chunk.is_present())?;
        Some(self.chunk(slot))
    }

    /// A chunk has memory, and is free.
    pub(super) fn grow(&mut self, chunk: usize) {
        let slot = chunk / self.part.parts;
        let inner = &mut *self.inner;
        inner.chunks[slot] = Chunk::FREE;
        inner.high = inner.high.max(slot + 1);
        inner.lowest = inner.lowest.min(slot);
        inner.free_pages += CHUNK_PAGES;
    }

    /// The highest chunk of which nothing is taken.
    pub(super) fn last_free_chunk(&self) -> Option<usize> {
        let inner = &*self.inner;
        let mut slots = (inner.lowest..inner.high).rev();
        let slot = slots.find(|&slot| inner.chunks[slot].is_free())?;
        Some(self.chunk(slot))
    }

    /// Such a chunk goes.
    pub(super) fn make_absent(&mut self, chunk: usize) {
        self.inner.chunks[chunk / self.part.parts] = Chunk::ABSENT;
        self.inner.free_pages -= CHUNK_PAGES;
    }
}

impl Drop for LockedPart<'_> {
    fn drop(&mut self) {
        // Not where nothing has changed: others read the line.
        let show = |gauge: &Gauge, pages: usize| {
            if gauge.get() as usize != pages {
                gauge.set(pages as u32);
            }
        };
        show(&self.part.unlocked.free, self.inner.free_pages);
        show(&self.part.unlocked.used, self.inner.used_pages);
    }
}
