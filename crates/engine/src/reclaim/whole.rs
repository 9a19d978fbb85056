//! Evicting rows that were moved to a window: as a whole, since the system has nothing back of a piece of memory before the last
//! page of it goes. Where a part has to stay (it is pinned, or somebody is at it) the piece is split first.

use super::evict::{BATCH, FolioBatch};
use crate::cache::Node;
use crate::cache::folio::{BLOCK_BYTES, Folio, flag};
use crate::cache::row::span;
use core::ops::Range;

/// The fate of the rest of a row of which a batch has a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RestOfRow {
    /// It goes too, if it can. Where the batch has no room for it the row stays for the next one. Where it cannot go, and the piece
    /// cannot be split, the row stays.
    Goes,
    /// It stays, even if the memory of the pages that go then stays too.
    Stays,
}

impl Node {
    /// For each row that came as one piece of memory, adds the rest of the row to the batch, or splits the piece; returns how many
    /// folios the batch has then. All of them are locked, the added ones too.
    // Not inlined: its variables would be on the handler's stack while pages are zapped.
    #[inline(never)]
    pub(super) fn settle_rows(
        &self,
        batch: &mut FolioBatch,
        count: usize,
        rest: RestOfRow,
    ) -> usize {
        let (mut count, mut at, mut left) = (count, 0, 0);
        // The last row that the batch was found to have all of, and the last one that stays.
        let (mut complete, mut stuck) = (0..0, 0..0);
        while at < count {
            let folio = self.folios.get(batch.folios[at]);
            let start = folio.range().start;
            let mut stays = stuck.contains(&start);
            if !stays && !complete.contains(&start) && self.is_in_piece(folio) {
                if rest == RestOfRow::Goes {
                    // The added folios are looked at in their turn.
                    count = self.add_rest(batch, (left, at, count), folio);
                }
                // A row that has no room beside what goes is for a later batch.
                let is_next = rest == RestOfRow::Goes && count == BATCH && left > 0;
                if self.has_all(batch, (left, at, count), folio) {
                    complete = span(start);
                } else {
                    stays = is_next || !self.split(folio, rest) && rest == RestOfRow::Goes;
                }
            }
            if stays {
                stuck = span(start);
                self.lru.lists.add(&self.folios, folio);
                folio.unlock();
            } else {
                batch.folios[left] = folio.id();
                left += 1;
            }
            at += 1;
        }
        left
    }

    /// True if the folio is in a row that came as one piece, and still is.
    fn is_in_piece(&self, folio: &Folio) -> bool {
        folio.is(flag::MAPPED) && folio.cache().window.is_whole(folio.range().start)
    }

    /// True if the batch, of which this is left, has all folios of `folio`'s row.
    fn has_all(
        &self,
        batch: &FolioBatch,
        (left, at, count): (usize, usize, usize),
        folio: &Folio,
    ) -> bool {
        let row = span(folio.range().start);
        let ids = batch.folios[..left].iter().chain(&batch.folios[at..count]);
        let folios = ids.map(|&id| self.folios.get(id));
        let in_row = folios.filter(|folio| row.contains(&folio.range().start));
        let pages: usize = in_row.map(Folio::pages).sum();
        pages == folio.cache().window.residents(row.start)
    }

    /// Locks the folios of a row that are not in the batch, and adds them, as far as that can be.
    fn add_rest(
        &self,
        batch: &mut FolioBatch,
        (left, at, count): (usize, usize, usize),
        folio: &Folio,
    ) -> usize {
        let mut after = count;
        if self.has_all(batch, (left, at, count), folio) {
            return after;
        }
        let row = span(folio.range().start);
        for block in row.clone().step_by(BLOCK_BYTES) {
            if after == BATCH && left == 0 {
                after = self.put_last_back(batch, (at, after), &row);
            }
            let bucket = self.index.lock(block, &self.folios);
            let claimed = bucket
                .find(block)
                .filter(|folio| after < BATCH && folio.is(flag::MAPPED) && bucket.try_claim(folio));
            let Some(claimed) = claimed else {
                continue;
            };
            drop(bucket);
            self.lru.lists.remove(&self.folios, claimed);
            batch.folios[after] = claimed.id();
            after += 1;
        }
        after
    }

    /// Makes room in a full batch of which nothing goes yet, for the rest of a row: puts back the last folio of another row. Returns how
    /// many folios the batch has then.
    fn put_last_back(
        &self,
        batch: &mut FolioBatch,
        (at, count): (usize, usize),
        row: &Range<usize>,
    ) -> usize {
        let is_other = |&place: &usize| {
            let folio = self.folios.get(batch.folios[place]);
            !row.contains(&folio.range().start)
        };
        let Some(other) = (at..count).rev().find(is_other) else {
            return count;
        };
        let folio = self.folios.get(batch.folios[other]);
        batch.folios[other] = batch.folios[count - 1];
        self.lru.lists.add(&self.folios, folio);
        folio.unlock();
        count - 1
    }

    /// Splits the piece that a folio is in; false if that cannot be just now. Then it stays one, unless a part has to go all the same:
    /// that part's memory comes back with the last page of the piece.
    fn split(&self, folio: &Folio, rest: RestOfRow) -> bool {
        let (row, window) = (span(folio.range().start), &folio.cache().window);
        let is_split = self.mmu.split(&row, folio.range().start);
        if is_split || rest == RestOfRow::Stays {
            self.stats.thp_split.add(1);
            window.split(row.start);
        }
        is_split
    }
}
