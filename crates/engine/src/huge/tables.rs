//! The page tables of one mapping: a slot for each span of the file, and in it the leaf
//! that has the span's pages, its own or shared.

use super::HugePool;
use super::share::Class;
use crate::Clock;
use crate::lock::{Mutex, RwSem, order};
use core::ops::Range;
use sync::Arc;
use sync::atomic::AtomicU32;
use sync::atomic::Ordering::{Acquire, Release};

/// A leaf table: which pages of a span are mapped.
pub(super) struct Leaf {
    /// 0, or a page's number and 1. Changed under `used`, read by walks.
    entries: Box<[AtomicU32]>,
    /// The page table lock, and how many entries are in use.
    used: Mutex<u32, { order::HUGE_LEAF }>,
}

/// The leaf of a slot.
#[derive(Clone)]
pub(super) struct Slot {
    pub(super) leaf: Arc<Leaf>,
    /// The class of mappings that share it, if any do.
    pub(super) class: Option<Class>,
}

/// The tables of a mapping.
pub(super) struct Tables {
    /// The share lock: held for reading by a fault from before it looks its leaf up
    /// until its page is entered, and for writing where a leaf may be dropped. It is the
    /// mapping's: the parts of a split mapping have the same.
    pub(super) share: RwSem,
    /// Indexes of the file that the mapping may show.
    pub(super) indexes: Range<u64>,
    /// It has reserved the pages that were not there.
    pub(super) reserves: bool,
    /// The first span of them.
    first: u64,
    /// By span. The lock of the upper table, one a slot.
    slots: Box<[Mutex<Option<Slot>, { order::LEAF_SLOT }>]>,
}

impl Leaf {
    pub(super) fn new(pool: &HugePool) -> Arc<Self> {
        let entries = 0..pool.shape.leaf_pages;
        let leaf = Self {
            entries: entries.map(|_| AtomicU32::new(0)).collect(),
            used: Mutex::ranked(0),
        };
        pool.count_tables(leaf.bytes());
        Arc::new(leaf)
    }

    /// Bytes of it.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + size_of_val::<[AtomicU32]>(&self.entries)
    }

    fn entry(&self, index: u64) -> &AtomicU32 {
        &self.entries[index as usize & (self.entries.len() - 1)]
    }

    /// The page that is mapped there, for a walk.
    pub(super) fn page(&self, index: u64) -> Option<u32> {
        // Acquire pairs with the Release in `map`: the page was filled.
        self.entry(index).load(Acquire).checked_sub(1)
    }

    /// Maps a page where none is; `false` if one is.
    pub(super) fn map(&self, pool: &HugePool, index: u64, page: u32) -> bool {
        // The most frequent: the leaf was shared just now, and has it.
        if self.page(index).is_some() {
            return false;
        }
        let mut used = self.used.lock();
        if self.page(index).is_some() {
            return false;
        }
        // Release pairs with the Acquire in `page`.
        self.entry(index).store(page + 1, Release);
        pool.count_mapped(page);
        *used += 1;
        true
    }

    /// Maps those of `indexes` where nothing is and for which `page` has one; the value that comes
    /// with it is kept until it is mapped. Returns how many.
    pub(super) fn map_more<G>(
        &self,
        pool: &HugePool,
        indexes: Range<u64>,
        mut page: impl FnMut(u64) -> Option<(G, u32)>,
    ) -> u64 {
        let mut used = self.used.lock();
        let before = *used;
        for index in indexes {
            if self.page(index).is_none()
                && let Some((_kept, page)) = page(index)
            {
                // Release pairs with the Acquire in `page`.
                self.entry(index).store(page + 1, Release);
                pool.count_mapped(page);
                *used += 1;
            }
        }
        (*used - before).into()
    }

    /// Takes out the mapped pages of `indexes`, and adds them to `zapped`; true if
    /// nothing is left.
    pub(super) fn zap(&self, indexes: Range<u64>, zapped: &mut Vec<u32>) -> bool {
        let mut used = self.used.lock();
        for index in indexes {
            if let Some(page) = self.page(index) {
                // Release, as in `map`; a shootdown waits for later walks.
                self.entry(index).store(0, Release);
                zapped.push(page);
                *used -= 1;
            }
        }
        *used == 0
    }

    /// Pages that are mapped.
    pub(super) fn used(&self) -> u32 {
        *self.used.lock()
    }
}

impl Tables {
    /// Empty ones, for `indexes` of a file.
    pub(super) fn new(
        pool: &HugePool,
        clock: Arc<dyn Clock>,
        indexes: Range<u64>,
        reserves: bool,
    ) -> Arc<Self> {
        let spans = pool.spans(&indexes);
        let tables = Self {
            share: RwSem::new(clock),
            first: spans.start,
            slots: spans.map(|_| Mutex::ranked(None)).collect(),
            indexes,
            reserves,
        };
        pool.count_tables(tables.bytes());
        Arc::new(tables)
    }

    /// Bytes of it.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + size_of_val::<[Mutex<Option<Slot>, { order::LEAF_SLOT }>]>(&self.slots)
    }

    /// The slot of a span.
    pub(super) fn slot(&self, span: u64) -> &Mutex<Option<Slot>, { order::LEAF_SLOT }> {
        &self.slots[(span - self.first) as usize]
    }

    /// The leaf of a span, if there is one.
    pub(super) fn leaf(&self, span: u64) -> Option<Arc<Leaf>> {
        let slot = self.slot(span).lock();
        slot.as_ref().map(|slot| slot.leaf.clone())
    }

    /// The page that it has at an index. The leaf is looked into with the slot locked and
    /// no reference taken: all sharers of the leaf would write the count's line, at
    /// every walk.
    pub(super) fn page(&self, pool: &HugePool, index: u64) -> Option<u32> {
        let slot = self.slot(pool.span(index)).lock();
        slot.as_ref().and_then(|slot| slot.leaf.page(index))
    }

    /// True if it has any leaf.
    pub(super) fn has_leaves(&self) -> bool {
        self.slots.iter().any(|slot| slot.lock().is_some())
    }

    /// Which of `indexes` it may show.
    pub(super) fn part(&self, indexes: &Range<u64>) -> Range<u64> {
        let start = indexes.start.max(self.indexes.start);
        start..indexes.end.min(self.indexes.end).max(start)
    }

    /// True if a page of `indexes` is mapped.
    pub(super) fn shows(&self, pool: &HugePool, indexes: &Range<u64>) -> bool {
        let indexes = self.part(indexes);
        pool.by_span(&indexes).any(|(span, part)| {
            let leaf = self.leaf(span).filter(|leaf| leaf.used() > 0);
            leaf.is_some_and(|leaf| part.into_iter().any(|index| leaf.page(index).is_some()))
        })
    }

    /// Pages that are mapped; those of shared leaves too.
    pub(super) fn mapped(&self, pool: &HugePool) -> u64 {
        let spans = pool.spans(&self.indexes);
        let used = |span| self.leaf(span).map_or(0, |leaf| leaf.used().into());
        spans.map(used).sum::<u64>()
    }
}

impl HugePool {
    /// The span that an index is in.
    pub(super) fn span(&self, index: u64) -> u64 {
        index / self.shape.leaf_pages as u64
    }

    /// The indexes of a span.
    pub(super) fn span_indexes(&self, span: u64) -> Range<u64> {
        let pages = self.shape.leaf_pages as u64;
        span * pages..(span + 1) * pages
    }

    /// The spans that have any of `indexes`.
    pub(super) fn spans(&self, indexes: &Range<u64>) -> Range<u64> {
        if indexes.is_empty() {
            return 0..0;
        }
        self.span(indexes.start)..self.span(indexes.end - 1) + 1
    }

    /// The same, each with its part of them.
    pub(super) fn by_span(
        &self,
        indexes: &Range<u64>,
    ) -> impl Iterator<Item = (u64, Range<u64>)> + use<'_> {
        let indexes = indexes.clone();
        self.spans(&indexes).map(move |span| {
            let all = self.span_indexes(span);
            (span, all.start.max(indexes.start)..all.end.min(indexes.end))
        })
    }
}
