//! The choice of the next list and shard.

use super::shard::Shard;
use super::{ACTIVE_SHARE, LISTS, List, SHARDS, Want};
use crate::cache::folio::{Folio, flag};
use sync::atomic::Ordering;

/// The heads of all lists, as they were when they were read. Reclaim uses them for one batch, and looks again
/// under the lock of the shard that it takes from. They are too large for the handler's stack.
pub struct Heads {
    heads: [[FirstFolio; LISTS.len()]; SHARDS],
    /// Shards whose first folio read ahead is not stale for all its age, a bit each.
    fresh: u32,
    /// The clock when they were read.
    now: u32,
}

const _: () = assert!(SHARDS <= u32::BITS as usize);

/// The first folio of a list.
#[derive(Clone, Copy)]
struct FirstFolio {
    /// Folios of the list. With none it has no first one.
    folios: u32,
    /// Pages that were mapped since it was added.
    age: u32,
}

/// The list of a shard that goes next.
#[derive(Clone, Copy)]
pub(super) struct Next {
    pub(super) shard: usize,
    pub(super) list: List,
    /// The age of the first folio that is next in another shard.
    then: u32,
    /// It goes only if it is stale.
    is_to_be_stale: bool,
    /// Folios that were taken of it.
    taken: u32,
}

impl Heads {
    /// Not read yet.
    pub const UNREAD: Self = Self {
        heads: [[FirstFolio { folios: 0, age: 0 }; LISTS.len()]; SHARDS],
        fresh: 0,
        now: 0,
    };

    /// Reads them, in their place.
    pub(super) fn read(&mut self, shards: &[Shard], now: u32) {
        (self.fresh, self.now) = (0, now);
        for (heads, shard) in self.heads.iter_mut().zip(shards) {
            for (head, list) in heads.iter_mut().zip(LISTS) {
                *head = FirstFolio::of(shard, list, now);
            }
        }
    }

    /// The list and the shard that go next.
    pub(super) fn next(&self, want: Want, stale: u32) -> Option<Next> {
        let of = self.list(want, stale);
        let mut next: Option<Next> = None;
        for (shard, heads) in self.heads.iter().enumerate() {
            for list in LISTS {
                let head = heads[list as usize];
                if head.folios == 0 || of.is_some_and(|of| of != list) {
                    continue;
                }
                let age = self.age(shard, list);
                match &mut next {
                    Some(next) if age <= self.age(next.shard, next.list) => {
                        next.then = next.then.max(age);
                    }
                    _ => {
                        let then = next.map_or(0, |next| self.age(next.shard, next.list));
                        next = Some(Next {
                            shard,
                            list,
                            then,
                            is_to_be_stale: false,
                            taken: 0,
                        });
                    }
                }
            }
        }
        let mut next = next?;
        next.is_to_be_stale =
            want == Want::Any && next.list == List::Readahead && self.mapped() > 0;
        Some(next)
    }

    /// The list that goes next; `None` if it may be any.
    pub(super) fn list(&self, want: Want, stale: u32) -> Option<List> {
        let (mapped, active) = (self.mapped(), self.folios(List::Active));
        match want {
            Want::Oldest => None,
            Want::Frames => Some(List::Readahead),
            Want::Any if mapped == 0 => Some(List::Readahead),
            Want::Any if self.has_stale(stale) => Some(List::Readahead),
            Want::Any if active * 8 > mapped * ACTIVE_SHARE => Some(List::Active),
            Want::Any if active == mapped => Some(List::Active),
            Want::Any => Some(List::Inactive),
        }
    }

    /// True if this folio, the first of `next`, may go. The caller has locked the shard.
    pub(super) fn may_go(&self, next: &Next, folio: &Folio, stale: u32, slack: u32) -> bool {
        let listed_at = folio.listed_at.load(Ordering::Relaxed);
        let age = age_of(listed_at, self.now);
        let stale = match folio.is(flag::SURE) {
            true => stale.saturating_mul(4),
            false => stale,
        };
        let is_next = next.taken == 0 || age.saturating_add(slack) >= next.then;
        is_next && (!next.is_to_be_stale || age >= stale)
    }

    /// The caller has taken a folio of it.
    pub(super) fn took(&mut self, next: &mut Next) {
        next.taken += 1;
        let head = &mut self.heads[next.shard][next.list as usize];
        head.folios = head.folios.saturating_sub(1);
    }

    /// Reads its head again.
    pub(super) fn look_again(&mut self, next: &Next, shard: &Shard) {
        let head = &mut self.heads[next.shard][next.list as usize];
        *head = FirstFolio::of(shard, next.list, self.now);
        if next.taken > 0 {
            return;
        }
        // Others have taken it, or it may not go yet. It is not tried again, or this would not end.
        match next.is_to_be_stale {
            true => self.fresh |= 1 << next.shard,
            false => head.folios = 0,
        }
    }

    fn folios(&self, list: List) -> usize {
        let of = |heads: &[FirstFolio; LISTS.len()]| heads[list as usize].folios as usize;
        self.heads.iter().map(of).sum()
    }

    fn mapped(&self) -> usize {
        self.folios(List::Inactive) + self.folios(List::Active)
    }

    fn has_stale(&self, stale: u32) -> bool {
        let is_stale = |shard: usize| {
            let head = self.heads[shard][List::Readahead as usize];
            head.folios > 0 && self.age(shard, List::Readahead) >= stale && !self.is_fresh(shard)
        };
        (0..SHARDS).any(is_stale)
    }

    fn is_fresh(&self, shard: usize) -> bool {
        self.fresh & 1 << shard != 0
    }

    /// The age of a first folio; as if it had just come, where it is read ahead and may not go yet.
    fn age(&self, shard: usize, list: List) -> u32 {
        match list == List::Readahead && self.is_fresh(shard) {
            true => 0,
            false => self.heads[shard][list as usize].age,
        }
    }
}

impl FirstFolio {
    fn of(shard: &Shard, list: List, now: u32) -> Self {
        let (folios, since) = shard.head(list);
        Self {
            folios,
            age: age_of(since, now),
        }
    }
}

/// None, if it was added after the clock was looked at.
pub(super) fn age_of(since: u32, now: u32) -> u32 {
    (now.wrapping_sub(since) as i32).max(0) as u32
}
