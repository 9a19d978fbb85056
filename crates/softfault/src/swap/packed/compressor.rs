//! Compressing, into memory that a write can take as it is.

use super::{GRAIN, PackedPlace, grains};
use crate::uffd::copy_page;
use core::ptr::NonNull;
use lz4_flex::block::{CompressTable, compress_into_with_table, get_maximum_output_size};
use softfault_engine::PAGE_SIZE;

/// Bytes of packed pages at a time.
const BYTES: usize = 256 << 10;
/// Pages at a time, a grain each.
const PAGES: usize = BYTES / GRAIN;

/// Pages that are packed, one behind the other, each from a grain on.
pub(super) struct Compressor {
    /// Aligned to a page; [`BYTES`], room for a page that does not compress, and a page that is being compressed.
    memory: NonNull<u8>,
    table: CompressTable,
    /// Bytes of each page, from `next` to `count`.
    bytes: Box<[u16; PAGES]>,
    next: usize,
    count: usize,
    /// Bytes of `memory` that are packed pages.
    filled: usize,
}

// SAFETY: the memory is the compressor's own.
unsafe impl Send for Compressor {}

/// How many pages go into a run of grains.
#[derive(Debug)]
pub(super) struct Fit {
    pub(super) pages: usize,
    /// Grains that they take.
    pub(super) grains: u64,
    /// Bytes of these, up to the alignment.
    pub(super) aligned: usize,
}

impl Compressor {
    /// Where the page is that is being compressed.
    const COPY: usize = BYTES + 2 * PAGE_SIZE;
    const MEMORY: usize = Self::COPY + PAGE_SIZE;

    /// `None` where the system has no memory.
    pub(super) fn new() -> Option<Self> {
        assert!(get_maximum_output_size(PAGE_SIZE) <= 2 * PAGE_SIZE);
        Some(Self {
            memory: sync::pages::map(Self::MEMORY)?,
            table: CompressTable::small(),
            bytes: Box::new([0; PAGES]),
            next: 0,
            count: 0,
            filled: 0,
        })
    }

    fn memory(&mut self) -> &mut [u8] {
        // SAFETY: mapped for so many bytes, and ours.
        unsafe { core::slice::from_raw_parts_mut(self.memory.as_ptr(), Self::COPY) }
    }

    /// Takes as many pages as there is room for, and forgets those from before;
    /// answers the others. An errno if a page is missing: the program has thrown it
    /// away.
    ///
    /// # Safety
    /// Each page is readable, and nobody writes to it meanwhile.
    pub(super) unsafe fn fill<'a>(
        &mut self,
        pages: &'a [*const u8],
    ) -> Result<&'a [*const u8], i32> {
        (self.next, self.count, self.filled) = (0, 0, 0);
        while self.filled + PAGE_SIZE <= BYTES && self.count < PAGES.min(pages.len()) {
            let page = pages[self.count];
            let copy = self.memory.as_ptr().wrapping_add(Self::COPY);
            // The kernel reports missing pages of an uncompressed write; this is read here, and
            // no thread serves a fault of reclaim's.
            // SAFETY: a page of the memory, which is ours.
            let page = match unsafe { copy_page(page.addr(), copy) } {
                Ok(true) => copy.cast_const(),
                Ok(false) | Err(libc::EFAULT) => return Err(libc::EFAULT),
                // A filter refuses the call. It was there a moment ago.
                Err(_) => page,
            };
            // SAFETY: a copy; or the caller's promise.
            let page = unsafe { core::slice::from_raw_parts(page, PAGE_SIZE) };
            let bytes = self.pack(page);
            self.bytes[self.count] = bytes as u16;
            self.filled += grains(bytes) as usize * GRAIN;
            self.count += 1;
        }
        Ok(&pages[self.count..])
    }

    /// Packs a page behind the others.
    fn pack(&mut self, page: &[u8]) -> usize {
        let at = self.filled;
        // SAFETY: mapped for so many bytes, and ours; the table is elsewhere.
        let memory = unsafe { core::slice::from_raw_parts_mut(self.memory.as_ptr(), Self::COPY) };
        let packed = compress_into_with_table(page, &mut memory[at..], &mut self.table);
        match packed {
            Ok(bytes) if bytes <= PAGE_SIZE - GRAIN => bytes,
            _ => {
                memory[at..at + PAGE_SIZE].copy_from_slice(page);
                PAGE_SIZE
            }
        }
    }

    /// Pages that are packed and were not written yet: grains of the first, and of
    /// all; `None` if there is none.
    pub(super) fn left(&self) -> Option<(u64, u64)> {
        let first = (self.next < self.count).then(|| self.grains_of(self.next))?;
        Some((first, (self.filled / GRAIN) as u64))
    }

    fn grains_of(&self, page: usize) -> u64 {
        grains(self.bytes[page].into())
    }

    /// How many of the pages that are left go into so many grains.
    pub(super) fn fit(&self, room: u64, align: usize) -> Fit {
        let mut fit = Fit {
            pages: 0,
            grains: 0,
            aligned: 0,
        };
        for page in self.next..self.count {
            let grains = fit.grains + self.grains_of(page);
            if grains > room {
                break;
            }
            fit.grains = grains;
            fit.pages += 1;
        }
        fit.aligned = (fit.grains as usize * GRAIN).next_multiple_of(align);
        fit
    }

    /// The bytes to write of them.
    pub(super) fn bytes(&mut self, fit: &Fit) -> &mut [u8] {
        &mut self.memory()[..fit.aligned]
    }

    /// Where the pages are if they were written from `grain` on.
    pub(super) fn places(&self, mut grain: u64, fit: &Fit) -> impl Iterator<Item = PackedPlace> {
        let bytes = self.bytes[self.next..self.next + fit.pages].iter();
        bytes.map(move |&bytes| {
            let bytes = bytes.into();
            let place = PackedPlace { grain, bytes };
            grain += grains(bytes);
            place
        })
    }

    /// Forgets pages that were written.
    pub(super) fn advance(&mut self, fit: &Fit) {
        self.next += fit.pages;
        // The rest begins where memory does: writes are aligned.
        let (from, to) = (fit.grains as usize * GRAIN, self.filled);
        self.memory().copy_within(from..to, 0);
        self.filled -= from;
    }
}

impl Drop for Compressor {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`; nobody has it any more.
        unsafe { sync::pages::unmap(self.memory, Self::MEMORY) };
    }
}
