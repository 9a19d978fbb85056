//! Which grains are free, and where to write next.
//!
//! A write wants all its pages in a row. It gets the next gap that holds them, or
//! an eighth of a MiB of them, in the part of the file that is in use; else that
//! part grows by the missing bytes, up to the length that the user allowed; else it
//! gets the longest gap there is, and comes again for the rest.

use super::super::table::SlotWords;
use super::{GRAIN, GRAINS, TIMES_LONGER};
use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;
use softfault_engine::PAGE_SIZE;

/// Grains of a page.
const PAGE_GRAINS: u64 = (PAGE_SIZE / GRAIN) as u64;
/// Grains that are enough in a row.
const ENOUGH: u64 = ((128 << 10) / GRAIN) as u64;
const BITS: u64 = u64::BITS as u64;

/// The grains of a file. Protected as a whole by its owner's lock.
pub(super) struct PackedSpace {
    /// A bit a grain that is in use.
    used: SlotWords,
    /// How many are in use of each cluster.
    counts: Box<[u32]>,
    /// Grains that the user allowed; there are [`TIMES_LONGER`] as many.
    allowed: u64,
    /// Grains that gaps begin and end at multiples of.
    align: u64,
    /// Where to look for a gap next.
    hand: u64,
    /// Clusters from here on are free.
    clusters: u64,
}

impl PackedSpace {
    pub(super) fn new(slots: u64, align: usize) -> Option<Self> {
        let allowed = slots * PAGE_GRAINS;
        let grains = allowed * TIMES_LONGER;
        Some(Self {
            used: SlotWords::new(grains.div_ceil(BITS) as usize)?,
            counts: vec![0; grains.div_ceil(GRAINS) as usize].into_boxed_slice(),
            allowed,
            align: (align / GRAIN) as u64,
            hand: 0,
            clusters: 0,
        })
    }

    /// Takes grains in a row: `all`, or fewer where that is hard to have, but at
    /// least `least`.
    pub(super) fn take(&mut self, least: u64, all: u64) -> Option<Range<u64>> {
        while self.clusters > 0 && self.counts[self.clusters as usize - 1] == 0 {
            self.clusters -= 1;
        }
        let end = (self.clusters * GRAINS).min(self.allowed);
        let all = all.next_multiple_of(self.align);
        let least = least.next_multiple_of(self.align);
        let enough = all.min(ENOUGH);
        let hand = self.hand.min(end);
        // Free space at the end of the used part counts, and the space after it.
        let behind = end.saturating_sub(GRAINS)..(end + GRAINS).min(self.allowed);
        // Past the hand, for a gap that begins before it.
        let before = 0..(hand + enough).min(end);
        let mut found = 0..0;
        for range in [hand..end, before, behind] {
            if length(&found) < enough {
                let more = self.longest(range, enough, None);
                found = if length(&more) > length(&found) {
                    more
                } else {
                    found
                };
            }
        }
        let found = match length(&found) < least {
            true => self.longest(self.allowed..self.allowed * TIMES_LONGER, least, None),
            false => found,
        };
        self.take_of(found, least, all)
    }

    /// The same, only in clusters of which `has_space` is true.
    pub(super) fn take_where(
        &mut self,
        least: u64,
        all: u64,
        has_space: &dyn Fn(u64) -> bool,
    ) -> Option<Range<u64>> {
        let all = all.next_multiple_of(self.align);
        let least = least.next_multiple_of(self.align);
        let end = self.clusters * GRAINS;
        let end = end.min(self.allowed * TIMES_LONGER);
        let found = self.longest(0..end, all.min(ENOUGH), Some(has_space));
        self.take_of(found, least, all)
    }

    fn take_of(&mut self, found: Range<u64>, least: u64, all: u64) -> Option<Range<u64>> {
        if length(&found) < least {
            return None;
        }
        let found = found.start..found.end.min(found.start + all);
        self.hand = found.end;
        self.mark(found.clone(), true);
        Some(found)
    }

    /// Gives grains back.
    pub(super) fn put(&mut self, grains: Range<u64>) {
        self.mark(grains, false);
    }

    /// The first gap in `range` of `enough` grains, or else the longest; it may be
    /// empty.
    fn longest(
        &self,
        range: Range<u64>,
        enough: u64,
        only: Option<&dyn Fn(u64) -> bool>,
    ) -> Range<u64> {
        let mut longest = 0..0;
        let mut at = range.start;
        while at < range.end && length(&longest) < enough {
            let cluster = at / GRAINS;
            let full = GRAINS - u64::from(self.counts[cluster as usize]) < self.align;
            if full || only.is_some_and(|only| !only(cluster)) {
                at = (cluster + 1) * GRAINS;
                continue;
            }
            let end = match only {
                // The next one may not do.
                Some(_) => range.end.min((cluster + 1) * GRAINS),
                None => range.end,
            };
            let start = self.find(at..end, false);
            at = self.find(start..end, true);
            let gap = start.next_multiple_of(self.align)..at / self.align * self.align;
            if length(&gap) > length(&longest) {
                longest = gap;
            }
        }
        longest
    }

    /// The first grain of `range` that is in use, or is not; its end if none is.
    fn find(&self, range: Range<u64>, used: bool) -> u64 {
        let mut at = range.start;
        while at < range.end {
            let word = self.used[(at / BITS) as usize].load(Relaxed);
            let wanted = if used { word } else { !word } >> (at % BITS);
            if wanted != 0 {
                return (at + u64::from(wanted.trailing_zeros())).min(range.end);
            }
            at = (at / BITS + 1) * BITS;
        }
        range.end
    }

    fn mark(&mut self, grains: Range<u64>, used: bool) {
        for grain in grains.clone() {
            let word = &self.used[(grain / BITS) as usize];
            let (before, bit) = (word.load(Relaxed), 1 << (grain % BITS));
            debug_assert_eq!(before & bit == 0, used, "grain {grain}");
            word.store(before ^ bit, Relaxed);
        }
        for part in super::parts(grains, GRAINS) {
            let cluster = (part.start / GRAINS) as usize;
            let count = (part.end - part.start) as u32;
            if used {
                self.counts[cluster] += count;
                self.clusters = self.clusters.max(cluster as u64 + 1);
            } else {
                self.counts[cluster] -= count;
            }
        }
    }
}

fn length(gap: &Range<u64>) -> u64 {
    gap.end.saturating_sub(gap.start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use softfault_oracle::Random;

    /// Random takings and givings back; no part is taken twice.
    fn play(slots: u64, align: usize, seed: u64) {
        let mut space = PackedSpace::new(slots, align).unwrap();
        let mut random = Random::new(seed);
        let mut random = |below: u64| random.below(below as usize) as u64;
        let mut live: Vec<Range<u64>> = Vec::new();
        let mut taken = 0;
        while taken < 20 * slots {
            if (live.len() as u64) < slots && random(5) > 1 {
                // As one page of a write that has more.
                let first = 1 + random(PAGE_GRAINS);
                let all = first + random(64);
                let run = space.take(first, all).expect("there always is a gap");
                assert!(run.start.is_multiple_of(align as u64 / GRAIN as u64));
                assert!((first..=all + 7).contains(&(run.end - run.start)));
                let page = run.start..run.start + first;
                space.put(page.end..run.end);
                assert!(run.end <= 2 * slots * PAGE_GRAINS);
                live.push(page);
                taken += 1;
            } else if !live.is_empty() {
                let gone = live.swap_remove(random(live.len() as u64) as usize);
                space.put(gone);
            }
        }
        live.sort_by_key(|run| run.start);
        assert!(live.is_sorted_by(|a, b| a.end <= b.start));
        let used: u64 = live.iter().map(|run| run.end - run.start).sum();
        assert_eq!(used, space.counts.iter().map(|&n| u64::from(n)).sum());
        live.into_iter().for_each(|run| space.put(run));
        assert!(space.used.iter().all(|word| word.load(Relaxed) == 0));
    }

    #[test]
    fn there_always_is_a_gap_for_a_page() {
        for seed in 0..20 {
            for align in [512, 1024, 4096] {
                play(1 + seed * 37, align, seed);
            }
        }
    }

    #[test]
    fn a_gap_is_found_with_the_worst_of_neighbours() {
        // Each gap is a grain too short for a page, until there is no more room.
        let slots = 200;
        let mut space = PackedSpace::new(slots, GRAIN).unwrap();
        let all = slots * PAGE_GRAINS * TIMES_LONGER;
        for n in 0..slots - 1 {
            let at = n * (2 * PAGE_GRAINS - 1) + PAGE_GRAINS - 1;
            assert!(at + PAGE_GRAINS <= all);
            space.mark(at..at + PAGE_GRAINS, true);
        }
        let run = space.take(PAGE_GRAINS, PAGE_GRAINS).unwrap();
        assert_eq!(run.end - run.start, PAGE_GRAINS);
    }

    #[test]
    fn freed_space_is_used_again_before_the_file_grows() {
        let mut space = PackedSpace::new(1 << 16, GRAIN).unwrap();
        let a = space.take(8, 8192).unwrap();
        let b = space.take(8, 8192).unwrap();
        assert_eq!((a.clone(), b.clone()), (0..8192, 8192..16384));
        for _ in 0..100 {
            space.put(a.clone());
            let again = space.take(8, 8192).unwrap();
            assert!(again.end <= GRAINS, "{again:?}");
            space.put(again.clone());
            space.mark(a.clone(), true);
        }
    }
}
