//! Writing back the dirty pages of a range on request: `msync`.

use super::PageCache;
use super::folio::{Folio, flag};
use super::walk::Walk;
use crate::cache::reads::unlocked;
use crate::page::NeverInterrupted;
use crate::reclaim::Cleaner;
use core::ops::Range;

/// A write-back, and how far it has got.
#[derive(Debug, Clone)]
pub struct WriteBackCursor {
    walk: Walk,
    /// Only pages that were dirty at the last such write-back.
    aged: bool,
}

impl PageCache {
    /// A write-back of all that is dirty of `range`, from its start.
    pub fn write_back_of(&self, range: Range<usize>) -> WriteBackCursor {
        WriteBackCursor {
            walk: self.walk(range),
            aged: false,
        }
    }

    /// A write-back of pages that were dirty already at the last such write-back.
    pub fn write_back_of_aged(&self) -> WriteBackCursor {
        WriteBackCursor {
            walk: self.walk(self.addresses()),
            aged: true,
        }
    }

    /// Writes back the next batch. True if there is more. In between nothing is locked.
    ///
    /// After the last batch the store has all pages that were dirty when the cursor was made, except those that could not be
    /// written: [`write_error_since`](Self::write_error_since) reports them.
    pub fn write_back(&self, cursor: &mut WriteBackCursor) -> bool {
        // A page is counted out when the store has it.
        if self.dirty_pages() == 0 {
            return false;
        }
        let mut cleaner = None;
        while let Some(part) = self.next_part(&mut cursor.walk) {
            self.clean_part(part, cursor, &mut cleaner);
            if cleaner.as_ref().is_some_and(Cleaner::is_full) {
                return true;
            }
        }
        false
    }

    /// Makes written-back pages durable. A failure is an error of write-back like any other, since any
    /// map may lose pages by it.
    pub fn sync(&self) {
        if let Some(writes) = &self.writes {
            writes.sync();
        }
    }

    /// Gives the dirty folios of a part of a block to `cleaner`, locked.
    fn clean_part<'a>(
        &'a self,
        mut part: Range<usize>,
        cursor: &WriteBackCursor,
        cleaner: &mut Option<Cleaner<'a>>,
    ) {
        let range = cursor.walk.range();
        let is_wanted = |folio: &Folio| folio.is(flag::DIRTY) || folio.is_writeback();
        let mut waited_for = None;
        while let Some(folio) = self.next_folio(&part, range, is_wanted) {
            // The batch before the folio lock: a write that failed has a batch, and waits for the lock.
            let batch = cleaner.get_or_insert_with(|| self.node.cleaner());
            if !folio.try_lock() {
                // A folio is waited for with no other folio and no batch of reclaim in hand.
                *cleaner = None;
                unlocked(self, &folio, &NeverInterrupted);
                continue;
            }
            let (pages, is_dirty) = (folio.range(), folio.is(flag::DIRTY));
            if cursor.aged && is_dirty && !folio.is(flag::AGED) {
                folio.change(flag::AGED, 0);
                folio.unlock();
            } else if folio.is_writeback() {
                folio.unlock();
                // Write-back by age does not wait: a page that was written to since the copy is young.
                if !cursor.aged {
                    *cleaner = None;
                    self.node.wait_for_writeback(&folio, &NeverInterrupted);
                    // The copy may be older than the dirty page; one that was made after a wait is not older than the cursor.
                    if is_dirty && waited_for.replace(pages.start) != Some(pages.start) {
                        continue;
                    }
                }
            } else if is_dirty {
                batch.push(folio);
            } else {
                // Another has written it.
                folio.unlock();
            }
            part.start = pages.end;
        }
    }
}
