//! Writing back what is dirty of a range, because somebody asks: `msync`.

use super::folio::{BLOCK_BYTES, flag};
use super::{FolioRef, PageCache};
use crate::cache::reads::unlocked;
use crate::page::NeverInterrupted;
use crate::reclaim::Cleaner;
use core::ops::Range;

/// What a write-back takes, and how far it has got.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WriteBackCursor {
    next: usize,
    /// Only what was dirty when the last such write-back came by.
    aged: bool,
}

impl WriteBackCursor {
    /// Of a write-back that takes only what was dirty when the last such one came by.
    pub fn of_aged() -> Self {
        Self {
            aged: true,
            ..Self::default()
        }
    }
}

impl PageCache {
    /// Writes back what is dirty of `range`, a batch of it from the cursor on. True if there is more. In between nothing
    /// is locked.
    ///
    /// After the last batch the store has all that was dirty at the first, but what could not be written:
    /// [`write_error_since`](Self::write_error_since) says so.
    pub fn write_back(&self, range: Range<usize>, cursor: &mut WriteBackCursor) -> bool {
        // Whoever writes the last of them back counts it out when the store has it.
        if self.dirty_pages() == 0 {
            return false;
        }
        let start = range.start & !(BLOCK_BYTES - 1);
        let blocks = range.end.saturating_sub(start).div_ceil(BLOCK_BYTES);
        let folios = self.node.folios.len() as usize;
        // Of a large window with little in it: the blocks of all folios.
        let by_block = blocks <= folios;
        let steps = if by_block { blocks } else { folios };
        let mut cleaner = None;
        while cursor.next < steps {
            let block = match by_block {
                true => start + cursor.next * BLOCK_BYTES,
                false => {
                    self.node.folios.get(cursor.next as u32).range().start & !(BLOCK_BYTES - 1)
                }
            };
            cursor.next += 1;
            if block < range.end && start <= block {
                self.clean_block(block, &range, cursor.aged, &mut cleaner);
            }
            if cleaner.as_ref().is_some_and(Cleaner::is_full) {
                break;
            }
        }
        cursor.next < steps
    }

    /// Gives the dirty folios of a block to `cleaner`, locked.
    fn clean_block<'a>(
        &'a self,
        block: usize,
        range: &Range<usize>,
        aged: bool,
        cleaner: &mut Option<Cleaner<'a>>,
    ) {
        let mut from = block;
        while let Some(folio) = self.next_dirty(block, from, range) {
            if !folio.try_lock() {
                // A folio is waited for with nothing in hand.
                *cleaner = None;
                unlocked(self, &folio, &NeverInterrupted);
                continue;
            }
            from = folio.range().end;
            match (folio.is(flag::DIRTY), folio.is(flag::AGED)) {
                // Another has written it.
                (false, _) => folio.unlock(),
                (true, false) if aged => {
                    folio.change(flag::AGED, 0);
                    folio.unlock();
                }
                (true, _) => {
                    let cleaner = cleaner.get_or_insert_with(|| self.node.cleaner());
                    cleaner.push(folio);
                }
            }
        }
    }

    /// The first folio of the block, from `from` on, that is dirty in `range`.
    fn next_dirty(&self, block: usize, from: usize, range: &Range<usize>) -> Option<FolioRef<'_>> {
        let bucket = self.node.index.lock(block, &self.node.folios);
        let dirty = bucket.iter().filter(|folio| {
            let pages = folio.range();
            folio.is(flag::DIRTY)
                && pages.start & !(BLOCK_BYTES - 1) == block
                && from <= pages.start
                && pages.start < range.end
                && range.start < pages.end
        });
        let folio = dirty.min_by_key(|folio| folio.range().start)?;
        bucket.get(folio);
        Some(FolioRef::new(&self.node, folio))
    }
}
