//! Pages that are unmapped, and maps that are changed as a whole.

use super::calls::Call;
use super::change::{number, wait};
use super::kept::{self, KeepReason, KeptRange};
use super::window::{Access, Mapped, Unmapped};
use super::{Arc, Maps, MmapRaw, NotMapped, Range, change, common};
use crate::failure::Failure;
use core::cell::Cell;
use std::io;

/// Unmaps pages, all of which are mapped.
pub(crate) fn unmap(pages: &Range<usize>) -> Result<(), NotMapped> {
    let cuts = loop {
        let mut maps = change();
        let parts = parts(&maps, pages)?;
        let is_changing = |start: &usize| maps.windows[start].changing.is_some();
        if !parts.iter().any(|(start, _)| is_changing(start)) {
            break cut(&mut maps, parts);
        }
        drop(maps);
        wait();
    };
    for cut in cuts {
        cut.begin();
    }
    Ok(())
}

/// Pages by the windows that they are in, each with its first address. Nothing is unmapped if some of it is nobody's, or a part of a
/// huge page.
fn parts(maps: &Maps, pages: &Range<usize>) -> Result<Vec<(usize, Range<usize>)>, NotMapped> {
    let mut at = pages.start;
    let mut parts = Vec::new();
    while at < pages.end {
        let window = maps.window(at).ok_or(NotMapped)?;
        let part = common(window.range(), pages);
        let has_whole = |&at: &usize| at.is_multiple_of(window.page_size());
        if !window.uncovered(&part).is_empty() || ![part.start, part.end].iter().all(has_whole) {
            return Err(NotMapped);
        }
        at = part.end;
        parts.push((window.range().start, part));
    }
    Ok(parts)
}

/// Takes mapped pages out of the table.
fn cut(maps: &mut Maps, parts: Vec<(usize, Range<usize>)>) -> Vec<CutOut> {
    let cuts = parts.into_iter().map(|(start, part)| {
        let window = maps.windows.get_mut(&start).expect("it was found");
        let shown = window.shown(&part);
        let shared = shown.iter().filter(|(mapped, _)| mapped.access.shared);
        let by_map =
            |(mapped, pages): &(&Mapped, Range<usize>)| (mapped.map.clone(), pages.clone());
        let shared = shared.map(by_map).collect();
        let shown: Vec<_> = shown.iter().map(by_map).collect();
        let whole = window.cut(&part);
        let gone = window.uncovered(&part);
        let kept = window.take_kept_of(&gone);
        let calls = window.calls.of(&gone);
        let number = number();
        window.giving_back.push(Unmapped {
            number,
            pages: gone.clone(),
            in_use: !calls.is_empty(),
        });
        if window.is_empty() {
            maps.windows.remove(&start);
        }
        let cut = Arc::new(Cut {
            shown,
            whole,
            gone,
            _giving_back: GivingBack { start, number },
        });
        calls.iter().for_each(|call| call.keep(&cut));
        CutOut {
            cut,
            shared,
            kept,
            _calls: calls,
        }
    });
    cuts.collect()
}

/// Pages that were just taken out of the table.
struct CutOut {
    cut: Arc<Cut>,
    /// Their parts of shared maps.
    shared: Vec<(Arc<MmapRaw>, Range<usize>)>,
    kept: Vec<KeptRange>,
    /// That use them; dropped without the table's lock.
    _calls: Vec<Arc<Call>>,
}

impl CutOut {
    /// The work before the unmap is over. The pages themselves go with it, or with the last call that uses them.
    fn begin(self) {
        kept::unmapped(self.kept, &self.cut.gone);
        for (map, part) in self.shared {
            let (start, len) = (map.as_ptr() as usize, map.len());
            let offset = |address: usize| (address - start).min(len);
            // Also where other maps still show the pages. A page that cannot be written stays dirty, and is told by softfault_msync.
            map.write_back(offset(part.start)..offset(part.end));
        }
    }
}

/// An unmap whose pages the library does not have back yet: nobody maps them again.
struct GivingBack {
    /// The first address of the window.
    start: usize,
    number: u64,
}

impl Drop for GivingBack {
    fn drop(&mut self) {
        let mut maps = change();
        // It may have been unmapped as a whole, and another be there.
        if let Some(window) = maps.windows.get_mut(&self.start) {
            window
                .giving_back
                .retain(|unmapped| unmapped.number != self.number);
        }
    }
}

/// Pages taken out of a window, which are given back when this is dropped, with no lock.
pub(crate) struct Cut {
    /// Maps that have shown the pages, and give them back: one for each page.
    shown: Vec<(Arc<MmapRaw>, Range<usize>)>,
    /// Maps that go.
    whole: Vec<Mapped>,
    /// Pages that nobody has any more.
    gone: Vec<Range<usize>>,
    /// Goes last.
    _giving_back: GivingBack,
}

impl Drop for Cut {
    fn drop(&mut self) {
        for (map, pages) in &self.shown {
            let mut whole = self.whole.iter();
            // A map that goes takes its pages with it.
            if whole.any(|mapped| Arc::ptr_eq(&mapped.map, map)) {
                continue;
            }
            let start = map.as_ptr() as usize;
            let pages = common(pages, &(start..start + map.len()));
            for gone in self.gone.iter().map(|gone| common(gone, &pages)) {
                if !gone.is_empty() {
                    // Pages that cannot be given back now go with the rest.
                    // SAFETY: no map has these pages any more, and nothing of them is kept.
                    let _ = unsafe { map.unmap_part(gone.start - start..gone.end - start) };
                }
            }
        }
    }
}

std::thread_local! {
    /// Maps that this thread has taken out.
    pub(super) static TAKEN: Cell<usize> = const { Cell::new(0) };
}

/// Forks of other threads wait while this lives: a map is in nobody's table.
struct Away;

impl Away {
    fn of(maps: &mut Maps) -> Self {
        maps.taken += 1;
        TAKEN.set(TAKEN.get() + 1);
        Self
    }
}

impl Drop for Away {
    fn drop(&mut self) {
        change().taken -= 1;
        TAKEN.set(TAKEN.get() - 1);
    }
}

/// A map that is in nobody's table, to be changed.
pub(crate) struct Taken {
    pub(crate) map: MmapRaw,
    pub(crate) access: Access,
    /// As the map was made.
    pub(crate) made: Access,
    /// The protection that the map itself knows of.
    known: bool,
    asked: usize,
    locked: Vec<Range<usize>>,
    /// Pages that children of fork do not inherit.
    childless: Vec<Range<usize>>,
    start: usize,
    away: Away,
}

impl Taken {
    /// Takes out the map that was made for these pages, all of which may be used alike, and that nothing else uses. If there are
    /// several, one that can be written to, or one that cannot.
    pub(crate) fn of(pages: &Range<usize>, writable: bool) -> Result<Self, Failure> {
        let (mapped, access, kept, childless, away) = {
            let mut maps = change();
            let window = maps
                .window_mut(pages.start)
                .ok_or_else(Failure::not_mapped)?;
            window.at(pages.start).ok_or_else(Failure::not_mapped)?;
            let not_whole = || {
                Failure::unsupported(
                    "this works only on a whole map, as softfault_mmap has made it",
                )
            };
            let access = window.exact_access(pages, writable).ok_or_else(not_whole)?;
            let mapped = window.take(pages, writable, |window, mapped| {
                // By this map, or by another one of the same pages that is gone.
                let goes = |kept: &KeptRange| {
                    let part = common(&kept.range, pages);
                    kept.is_of(&mapped.map) || !part.is_empty() && window.has_of_one_map(&part)
                };
                let mut pins = window.kept.iter();
                if pins.any(|kept| kept.why == KeepReason::Pinned && goes(kept)) {
                    return Err(Failure::pinned());
                }
                let locks = window.kept.iter().filter(|kept| kept.is_of(&mapped.map));
                match Arc::strong_count(&mapped.map) > 1 + locks.count() {
                    true => Err(in_use()),
                    false => Ok(()),
                }
            });
            let mapped = mapped.ok_or_else(not_whole)??;
            let bare = window.uncovered(pages);
            let is_of = |kept: &mut KeptRange| kept.is_of(&mapped.map);
            let own: Vec<_> = window.kept.extract_if(.., is_of).collect();
            let is_bare = |kept: &mut KeptRange| {
                let mut bare = bare.iter();
                bare.any(|bare| !common(&kept.range, bare).is_empty())
            };
            let others: Vec<_> = window.kept.extract_if(.., is_bare).collect();
            let kept = (own, others, bare);
            let childless = window.childless(pages);
            if window.is_empty() {
                let start = window.range().start;
                maps.windows.remove(&start);
            }
            (mapped, access, kept, childless, Away::of(&mut maps))
        };
        let (own, others, bare) = kept;
        let is_locked = |kept: &&KeptRange| kept.why == KeepReason::Locked;
        let over_bare = |kept: &KeptRange| {
            let parts = bare.iter().map(|bare| common(&kept.range, bare));
            parts.filter(|part| !part.is_empty()).collect::<Vec<_>>()
        };
        let of_others = others.iter().filter(is_locked).flat_map(over_bare);
        let of_own = own.iter().filter(is_locked).map(|kept| kept.range.clone());
        let locked = of_own.chain(of_others).collect();
        own.into_iter().for_each(KeptRange::release);
        kept::unmapped(others, &bare);
        let (map, made, known) = (mapped.map, mapped.access, mapped.known);
        // Nobody finds it any more, and nobody had it when it was taken out.
        let map = Arc::into_inner(map).ok_or_else(in_use)?;
        Ok(Self {
            map,
            access,
            made,
            known,
            asked: pages.len(),
            locked,
            childless,
            start: pages.start,
            away,
        })
    }

    /// Has the map know its protection, so that new pages get that of the rest: mprotect changes parts, of which it knows
    /// nothing.
    pub(crate) fn know_access(&mut self) -> io::Result<()> {
        if self.known != self.access.writable {
            self.map.protect(self.access.writable)?;
            self.known = self.access.writable;
        }
        Ok(())
    }

    /// Enters it again, with so many bytes, or as many as it had; answers where it is.
    pub(crate) fn enter(self, asked: Option<usize>) -> usize {
        let asked = asked.unwrap_or(self.asked);
        let mut mapped = Mapped::new(self.map, asked, self.made);
        mapped.known = self.known;
        let pages = mapped.range().clone();
        let moved = |range: &Range<usize>, end: usize| {
            let (from, to) = (range.start - self.start, range.end - self.start);
            pages.start + from..pages.start + to.min(end).max(from)
        };
        let childless: Vec<_> = match pages.len() > self.asked && !self.childless.is_empty() {
            // Only pages that are all alike grow.
            true => vec![pages.clone()],
            false => (self.childless.iter())
                .map(|range| moved(range, pages.len()))
                .collect(),
        };
        let start = super::enter_mapped(mapped, self.access.writable, &childless);
        drop(self.away);
        let locked: Vec<_> = (self.locked.iter())
            .map(|range| moved(range, asked))
            .collect();
        kept::lock_again(&locked);
        start
    }
}

pub(super) fn in_use() -> Failure {
    Failure::new(libc::EBUSY, "another call uses the map")
}
