//! Writing back what is dirty of folios that the caller has locked, in the order of the file.

use super::evict::BATCH;
use crate::PAGE_SIZE;
use crate::cache::folio::{BLOCK_PAGES, Folio, flag};
use crate::cache::{Node, PageCache};
use crate::store::PageWrite;
use core::ops::Range;

/// Pages of one call of the store: a MiB of neighbours, or as many requests for a device at a
/// time as it can use.
const PAGES: usize = 256;

/// What is to be written is written down here: too large for the handler's stack.
pub(super) struct WriteSheet {
    folios: [u32; BATCH],
    ranges: [Range<usize>; PAGES],
    pages: [PageWrite; PAGES],
}

impl WriteSheet {
    pub(super) const fn new() -> Self {
        let page = PageWrite {
            offset: 0,
            page: core::ptr::null(),
            result: Ok(()),
        };
        Self {
            folios: [0; BATCH],
            ranges: [const { 0..0 }; PAGES],
            pages: [page; PAGES],
        }
    }
}

/// What is done with pages that their store has not got, when their folio is to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dirty {
    /// They are written; what cannot be written stays.
    Written,
    /// Nobody wants them any more.
    Dropped,
}

impl Node {
    /// Writes back what is dirty of these folios, which the caller has locked. What is dirty
    /// afterwards is pinned, or could not be written, which its cache says.
    pub(super) fn write_back(&self, folios: &[u32], sheet: &mut WriteSheet) {
        let mut count = 0;
        for &id in folios {
            if self.folios.get(id).is(flag::DIRTY) {
                sheet.folios[count] = id;
                count += 1;
            }
        }
        let start = |&id: &u32| self.folios.get(id).range().start;
        sheet.folios[..count].sort_unstable_by_key(start);
        let mut first = 0;
        while first < count {
            let cache = self.folios.get(sheet.folios[first]).cache();
            let (mut end, mut pages) = (first, 0);
            while end < count && pages + BLOCK_PAGES <= PAGES {
                let folio = self.folios.get(sheet.folios[end]);
                if !core::ptr::eq(folio.cache(), cache) {
                    break;
                }
                pages += folio.dirty_pages().count_ones() as usize;
                end += 1;
            }
            self.write_pages(cache, first..end, sheet);
            first = end;
        }
    }

    /// Writes the dirty pages of some folios of the sheet, all of one cache.
    fn write_pages(&self, cache: &PageCache, which: Range<usize>, sheet: &mut WriteSheet) {
        let WriteSheet {
            folios,
            ranges,
            pages,
        } = sheet;
        let folios = folios[which].iter().map(|&id| self.folios.get(id));
        let (mut count, mut protected) = (0, 0);
        for folio in folios.clone() {
            for addr in dirty_addresses(folio, folio.dirty_pages()) {
                pages[count] = PageWrite {
                    offset: cache.offset(addr),
                    page: core::ptr::null(),
                    result: Ok(()),
                };
                count += 1;
                if folio.is_pinned() {
                    continue;
                }
                match ranges[..protected].last_mut() {
                    Some(last) if last.end == addr => last.end += PAGE_SIZE,
                    _ => {
                        ranges[protected] = addr..addr + PAGE_SIZE;
                        protected += 1;
                    }
                }
            }
        }
        if protected > 0 {
            self.mmu.protect(&ranges[..protected]);
        }
        let pages = &mut pages[..count];
        for page in pages.iter_mut() {
            let addr = cache.address(page.offset);
            page.page = self.mmu.bytes(cache.window.reservation(), addr);
        }
        let writes = cache.writes.as_ref().expect("it has been written to");
        // SAFETY: the pages are mapped, and stay: their folios are locked.
        unsafe { writes.to().write(pages, cache.end()) };
        let mut results = pages.iter().map(|page| page.result);
        let mut written = 0;
        for folio in folios {
            let before = folio.dirty_pages();
            let mut left = 0;
            for addr in dirty_addresses(folio, before) {
                let stays = match results.next().expect("one a page") {
                    Ok(()) => {
                        written += 1;
                        folio.is_pinned()
                    }
                    // The program has thrown it away.
                    Err(_) if self.mmu.is_missing(addr) => false,
                    Err(error) => {
                        writes.note(error);
                        self.stats.write_errors.add(1);
                        true
                    }
                };
                left |= if stays { folio.bit_of(addr) } else { 0 };
            }
            cache.end_dirty(folio, left);
        }
        self.stats.written_back.add(written);
    }
}

/// The pages of a folio whose bits are set.
fn dirty_addresses(folio: &Folio, dirty: u32) -> impl Iterator<Item = usize> {
    let addresses = folio.range().step_by(PAGE_SIZE).enumerate();
    addresses.filter_map(move |(page, addr)| (dirty >> page & 1 == 1).then_some(addr))
}
