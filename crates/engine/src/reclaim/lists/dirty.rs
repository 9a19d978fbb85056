//! The dirty folios that go next, for write-back ahead of need.

use super::next::age_of;
use super::shard::LockedShard;
use super::{Lists, SHARDS};
use crate::cache::folio::{Folio, NO_FOLIO, flag};
use crate::slab::Slab;
use core::cmp::Reverse;
use sync::atomic::Ordering;

/// The turn of a mapped folio: inactive folios go before active ones, and older ones before younger ones.
type Turn = (usize, Reverse<u32>);

/// The turns of folios that are looked at, and the pages of each. Made before a lock is taken, because the memory of an allocator may be
/// of an engine, and a fault there takes the lists' locks.
pub(in crate::reclaim) struct Turns {
    turns: Vec<(Turn, usize)>,
    pages: usize,
}

impl Turns {
    /// Room to look at so many pages of each shard.
    pub(in crate::reclaim) fn new(pages: usize) -> Self {
        // One folio more of either list ends the look.
        let turns = Vec::with_capacity(SHARDS * (pages + 2));
        Self { turns, pages }
    }
}

impl Lists {
    /// The dirty ones of the folios that go next, which are as many pages in all as `turns` looks at; returns how many. They stay on
    /// their lists. Inactive ones come first, although reclaim prefers active ones while there are too many of them.
    pub(in crate::reclaim) fn next_dirty(
        &self,
        folios: &Slab<Folio>,
        turns: &mut Turns,
        out: &mut [u32],
    ) -> usize {
        let now = self.clock.now();
        let last = self.last_of_next(folios, turns, now);
        let mut count = 0;
        for shard in self.shards() {
            each_mapped(&shard, folios, now, |folio, turn| {
                let is_next = turn <= last && count < out.len();
                let is_free = folio.state() & (flag::DIRTY | flag::LOCKED) == flag::DIRTY;
                if is_next && is_free && !folio.is_writeback() {
                    out[count] = folio.id();
                    count += 1;
                }
                is_next
            });
        }
        count
    }

    /// The turn of the last of the next pages. The folios of a thread are in the shards of the processors that it ran on, so
    /// that all of the next ones may be in one shard.
    fn last_of_next(&self, folios: &Slab<Folio>, turns: &mut Turns, now: u32) -> Turn {
        let Turns { turns, pages } = turns;
        turns.clear();
        for shard in self.shards() {
            let mut looked_at = 0;
            each_mapped(&shard, folios, now, |folio, turn| {
                turns.push((turn, folio.pages()));
                looked_at += folio.pages();
                looked_at < *pages
            });
        }
        turns.sort_unstable();
        let mut counted = 0;
        let is_enough = |&&(_, of_folio): &&(Turn, usize)| {
            counted += of_folio;
            counted >= *pages
        };
        let last = turns.iter().find(is_enough).or(turns.last());
        last.map_or((0, Reverse(u32::MAX)), |&(turn, _)| turn)
    }
}

/// Shows mapped folios of a shard with their turns, those that go first of each list, until `look` says of a folio that it is
/// the last of its list to be looked at.
fn each_mapped<'a>(
    shard: &LockedShard<'_>,
    folios: &'a Slab<Folio>,
    now: u32,
    mut look: impl FnMut(&'a Folio, Turn) -> bool,
) {
    for (list, first) in shard.mapped().into_iter().enumerate() {
        let mut next = first;
        while next != NO_FOLIO {
            let folio = folios.get(next);
            let age = age_of(folio.listed_at.load(Ordering::Relaxed), now);
            if !look(folio, (list, Reverse(age))) {
                break;
            }
            next = folio.list_next.load(Ordering::Relaxed);
        }
    }
}
