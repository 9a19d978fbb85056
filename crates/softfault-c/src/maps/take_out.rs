//! Pages that are unmapped, and maps that are changed as a whole.

use super::change::{number, wait};
use super::kept::{self, KeepReason, KeptRange};
use super::window::{Access, Mapped};
use super::{Arc, Maps, MmapRaw, NotMapped, Range, change, common};
use crate::failure::Failure;

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
        cut.finish();
    }
    Ok(())
}

/// Pages by the windows that they are in, each with its first address. Nothing is unmapped if some of it is nobody's.
fn parts(maps: &Maps, pages: &Range<usize>) -> Result<Vec<(usize, Range<usize>)>, NotMapped> {
    let mut at = pages.start;
    let mut parts = Vec::new();
    while at < pages.end {
        let window = maps.window(at).ok_or(NotMapped)?;
        let part = common(window.range(), pages);
        if !window.uncovered(&part).is_empty() {
            return Err(NotMapped);
        }
        at = part.end;
        parts.push((window.range().start, part));
    }
    Ok(parts)
}

/// Takes mapped pages out of the table.
fn cut(maps: &mut Maps, parts: Vec<(usize, Range<usize>)>) -> Vec<Cut> {
    let cuts = parts.into_iter().map(|(start, part)| {
        let window = maps.windows.get_mut(&start).expect("it was found");
        // For each page that goes a map shows that it was there, so that it can be given back.
        let (shown, _) = window.at(part.start).expect("it is mapped");
        let shown = shown.map.clone();
        let whole = window.cut(&part);
        let gone = window.uncovered(&part);
        let kept = window.take_kept_of(&gone);
        let number = number();
        window.giving_back.push(number);
        if window.is_empty() {
            maps.windows.remove(&start);
        }
        Cut {
            shown,
            whole,
            gone,
            kept,
            _giving_back: GivingBack { start, number },
        }
    });
    cuts.collect()
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
            window.giving_back.retain(|&number| number != self.number);
        }
    }
}

/// The maps taken out of a window.
struct Cut {
    shown: Arc<MmapRaw>,
    /// Maps that go.
    whole: Vec<Mapped>,
    /// Pages that nobody has any more.
    gone: Vec<Range<usize>>,
    kept: Vec<KeptRange>,
    /// Goes last.
    _giving_back: GivingBack,
}

impl Cut {
    /// Gives it back, with no lock.
    fn finish(self) {
        kept::unmapped(self.kept, &self.gone);
        let goes = self
            .whole
            .iter()
            .any(|mapped| Arc::ptr_eq(&mapped.map, &self.shown));
        // A map that goes takes its pages with it.
        if !goes {
            let start = self.shown.as_ptr() as usize;
            let end = start + self.shown.len();
            for gone in self.gone {
                let gone = common(&gone, &(start..end));
                if gone.is_empty() {
                    continue;
                }
                // Pages that cannot be given back now go with the rest.
                // SAFETY: no map has these pages any more, and nothing of them is kept.
                let _ = unsafe { self.shown.unmap_part(gone.start - start..gone.end - start) };
            }
        }
    }
}

/// A map that is in nobody's table, to be changed.
pub(crate) struct Taken {
    pub(crate) map: MmapRaw,
    pub(crate) access: Access,
    /// That is by mprotect, and the map knows only its first protection.
    pub(crate) access_changed: bool,
    asked: usize,
    locked: Vec<Range<usize>>,
    start: usize,
}

impl Taken {
    /// Takes out the map that was made for these pages, all of which may be used alike, and that nothing else shows or uses.
    pub(crate) fn of(pages: &Range<usize>) -> Result<Self, Failure> {
        let (mapped, access, kept) = {
            let mut maps = change();
            let window = maps
                .window_mut(pages.start)
                .ok_or_else(Failure::not_mapped)?;
            let access = window.access(pages.start).ok_or_else(Failure::not_mapped)?;
            let mapped = window.take(pages, |window, mapped| {
                if window.keeps(&mapped.map, |kept| kept.why == KeepReason::Pinned) {
                    return Err(Failure::new(libc::EBUSY, "pages of the map are pinned"));
                }
                let locks = window.kept.iter().filter(|kept| kept.is_of(&mapped.map));
                match Arc::strong_count(&mapped.map) > 1 + locks.count() {
                    true => Err(in_use()),
                    false => Ok(()),
                }
            });
            let mapped = mapped.ok_or_else(|| {
                Failure::unsupported(
                    "this works only on a whole map, as softfault_mmap has made it",
                )
            })??;
            let is_of = |kept: &mut KeptRange| kept.is_of(&mapped.map);
            let kept: Vec<_> = window.kept.extract_if(.., is_of).collect();
            if window.is_empty() {
                let start = window.range().start;
                maps.windows.remove(&start);
            }
            (mapped, access, kept)
        };
        let locked = (kept.iter())
            .filter(|kept| kept.why == KeepReason::Locked)
            .map(|kept| kept.range.clone())
            .collect();
        kept.into_iter().for_each(KeptRange::release);
        let access_changed = mapped.access != access;
        let map = mapped.map;
        // Nobody finds it any more, and nobody had it when it was taken out.
        let map = Arc::into_inner(map).ok_or_else(in_use)?;
        Ok(Self {
            map,
            access,
            access_changed,
            asked: pages.len(),
            locked,
            start: pages.start,
        })
    }

    /// Enters it again, with so many bytes, or as many as it had; answers where it is.
    pub(crate) fn enter(self, asked: Option<usize>) -> usize {
        let asked = asked.unwrap_or(self.asked);
        let start = super::enter(self.map, asked, self.access);
        let moved = |range: &Range<usize>| {
            let (from, to) = (range.start - self.start, range.end - self.start);
            start + from..start + to.min(asked).max(from)
        };
        let locked: Vec<_> = self.locked.iter().map(moved).collect();
        kept::lock_again(&locked);
        start
    }
}

fn in_use() -> Failure {
    Failure::new(libc::EBUSY, "another call uses the map")
}
