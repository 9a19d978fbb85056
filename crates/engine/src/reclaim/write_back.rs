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

/// Folios of a batch, with their neighbours.
const MOST: usize = 3 * BATCH;
/// Neighbours of one folio, at most.
const CLUSTER: usize = 16;

/// Folios that somebody may write to, above which the whole window is protected rather than each of them.
const SCATTERED: usize = 32;

/// What is to be written is written down here: too large for the handler's stack.
pub(super) struct WriteSheet {
    /// What the caller has locked of what is dirty.
    folios: Box<[u32]>,
    /// That, and neighbours that are dirty too, in the order of the file.
    all: Box<[u32]>,
    /// The neighbours.
    neighbours: Box<[u32]>,
    ranges: Box<[Range<usize>]>,
    pages: Box<[PageWrite]>,
}

impl WriteSheet {
    /// Made where it lies: not on the stack either.
    pub(super) fn new() -> Self {
        let page = PageWrite {
            offset: 0,
            page: core::ptr::null(),
            result: Ok(()),
        };
        Self {
            folios: vec![0; BATCH].into(),
            all: vec![0; MOST].into(),
            neighbours: vec![0; MOST - BATCH].into(),
            ranges: vec![0..0; PAGES].into(),
            pages: vec![page; PAGES].into(),
        }
    }

    /// Its bytes.
    pub(super) const BYTES: usize =
        2 * MOST * size_of::<u32>() + PAGES * (size_of::<Range<usize>>() + size_of::<PageWrite>());
}

/// What is to be written, as it is collected.
struct Noted<'a> {
    all: &'a mut [u32],
    neighbours: &'a mut [u32],
    total: usize,
    beside: usize,
}

impl Noted<'_> {
    /// True if there may be another neighbour, of `most` folios in all.
    fn has_room(&self, most: usize) -> bool {
        self.total < most && self.beside < self.neighbours.len()
    }

    fn add(&mut self, folio: &Folio) {
        self.all[self.total] = folio.id();
        self.total += 1;
    }

    fn add_neighbour(&mut self, folio: &Folio) {
        self.add(folio);
        self.neighbours[self.beside] = folio.id();
        self.beside += 1;
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
        let (count, neighbours) = self.with_neighbours(count, sheet);
        let mut first = 0;
        while first < count {
            let cache = self.folios.get(sheet.all[first]).cache();
            let (mut end, mut pages) = (first, 0);
            while end < count && pages + BLOCK_PAGES <= PAGES {
                let folio = self.folios.get(sheet.all[end]);
                if !core::ptr::eq(folio.cache(), cache) {
                    break;
                }
                pages += folio.dirty_pages().count_ones() as usize;
                end += 1;
            }
            self.write_pages(cache, first..end, sheet);
            first = end;
        }
        for &id in &sheet.neighbours[..neighbours] {
            self.folios.get(id).unlock();
        }
    }

    /// Takes in what is dirty beside the first `count` folios of the sheet: a device that gets pages in a row does more of
    /// them, and what lies beside what was written to will go some day, too. Answers how many folios there are to
    /// write, and how many of them are neighbours, which this has locked.
    fn with_neighbours(&self, count: usize, sheet: &mut WriteSheet) -> (usize, usize) {
        let WriteSheet {
            folios,
            all,
            neighbours,
            ..
        } = sheet;
        let mut noted = Noted {
            all,
            neighbours,
            total: 0,
            beside: 0,
        };
        for (place, &id) in folios[..count].iter().enumerate() {
            let folio = self.folios.get(id);
            let window = folio.cache().addresses();
            // The others that were asked for have a place each.
            let most = (noted.total + CLUSTER).min(MOST - (count - place));
            let first = noted.total;
            let mut start = folio.range().start;
            while start > window.start
                && noted.has_room(most)
                && let Some(before) = self.claim_dirty(start - PAGE_SIZE)
            {
                noted.add_neighbour(before);
                start = before.range().start;
            }
            noted.all[first..noted.total].reverse();
            noted.add(folio);
            let mut end = folio.range().end;
            while end < window.end
                && noted.has_room(most)
                && let Some(behind) = self.claim_dirty(end)
            {
                noted.add_neighbour(behind);
                end = behind.range().end;
            }
        }
        (noted.total, noted.beside)
    }

    /// Locks the folio of the page at `addr`, if it is dirty and nobody has it.
    fn claim_dirty(&self, addr: usize) -> Option<&Folio> {
        let bucket = self.index.lock(addr, &self.folios);
        let folio = bucket.find(addr)?;
        let is_free = folio.state() & (flag::DIRTY | flag::LOCKED) == flag::DIRTY;
        (is_free && !folio.is_pinned() && folio.try_lock()).then(|| self.folios.get(folio.id()))
    }

    /// Writes the dirty pages of some folios of the sheet, all of one cache.
    fn write_pages(&self, cache: &PageCache, which: Range<usize>, sheet: &mut WriteSheet) {
        let WriteSheet {
            all, ranges, pages, ..
        } = sheet;
        let folios = all[which].iter().map(|&id| self.folios.get(id));
        let (mut count, mut protected) = (0, 0);
        let has_writers = |folio: &Folio| !folio.is_pinned() && !cache.is_protected(folio);
        let writable = folios.clone().filter(|folio| has_writers(folio)).count();
        let at_once = writable > SCATTERED && cache.protect_window();
        for folio in folios.clone() {
            let has_writers = !at_once && has_writers(folio);
            for addr in dirty_addresses(folio, folio.dirty_pages()) {
                pages[count] = PageWrite {
                    offset: cache.offset(addr),
                    page: core::ptr::null(),
                    result: Ok(()),
                };
                count += 1;
                if !has_writers {
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
        // Of pages that were only expected to be written to, the store has what they are.
        let unwritten = |folio: &Folio| cache.unwritten(folio);
        let mut kept = 0;
        let mut next = 0;
        for folio in folios.clone() {
            let dirty = folio.dirty_pages();
            let left = dirty & !unwritten(folio);
            for addr in dirty_addresses(folio, dirty) {
                // What is behind the end is nobody's, whatever the store says of it.
                let is_beyond = cache.offset(addr) >= cache.end();
                if left & folio.bit_of(addr) != 0 && !is_beyond {
                    pages[kept] = pages[next];
                    kept += 1;
                }
                next += 1;
            }
            if folio.is(flag::EXPECTED) && !folio.is_pinned() {
                cache.end_dirty(folio, left);
                self.end_expected(folio);
            }
        }
        let pages = &mut pages[..kept];
        for page in pages.iter_mut() {
            let addr = cache.address(page.offset);
            page.page = self.mmu.bytes(cache.window.reservation(), addr);
        }
        let writes = cache.writes.as_ref().expect("it has been written to");
        // SAFETY: the pages are mapped, and stay: their folios are locked.
        unsafe { writes.to().write(pages, cache.end()) };
        let mut results = pages.iter().peekable();
        let mut written = 0;
        for folio in folios {
            let before = folio.dirty_pages();
            let mut left = 0;
            for addr in dirty_addresses(folio, before) {
                let offset = cache.offset(addr);
                let Some(page) = results.next_if(|page| page.offset == offset) else {
                    // Pinned, and not written to yet; or behind the end.
                    if folio.is_pinned() {
                        left |= folio.bit_of(addr);
                    }
                    continue;
                };
                let stays = match page.result {
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
