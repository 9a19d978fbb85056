//! The dirty folios that go next, for write-back ahead of need.

use super::next::age_of;
use super::shard::LockedShard;
use super::{Lists, SHARDS};
use crate::cache::folio::{Folio, NO_FOLIO, flag};
use crate::slab::Slab;
use core::cmp::Reverse;
use sync::atomic::Ordering;

/// When a mapped folio is evicted: inactive folios go before active ones, and older ones before younger ones.
type EvictionRank = (usize, Reverse<u32>);

/// The ranks of folios that are looked at, and the pages of each. Made before a lock is taken, because the memory of an allocator may be
/// of an engine, and a fault there takes the lists' locks.
pub(in crate::reclaim) struct EvictionRanks {
    ranks: Vec<(EvictionRank, usize)>,
    pages: usize,
}

impl EvictionRanks {
    /// Room to look at so many pages of each shard.
    pub(in crate::reclaim) fn new(pages: usize) -> Self {
        // One folio more of either list ends the look.
        let ranks = Vec::with_capacity(SHARDS * (pages + 2));
        Self { ranks, pages }
    }
}

impl Lists {
    /// The dirty ones of the folios that go next, which are as many pages in all as `ranks` looks at; returns how many. They stay on
    /// their lists. Inactive ones come first, although reclaim prefers active ones while there are too many of them.
    pub(in crate::reclaim) fn next_dirty(
        &self,
        folios: &Slab<Folio>,
        ranks: &mut EvictionRanks,
        out: &mut [u32],
    ) -> usize {
        let now = self.clock.now();
        let last = self.last_of_next(folios, ranks, now);
        let mut count = 0;
        for shard in self.shards() {
            each_mapped(&shard, folios, now, |folio, rank| {
                let is_next = rank <= last && count < out.len();
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

    /// The rank of the last of the next pages. The folios of a thread are in the shards of the processors that it ran on, so
    /// that all of the next ones may be in one shard.
    fn last_of_next(
        &self,
        folios: &Slab<Folio>,
        ranks: &mut EvictionRanks,
        now: u32,
    ) -> EvictionRank {
        let EvictionRanks { ranks, pages } = ranks;
        ranks.clear();
        for shard in self.shards() {
            let mut looked_at = 0;
            each_mapped(&shard, folios, now, |folio, rank| {
                ranks.push((rank, folio.pages()));
                looked_at += folio.pages();
                looked_at < *pages
            });
        }
        ranks.sort_unstable();
        let mut counted = 0;
        let is_enough = |&&(_, of_folio): &&(EvictionRank, usize)| {
            counted += of_folio;
            counted >= *pages
        };
        let last = ranks.iter().find(is_enough).or(ranks.last());
        last.map_or((0, Reverse(u32::MAX)), |&(rank, _)| rank)
    }
}

/// Shows mapped folios of a shard with their ranks, those that go first of each list, until `look` says of a folio that it is
/// the last of its list to be looked at.
fn each_mapped<'a>(
    shard: &LockedShard<'_>,
    folios: &'a Slab<Folio>,
    now: u32,
    mut look: impl FnMut(&'a Folio, EvictionRank) -> bool,
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
