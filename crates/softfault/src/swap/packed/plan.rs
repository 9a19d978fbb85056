//! A read of packed slots: the bytes to fetch, and their unpacking.

use super::{GRAIN, PackedPlace};
use core::ops::Range;
use softfault_engine::PAGE_SIZE;

/// Pages of a read at most.
pub(in super::super) const MOST_PAGES: usize = 16;

/// The bytes that one read fetches.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Plan {
    /// Where the fetched bytes begin in the file, and end.
    start: u64,
    end: u64,
    /// Where the first page begins in the file.
    first: u64,
    align: u64,
    /// Bytes of each page.
    bytes: [u16; MOST_PAGES],
    pages: usize,
}

impl Plan {
    pub(super) fn new(align: usize) -> Self {
        Self {
            start: 0,
            end: 0,
            first: 0,
            align: align as u64,
            bytes: [0; MOST_PAGES],
            pages: 0,
        }
    }

    /// Adds a page; false if it does not follow the others in the file.
    pub(super) fn push(&mut self, place: PackedPlace) -> bool {
        let grains = place.grains();
        let (start, end) = (grains.start * GRAIN as u64, grains.end * GRAIN as u64);
        if self.pages == 0 {
            self.first = start;
            self.start = start / self.align * self.align;
        } else if self.pages == MOST_PAGES || start != self.packed_end() {
            return false;
        }
        self.bytes[self.pages] = place.bytes as u16;
        self.pages += 1;
        self.end = end.next_multiple_of(self.align);
        true
    }

    fn packed_end(&self) -> u64 {
        let grains: u64 = self.lengths().map(super::grains).sum();
        self.first + grains * GRAIN as u64
    }

    fn lengths(&self) -> impl Iterator<Item = usize> {
        self.bytes[..self.pages].iter().map(|&bytes| bytes.into())
    }

    /// How many pages it brings.
    pub(in super::super) fn pages(&self) -> usize {
        self.pages
    }

    /// Bytes of the file to fetch.
    pub(in super::super) fn range(&self) -> Range<u64> {
        self.start..self.end
    }

    /// True if the fetched bytes are the pages without compression.
    pub(in super::super) fn is_plain(&self) -> bool {
        let pages = self.lengths().all(|bytes| bytes == PAGE_SIZE);
        pages && self.start == self.first && self.end == self.packed_end()
    }

    /// Makes the pages from the fetched bytes.
    pub(in super::super) fn unpack(&self, fetched: &[u8], pages: &mut [u8]) -> Result<(), i32> {
        let mut at = (self.first - self.start) as usize;
        let mut pages = pages.chunks_exact_mut(PAGE_SIZE);
        for bytes in self.lengths() {
            let (packed, page) = (fetched.get(at..at + bytes), pages.next());
            let (Some(packed), Some(page)) = (packed, page) else {
                return Err(libc::EIO);
            };
            if bytes == PAGE_SIZE {
                page.copy_from_slice(packed);
            } else if lz4_flex::block::decompress_into(packed, page).ok() != Some(PAGE_SIZE) {
                return Err(libc::EIO);
            }
            at += super::grains(bytes) as usize * GRAIN;
        }
        Ok(())
    }
}
