//! Reads for the store, put together from folios.

use super::extent::{Part, extent};
use super::read;
use crate::PAGE_SIZE;
use crate::budget::Need;
use crate::cache::PageCache;
use crate::cache::folio::{BLOCK_BYTES, BLOCK_PAGES, Folio, NO_FOLIO, NO_FRAME, flag};
use crate::cache::node::FrameUse;
use crate::store::Read;
use core::ops::Range;
use sync::Arc;

/// Reads handed to the store at a time; bounds the handler's stack.
const READS: usize = 4;
/// Folios that a read of several blocks may have.
const READ_BLOCKS: u8 = 4;
/// Folios of all reads that are handed to the store at a time.
const FOLIOS: usize = 24;

/// Reads a run of pages, a folio a block, or each in a folio of its own. `false` when there is no more room.
pub(crate) fn run(batch: &mut ReadBatch<'_>, pages: Range<u64>, single: bool) -> bool {
    let cache = batch.cache;
    let end = cache.end().div_ceil(PAGE_SIZE as u64);
    let mut next = cache.address(pages.start.min(end) * PAGE_SIZE as u64);
    let stop = cache.address(pages.end.min(end) * PAGE_SIZE as u64);
    while next < stop {
        let block = ((next & !(BLOCK_BYTES - 1)) + BLOCK_BYTES).min(stop);
        next = match extent(cache, next) {
            // Holes cost nothing when they are touched.
            Ok(Part::Hole(hole)) => hole.end,
            Ok(Part::Data(data)) => {
                let end = block.min(data.end);
                if !absent(batch, next..end, single) {
                    return false;
                }
                end
            }
            Err(_) => return false,
        };
    }
    true
}

/// Adds the uncached pages of a range of one block. `false` as above.
fn absent(batch: &mut ReadBatch<'_>, range: Range<usize>, single: bool) -> bool {
    let mut next = range.start;
    while next < range.end {
        if let Some(folio) = batch.cache.find(next) {
            next = folio.range().end.max(next + PAGE_SIZE);
            continue;
        }
        let absent = batch.cache.absent_around(next, next..range.end);
        next = absent.end;
        let added = match single {
            true => batch.add_singles(absent),
            false => batch.add(absent),
        };
        if !added {
            return false;
        }
    }
    true
}

/// Reads that were prepared and not yet submitted. Folios that are neighbours
/// in the file and in memory share a read: a request costs more than its bytes.
pub(crate) struct ReadBatch<'a> {
    cache: &'a Arc<PageCache>,
    /// The mark of the folios: `READAHEAD` if the policy is to learn of their
    /// use, nothing if the caller of `prefetch` wants them.
    mark: u32,
    reads: [Read; READS],
    /// How many folios each read has.
    lengths: [u8; READS],
    count: usize,
    /// The folios of all reads, in order. The batch has a reference to each.
    folios: [u32; FOLIOS],
    folio_count: usize,
    /// Pages that frames may take in all, and that the pool comes to by eviction. Immutable
    /// once something was added.
    frames: usize,
    share: usize,
    /// This thread reads folios that the store does not take.
    reads_all: bool,
    /// The address of the first folio that the store did not take: it takes no more.
    pub(super) refused: Option<usize>,
    /// From where on there was no room for pages that were to be folios of their own.
    pub(super) stopped: Option<usize>,
    /// Pages whose reads were started.
    pub(super) started: u32,
}

impl<'a> ReadBatch<'a> {
    pub(crate) fn new(cache: &'a Arc<PageCache>, mark: u32) -> Self {
        let empty = Read {
            cookie: 0,
            offset: 0,
            buffer: core::ptr::null_mut(),
            bytes: 0,
        };
        Self {
            cache,
            mark,
            reads: [empty; READS],
            lengths: [0; READS],
            count: 0,
            folios: [NO_FOLIO; FOLIOS],
            folio_count: 0,
            frames: cache.node.readahead_frames(),
            share: cache.node.readahead_frames() / 2,
            reads_all: false,
            refused: None,
            stopped: None,
            started: 0,
        }
    }

    /// From now on all that is added is read: a folio that finds no frame takes one
    /// of earlier read-ahead, and this thread reads folios that the store does not
    /// take.
    pub(crate) fn reads_all(&mut self) {
        self.reads_all = true;
    }

    /// Pages added from now on are all but certain to be used: they take more frames, and keep them for longer.
    pub(super) fn is_sure(&mut self) {
        self.mark |= flag::SURE;
        self.frames = self.cache.node.sure_frames();
        self.share = self.frames / 8 * 7;
    }

    /// `add`, with a mark of its own.
    pub(crate) fn add_marked(&mut self, range: Range<usize>, mark: u32) -> bool {
        self.mark = mark;
        self.add(range)
    }

    /// Adds the pages of a range of one block that are neither cached nor holes. `false` when there is no
    /// room for it.
    pub(crate) fn add_absent(&mut self, range: Range<usize>) -> bool {
        let mut next = range.start;
        while next < range.end {
            let (run, cached) = self.cache.cached_run(next..range.end);
            next = match cached {
                true => run.end,
                false => match extent(self.cache, next) {
                    Ok(Part::Hole(hole)) => hole.end,
                    Ok(Part::Data(data)) => {
                        let end = run.end.min(data.end);
                        if !self.add(next..end) {
                            return false;
                        }
                        end
                    }
                    // A touch of it gets the error.
                    Err(_) => run.end,
                },
            };
        }
        true
    }

    /// Adds the pages of a range of one block. `false` when there is no room
    /// for them or for those to come.
    fn add(&mut self, range: Range<usize>) -> bool {
        let (cache, node) = (self.cache, &self.cache.node);
        let pages = (range.end - range.start) / PAGE_SIZE;
        let frames = FrameUse::Readahead(self.frames);
        let mut folio = match self.in_row(&range) {
            Some(folio) => Ok(folio),
            None => node.alloc_folio(cache, range.start, pages, frames),
        };
        if folio.is_err() && node.frames.present() < self.share {
            // Memory is full of mapped pages: read-ahead gets its share.
            node.make_room_with_folios(Need::Pages(node.growth_of_spare(self.frames)));
            folio = node.alloc_folio(cache, range.start, pages, frames);
        }
        while self.reads_all && folio.is_err() && node.evict_oldest() > 0 {
            folio = node.alloc_folio(cache, range.start, pages, frames);
        }
        folio.is_ok_and(|folio| self.enter(folio))
    }

    /// Adds pages of a range of one block, each as a folio of its own, whose frames are beside each other as far as the pool has
    /// such. `false` as above: `stopped` says from where on there is no room.
    #[inline(never)]
    fn add_singles(&mut self, range: Range<usize>) -> bool {
        let node = &self.cache.node;
        let (mut next, mut most, mut present) = (range.start, BLOCK_PAGES, 0);
        // Frames that the next pages have.
        let (mut frame, mut left) = (NO_FRAME, 0);
        while next < range.end {
            while left == 0 && most > 1 {
                let pages = ((range.end - next) / PAGE_SIZE).min(most);
                match node.frames_in_a_run(pages, self.frames) {
                    Some(first) => (frame, left) = (first, pages),
                    // Longer ones are not to be had until the pool has grown.
                    None => (most, present) = (pages / 2, node.frames.present()),
                }
            }
            let page = next..next + PAGE_SIZE;
            let added = match left {
                0 => self.add(page),
                _ => {
                    let given = FrameUse::Given(frame);
                    let folio = node.alloc_folio(self.cache, next, 1, given);
                    if folio.is_ok() {
                        (frame, left) = (frame + 1, left - 1);
                    }
                    folio.is_ok_and(|folio| self.enter(folio))
                }
            };
            if !added {
                self.give_back(frame, left);
                self.stopped = Some(next);
                return false;
            }
            next += PAGE_SIZE;
            if most <= 1 && node.frames.present() > present {
                most = BLOCK_PAGES;
            }
        }
        true
    }

    /// Gives frames back that are in no folio.
    fn give_back(&self, frame: u32, pages: usize) {
        if pages > 0 {
            self.cache.node.frames.free(frame, pages);
            self.cache.node.budget.notify_release();
        }
    }

    /// Adds a folio to the reads, unless others have a part of it already. `false` as above.
    fn enter(&mut self, folio: &'a Folio) -> bool {
        let (cache, node) = (self.cache, &self.cache.node);
        let range = folio.range();
        let read = Read {
            cookie: u64::from(folio.id()),
            offset: cache.offset(range.start),
            buffer: node.frame_address(folio),
            bytes: range.end - range.start,
        };
        let joins = self.folio_count < FOLIOS && self.last_joins(&read);
        if !joins && (self.count == READS || self.folio_count == FOLIOS) {
            self.submit();
        }
        let head = match joins {
            true => self.reads[self.count - 1].cookie as u32,
            false => folio.id(),
        };
        folio.begin_read(head);
        folio.change(flag::ASYNC | self.mark, 0);
        // One reference is the read's, which the completion drops; one is
        // this batch's, until the read is submitted.
        match cache.insert(folio) {
            Some(held) => {
                held.clone().leak();
                held.leak();
            }
            None => {
                node.abandon(folio);
                return true;
            }
        }
        if joins {
            let before = node.folios.get(self.folios[self.folio_count - 1]);
            before.set_next_in_read(folio);
            self.reads[self.count - 1].bytes += read.bytes;
            self.lengths[self.count - 1] += 1;
        } else {
            self.reads[self.count] = read;
            self.lengths[self.count] = 1;
            self.count += 1;
        }
        self.folios[self.folio_count] = folio.id();
        self.folio_count += 1;
        self.refused.is_none()
    }

    /// A folio whose frames are in the row of its neighbours, or begin one, where there may be one. The memory of a row goes to the
    /// window with it, and so room for the next is made here.
    fn in_row(&self, range: &Range<usize>) -> Option<&'a Folio> {
        let (cache, node) = (self.cache, &self.cache.node);
        let beside = cache.row_beside(range)?;
        let alloc = || {
            let frames = FrameUse::Row(self.frames, beside);
            node.alloc_folio(cache, range.start, BLOCK_PAGES, frames)
                .ok()
        };
        let is_short = || beside.is_none() && node.frames.present() < self.share;
        alloc().or_else(|| {
            is_short().then(|| {
                node.make_room_with_folios(Need::Pages(node.growth_of_spare(self.frames)));
            })?;
            alloc()
        })
    }

    /// True if `read` goes on where the last one ends, in the file and in
    /// memory, and both are no more than one read should be: a block, or a few folios.
    fn last_joins(&self, read: &Read) -> bool {
        let Some(last) = self.reads[..self.count].last() else {
            return false;
        };
        let end = last.offset + last.bytes as u64;
        let is_in_block = !end.is_multiple_of(BLOCK_BYTES as u64);
        self.cache.is_in_a_row()
            && (is_in_block || self.lengths[self.count - 1] < READ_BLOCKS)
            && end == read.offset
            && last.buffer.wrapping_add(last.bytes) == read.buffer
    }

    /// Submits the added reads.
    pub(crate) fn submit(&mut self) {
        let (cache, node) = (self.cache, &self.cache.node);
        if self.count == 0 {
            return;
        }
        // SAFETY: each buffer is the frames of folios that stay locked until
        // the completion.
        let started = unsafe { cache.store.submit(&self.reads[..self.count]) };
        let mut folios = self.folios[..self.folio_count].iter();
        for place in 0..self.count {
            for &id in folios.by_ref().take(self.lengths[place].into()) {
                let folio = node.folios.get(id);
                if place < started {
                    // A waiter that came before the read was in flight reaps it now.
                    folio.wake_while_locked();
                } else if self.reads_all {
                    read::demand(cache, folio);
                    node.put(folio);
                } else {
                    self.refused.get_or_insert(folio.range().start);
                    read::discard(node, cache, folio);
                    node.put(folio);
                }
                node.put(folio);
            }
        }
        let begun = match self.reads_all {
            true => self.count,
            false => started,
        };
        let bytes: usize = self.reads[..begun].iter().map(|read| read.bytes).sum();
        let pages = bytes / PAGE_SIZE;
        if self.mark != 0 {
            node.stats.readahead_pages.add(pages as u64);
        }
        self.started += pages as u32;
        (self.count, self.folio_count) = (0, 0);
    }
}
