//! The maps of one window, and which pages of it are mapped.
//!
//! ```text
//!  maps     A: [0, 6)         B: [4, 9)
//!  runs     [0, 4) A    [4, 6) A B    [6, 9) B
//! ```
//!
//! A run is pages that the same maps have. So a look-up of an address takes one step, however many maps of a file
//! there are.
//!
//! Maps of a file that the engine writes to show one window with those that only read it. A call by address may be for any of
//! them, so it is for one that may be written to, if there is one. And what takes pages away takes them from one that only
//! reads: the other can do all that this one could.

use super::calls::Calls;
use super::kept::KeptRange;
use super::run::Run;
use super::{common, without};
use crate::access::{PAGE_SIZE, whole_pages};
use core::ops::Range;
use softfault::MmapRaw;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A map, and its protection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Access {
    /// A change of it is a change of its file, and of nobody's memory but its own.
    pub(crate) shared: bool,
    pub(crate) writable: bool,
}

/// A map. Protected by the lock of the table.
pub(crate) struct Mapped {
    pub(super) map: Arc<MmapRaw>,
    /// The pages that were asked for. Immutable.
    range: Range<usize>,
    /// Bytes of them that are left.
    left: usize,
    /// As it was made; the runs have later changes by `mprotect`. Immutable.
    pub(super) access: Access,
    /// What `map` itself knows of its protection: new pages of it may be written to, or not. Immutable.
    pub(super) known: bool,
    /// It is private memory of the engine's whose untouched pages are zeros. Immutable.
    pub(super) zeros: bool,
}

impl Mapped {
    pub(super) fn new(map: MmapRaw, asked: usize, access: Access) -> Self {
        let start = map.as_ptr() as usize;
        let range = start..start + whole_pages(asked);
        Self {
            zeros: map.is_zero_filled(),
            map: Arc::new(map),
            left: range.len(),
            range,
            access,
            known: access.writable,
        }
    }

    pub(super) fn range(&self) -> &Range<usize> {
        &self.range
    }

    /// True if it has these pages, no others, and has lost none.
    pub(super) fn is(&self, pages: &Range<usize>) -> bool {
        self.range == *pages && self.left == pages.len()
    }
}

/// The addresses that no other map has, and the maps there. Protected by the lock of the table.
#[derive(Default)]
pub(crate) struct Window {
    /// Immutable.
    range: Range<usize>,
    /// By number.
    maps: BTreeMap<u64, Mapped>,
    next: u64,
    /// By their first address.
    runs: BTreeMap<usize, Run>,
    /// The thread that changes pages of it by calls of the library, by the number of its turn.
    pub(super) changing: Option<u64>,
    /// Pages that a thread locks or unlocks by the kernel, by the number of its turn.
    pub(super) locking: Vec<(u64, Range<usize>)>,
    /// The unmaps whose pages the library does not have back yet.
    pub(super) giving_back: Vec<Unmapped>,
    pub(super) calls: Calls,
    pub(super) kept: Vec<KeptRange>,
    /// Pages of maps of the kernel's that children of fork do not inherit.
    childless: Vec<Range<usize>>,
}

/// Pages that were unmapped, and that the library does not have back yet.
pub(super) struct Unmapped {
    pub(super) number: u64,
    pub(super) pages: Vec<Range<usize>>,
    /// Calls that use them go on: it may take for ever.
    pub(super) in_use: bool,
}

impl Window {
    pub(super) fn new(range: Range<usize>) -> Self {
        Self {
            range,
            ..Self::default()
        }
    }

    pub(super) fn range(&self) -> &Range<usize> {
        &self.range
    }

    /// Bytes of a page of its maps.
    pub(super) fn page_size(&self) -> usize {
        let mapped = self.maps.values().next();
        mapped.map_or(PAGE_SIZE, |mapped| mapped.map.page_size())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.maps.is_empty()
    }

    /// True if a thread has calls of the library to do before some pages of it may be changed.
    pub(super) fn is_in_work(&self, pages: &Range<usize>) -> bool {
        self.changing.is_some() || self.unmapped(pages).next().is_some()
    }

    /// True if calls go on that use some pages, which were unmapped meanwhile.
    pub(super) fn is_in_use(&self, pages: &Range<usize>) -> bool {
        self.unmapped(pages).any(|unmapped| unmapped.in_use)
    }

    /// The unmaps of any of some pages that the library does not have back yet.
    fn unmapped(&self, pages: &Range<usize>) -> impl Iterator<Item = &Unmapped> {
        let has_any = |unmapped: &&Unmapped| {
            let mut of = unmapped.pages.iter();
            of.any(|of| !common(of, pages).is_empty())
        };
        self.giving_back.iter().filter(has_any)
    }

    pub(super) fn enter(&mut self, mapped: Mapped) {
        let (number, pages) = (self.next, mapped.range.clone());
        let writable = mapped.access.writable;
        self.next += 1;
        self.maps.insert(number, mapped);
        self.split(pages.start);
        self.split(pages.end);
        for gap in self.uncovered(&pages) {
            self.runs.insert(gap.start, Run::until(gap.end));
        }
        for (_, run) in self.runs.range_mut(pages) {
            run.add(number, writable);
        }
    }

    /// Has no run go across an address.
    fn split(&mut self, at: usize) {
        let below = self.runs.range_mut(..at).next_back();
        if let Some((_, run)) = below
            && run.end > at
        {
            let above = run.clone();
            run.end = at;
            self.runs.insert(at, above);
        }
    }

    /// Makes one run of two that touch there and have the same maps.
    fn join(&mut self, at: usize) {
        let Some(above) = self.runs.get(&at) else {
            return;
        };
        let end = above.end;
        let is_same = |below: &Run| {
            let same_maps = below.readers == above.readers && below.writers == above.writers;
            below.end == at && same_maps && below.changed == above.changed
        };
        let below = self.runs.range(..at).next_back();
        let same = below.filter(|(_, below)| is_same(below));
        if let Some((&start, _)) = same {
            self.runs.remove(&at);
            self.runs.get_mut(&start).expect("it was found").end = end;
        }
    }

    /// The run that an address is in, and a map that has it: the last that was made to be written to, or the last.
    pub(super) fn at(&self, at: usize) -> Option<(&Mapped, Range<usize>)> {
        let (&start, run) = self.runs.range(..=at).next_back()?;
        let number = run.maps(true).next()?;
        (at < run.end).then(|| (&self.maps[number], start..run.end))
    }

    /// The protection of the pages from an address on, as far as its run goes.
    pub(super) fn access(&self, at: usize) -> Option<Access> {
        let (mapped, run) = self.at(at)?;
        let changed = self.runs[&run.start].changed;
        let access = mapped.access;
        Some(Access {
            writable: changed.unwrap_or(access.writable),
            ..access
        })
    }

    /// A map that has all of some pages: one that was made to be written to, if possible.
    pub(super) fn one_of_all(&self, pages: &Range<usize>) -> Option<&Mapped> {
        if !self.uncovered(pages).is_empty() {
            return None;
        }
        let (&start, first) = self.runs.range(..=pages.start).next_back()?;
        let has_all = |number: &&u64| {
            let mut runs = self.runs.range(start..pages.end);
            runs.all(|(_, run)| run.readers.contains(number) || run.writers.contains(number))
        };
        let found = first.maps(true).find(has_all)?;
        Some(&self.maps[found])
    }

    /// Children of fork inherit some pages, or do not.
    pub(super) fn allow_inherit(&mut self, pages: &Range<usize>, allowed: bool) {
        self.childless = without(&self.childless, pages);
        if !allowed {
            self.childless.push(pages.clone());
        }
    }

    /// Those of some pages that children of fork do not inherit.
    pub(super) fn childless(&self, pages: &Range<usize>) -> Vec<Range<usize>> {
        let parts = self.childless.iter().map(|part| common(part, pages));
        parts.filter(|part| !part.is_empty()).collect()
    }

    /// True if children of fork inherit nothing of it.
    pub(super) fn is_childless(&self) -> bool {
        self.runs.iter().all(|(&start, run)| {
            let parts = self.childless(&(start..run.end));
            parts.iter().map(ExactSizeIterator::len).sum::<usize>() == run.end - start
        })
    }

    /// Some pages, all of which are mapped, each with a map that has it.
    pub(super) fn shown(&self, pages: &Range<usize>) -> Vec<(&Mapped, Range<usize>)> {
        let mut parts = Vec::new();
        let mut at = pages.start;
        while at < pages.end
            && let Some((mapped, run)) = self.at(at)
        {
            let end = run.end.min(pages.end);
            parts.push((mapped, at..end));
            at = end;
        }
        parts
    }

    /// True if it has a map.
    pub(super) fn has(&self, map: &Arc<MmapRaw>) -> bool {
        self.number_of(map).is_some()
    }

    fn number_of(&self, map: &Arc<MmapRaw>) -> Option<u64> {
        let mut maps = self.maps.iter();
        let found = maps.find(|(_, mapped)| Arc::ptr_eq(&mapped.map, map));
        found.map(|(&number, _)| number)
    }

    /// The map of zeros that some pages belong to, whether they are mapped or were.
    pub(super) fn zeros(&self, pages: &Range<usize>) -> Option<&Mapped> {
        // Private memory has a window for itself.
        let mapped = self.maps.values().next()?;
        let has = mapped.range.start <= pages.start && pages.end <= mapped.range.end;
        (mapped.zeros && has).then_some(mapped)
    }

    /// Pages of a map, all of which are mapped and no other map has, may be written to, or not.
    pub(super) fn set_writable(&mut self, pages: &Range<usize>, writable: bool) {
        self.split(pages.start);
        self.split(pages.end);
        let mut starts = Vec::new();
        for (&start, run) in self.runs.range_mut(pages.clone()) {
            let made = run.readers.is_empty();
            run.changed = (made != writable).then_some(writable);
            starts.push(start);
        }
        starts.into_iter().for_each(|start| self.join(start));
        self.join(pages.end);
    }

    /// Pages of a map are mapped again, where they were not, and may all be used for the same.
    pub(super) fn renew(&mut self, map: &Arc<MmapRaw>, pages: &Range<usize>, writable: bool) {
        let Some(number) = self.number_of(map) else {
            return;
        };
        for gap in self.uncovered(pages) {
            let mapped = self.maps.get_mut(&number).expect("it has a number");
            mapped.left += gap.len();
            let mut run = Run::until(gap.end);
            run.add(number, mapped.access.writable);
            self.runs.insert(gap.start, run);
        }
        self.set_writable(pages, writable);
    }

    /// The parts of some pages that no map has.
    pub(super) fn uncovered(&self, pages: &Range<usize>) -> Vec<Range<usize>> {
        let mut gaps = Vec::new();
        let mut at = pages.start;
        if let Some((_, range)) = self.at(at) {
            at = range.end;
        }
        for (&start, run) in self.runs.range(at.min(pages.end)..pages.end) {
            if at < start {
                gaps.push(at..start);
            }
            at = run.end;
        }
        if at < pages.end {
            gaps.push(at..pages.end);
        }
        gaps
    }

    /// True if one map alone has any of some pages, all of which are mapped.
    pub(super) fn has_of_one_map(&self, pages: &Range<usize>) -> bool {
        let first = self.runs.range(..=pages.start).next_back();
        let first = first.map_or(pages.start, |(&start, _)| start);
        let mut runs = self.runs.range(first..pages.end);
        runs.any(|(_, run)| run.count() == 1)
    }

    /// The last map that was made for these pages, and has lost none: of those that can be written to, or of those that cannot,
    /// if there is one.
    pub(super) fn exact(&self, pages: &Range<usize>, writable: bool) -> Option<u64> {
        let (_, run) = self.runs.range(..=pages.start).next_back()?;
        let mut maps = run.maps(writable);
        maps.find(|map| self.maps[map].is(pages)).copied()
    }

    /// The protection of that map, if it is the same for all of the pages.
    pub(super) fn exact_access(&self, pages: &Range<usize>, writable: bool) -> Option<Access> {
        let made = self.maps[&self.exact(pages, writable)?].access;
        let runs = self.runs.range(pages.clone());
        let mut writable = runs.map(|(_, run)| run.changed.unwrap_or(made.writable));
        let first = writable.next()?;
        let access = Access {
            writable: first,
            ..made
        };
        writable.all(|other| other == first).then_some(access)
    }

    /// Takes out the map that [`exact`](Self::exact) finds, if `may` says so of it.
    pub(super) fn take<E>(
        &mut self,
        pages: &Range<usize>,
        writable: bool,
        may: impl FnOnce(&Self, &Mapped) -> Result<(), E>,
    ) -> Option<Result<Mapped, E>> {
        let number = self.exact(pages, writable)?;
        if let Err(error) = may(self, &self.maps[&number]) {
            return Some(Err(error));
        }
        self.remove(pages, |_| number);
        self.maps.remove(&number).map(Ok)
    }

    /// Takes pages out, each of one map that has it: of one that only reads, if possible; of that which was made for these
    /// pages, or of the last. Answers the maps of which nothing is left. All of the pages are mapped.
    pub(super) fn cut(&mut self, pages: &Range<usize>) -> Vec<Mapped> {
        let exact = self.exact(pages, false);
        let reads = |number: &u64| !self.maps[number].access.writable;
        let exact_reads = exact.as_ref().is_some_and(reads);
        let choose = |run: &Run| {
            let exact = exact.filter(|_| exact_reads || run.readers.is_empty());
            let last = || run.maps(false).next().copied();
            exact.or_else(last).expect("a run has maps")
        };
        let touched = self.remove(pages, choose);
        let gone = touched
            .into_iter()
            .filter(|number| self.maps[number].left == 0);
        let gone: Vec<u64> = gone.collect();
        gone.iter()
            .filter_map(|number| self.maps.remove(number))
            .collect()
    }

    /// Takes pages out of the maps that `choose` says, run by run; answers their numbers, each once.
    fn remove(&mut self, pages: &Range<usize>, choose: impl Fn(&Run) -> u64) -> Vec<u64> {
        self.split(pages.start);
        self.split(pages.end);
        let mut touched = Vec::new();
        for (&start, run) in self.runs.range_mut(pages.clone()) {
            let number = choose(run);
            run.remove(number);
            let mapped = self.maps.get_mut(&number).expect("it has a number");
            mapped.left -= run.end - start;
            touched.push(number);
        }
        touched.sort_unstable();
        touched.dedup();
        let starts = self.runs.range(pages.clone()).map(|(&start, _)| start);
        for start in starts.collect::<Vec<_>>() {
            match self.runs[&start].count() == 0 {
                true => drop(self.runs.remove(&start)),
                false => self.join(start),
            }
        }
        self.join(pages.end);
        touched
    }

    /// In a child of fork: its maps have no references but those of the table, which are in `maps` and `kept`.
    ///
    /// # Safety
    /// No thread of this process is within a call, and the parent's thread that forked had the table's lock.
    pub(super) unsafe fn forget_users(&mut self) {
        let mapped = self.maps.values().map(|mapped| &mapped.map);
        let mut tables = BTreeMap::new();
        for map in mapped.chain(self.kept.iter().map(KeptRange::map)) {
            let (count, _) = tables.entry(Arc::as_ptr(map)).or_insert((0, map));
            *count += 1;
        }
        for (at, (count, map)) in tables {
            // Only calls have others. They were under way in threads that this process does not have.
            for _ in count..Arc::strong_count(map) {
                // SAFETY: the pointer is of an `Arc` that lives on in the table. This reference was of a thread that is not in this
                // process: nothing here drops it, or uses it.
                unsafe { Arc::decrement_strong_count(at) };
            }
        }
    }

    /// Takes out the kept ranges that have any of some pages.
    pub(super) fn take_kept_of(&mut self, pages: &[Range<usize>]) -> Vec<KeptRange> {
        let is_of = |kept: &mut KeptRange| {
            let mut pages = pages.iter();
            pages.any(|pages| !common(&kept.range, pages).is_empty())
        };
        self.kept.extract_if(.., is_of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use softfault::MmapOptions;

    /// Pages, of a window that nothing else is in.
    const PAGE: usize = crate::access::PAGE_SIZE;

    /// A map of some pages of a window: of memory, because the test looks at numbers only.
    fn enter(window: &mut Window, first: usize, count: usize) -> u64 {
        let map = MmapOptions::new()
            .len(count * PAGE)
            .stack()
            .map_anon()
            .unwrap();
        let access = Access {
            shared: true,
            writable: false,
        };
        let mut mapped = Mapped::new(map.into(), count * PAGE, access);
        mapped.range = first * PAGE..(first + count) * PAGE;
        window.enter(mapped);
        window.next - 1
    }

    fn pages(first: usize, count: usize) -> Range<usize> {
        first * PAGE..(first + count) * PAGE
    }

    fn exact(window: &Window, count: usize) -> Option<u64> {
        window.exact(&pages(0, count), false)
    }

    /// Runs as first page, page behind the last, and maps.
    fn runs(window: &Window) -> Vec<(usize, usize, Vec<u64>)> {
        let runs = window.runs.iter();
        runs.map(|(start, run)| (start / PAGE, run.end / PAGE, run.readers.clone()))
            .collect()
    }

    #[test]
    fn maps_lie_over_each_other() {
        let mut window = Window::new(pages(0, 100));
        let a = enter(&mut window, 0, 6);
        let b = enter(&mut window, 4, 5);
        assert_eq!(
            runs(&window),
            [(0, 4, vec![a]), (4, 6, vec![a, b]), (6, 9, vec![b])]
        );
        let c = enter(&mut window, 20, 2);
        assert_eq!(
            window.uncovered(&pages(5, 20)),
            [pages(9, 11), pages(22, 3)]
        );
        assert_eq!(window.uncovered(&pages(30, 2)), [pages(30, 2)]);
        assert!(window.uncovered(&pages(2, 7)).is_empty());
        assert!(window.at(10 * PAGE).is_none());
        // The entry made for these pages goes, though another was mapped later.
        let d = enter(&mut window, 0, 9);
        let gone = window.cut(&pages(4, 5));
        assert_eq!(gone.len(), 1);
        assert_eq!(runs(&window)[..2], [(0, 6, vec![a, d]), (6, 9, vec![d])]);
        assert_eq!(exact(&window, 6), Some(a));
        // One page after the other.
        assert!(window.cut(&pages(5, 1)).is_empty());
        assert_eq!(runs(&window)[..2], [(0, 5, vec![a, d]), (5, 6, vec![a])]);
        assert_eq!(exact(&window, 9), None, "it has lost one");
        assert!(window.cut(&pages(5, 1)).is_empty());
        assert_eq!(window.uncovered(&pages(0, 9)), [pages(5, 1)]);
        assert_eq!(window.cut(&pages(6, 3)).len(), 0);
        assert_eq!(window.cut(&pages(0, 5)).len(), 1, "the other is left");
        assert_eq!(window.cut(&pages(0, 5)).len(), 1);
        assert_eq!(runs(&window), [(20, 22, vec![c])]);
        assert_eq!(window.cut(&pages(20, 2)).len(), 1);
        assert!(window.is_empty() && window.runs.is_empty());
    }

    #[test]
    fn parts_are_protected_and_mapped_again() {
        let mut window = Window::new(pages(0, 20));
        let all = enter(&mut window, 0, 20);
        let map = window.maps[&all].map.clone();
        let writable = |window: &Window| -> Vec<(usize, usize, bool)> {
            let runs = window.runs.iter();
            let access = |start: usize| window.access(start).unwrap().writable;
            runs.map(|(&start, run)| (start / PAGE, run.end / PAGE, access(start)))
                .collect()
        };
        window.set_writable(&pages(5, 5), true);
        let expected = [(0, 5, false), (5, 10, true), (10, 20, false)];
        assert_eq!(writable(&window), expected);
        // Equal neighbours become one.
        window.set_writable(&pages(8, 4), true);
        window.set_writable(&pages(5, 7), true);
        let expected = [(0, 5, false), (5, 12, true), (12, 20, false)];
        assert_eq!(writable(&window), expected);
        window.cut(&pages(10, 4));
        assert_eq!(exact(&window, 20), None);
        let expected = [(0, 5, false), (5, 10, true), (14, 20, false)];
        assert_eq!(writable(&window), expected);
        window.renew(&map, &pages(7, 6), false);
        let expected = [(0, 5, false), (5, 7, true), (7, 13, false), (14, 20, false)];
        assert_eq!(writable(&window), expected);
        window.renew(&map, &pages(13, 1), false);
        window.set_writable(&pages(0, 20), false);
        assert_eq!(writable(&window), [(0, 20, false)]);
        assert_eq!(exact(&window, 20), Some(all), "it has all again");
        assert_eq!(window.cut(&pages(0, 20)).len(), 1);
    }

    #[test]
    fn runs_become_one_again() {
        let mut window = Window::new(pages(0, 1000));
        let all = enter(&mut window, 0, 1000);
        for round in 0..50 {
            let first = round * 17 % 900;
            enter(&mut window, first, 3);
            assert_eq!(window.cut(&pages(first, 3)).len(), 1);
            assert_eq!(runs(&window), [(0, 1000, vec![all])]);
            assert_eq!(exact(&window, 1000), Some(all));
        }
    }
}
