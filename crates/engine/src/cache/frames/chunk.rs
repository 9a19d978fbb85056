//! A chunk of the pool: which of its pages are free.

use super::{CHUNK_BLOCKS, CHUNK_PAGES};
use crate::cache::folio::BLOCK_PAGES;

#[derive(Debug, Clone, Copy)]
pub(super) struct Chunk {
    /// A bit for each free page of each block.
    free: [u16; CHUNK_BLOCKS],
    /// Free pages in all.
    free_pages: u16,
    /// Charged, and given out from.
    present: bool,
    /// Kept for a span of a window; others take its pages last.
    row: bool,
}

impl Chunk {
    /// Without memory.
    pub(super) const ABSENT: Self = Self {
        free: [0; CHUNK_BLOCKS],
        free_pages: 0,
        present: false,
        row: false,
    };

    /// With memory, all of it free.
    pub(super) const FREE: Self = Self {
        free: [u16::MAX; CHUNK_BLOCKS],
        free_pages: CHUNK_PAGES as u16,
        present: true,
        row: false,
    };

    pub(super) fn free_pages(&self) -> usize {
        self.free_pages.into()
    }

    pub(super) fn is_present(&self) -> bool {
        self.present
    }

    /// True if nothing of it is taken.
    pub(super) fn is_free(&self) -> bool {
        self.present && self.free_pages() == CHUNK_PAGES
    }

    /// True if it is kept for a span.
    pub(super) fn is_row(&self) -> bool {
        self.row
    }

    /// Takes one block, if it is whole, and keeps the rest for its neighbours. False if others have a part of the block, or
    /// the chunk is not for a span.
    pub(super) fn take_block(&mut self, block: usize) -> bool {
        if !self.present || self.free[block] != u16::MAX || !(self.row || self.is_free()) {
            return false;
        }
        self.row = true;
        self.free[block] = 0;
        self.free_pages -= BLOCK_PAGES as u16;
        true
    }

    /// Takes a run of pages of one block: the first of them.
    pub(super) fn take(&mut self, pages: usize) -> Option<usize> {
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

    /// Puts pages back. A row of which nothing is taken is one no more.
    pub(super) fn put(&mut self, page: usize, pages: usize) {
        let mask = run_mask(pages) << (page % BLOCK_PAGES);
        let free = &mut self.free[page / BLOCK_PAGES];
        assert!(*free & mask == 0, "frame freed twice");
        *free |= mask;
        self.free_pages += pages as u16;
        self.row &= !self.is_free();
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
