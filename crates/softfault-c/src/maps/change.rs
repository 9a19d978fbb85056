//! Pages of a part of a map that are changed while others use the map.
//!
//! A change is some calls of the library and one of the table, which belong together; so one thread at a time changes pages
//! of a window, and others wait for their turn. An unmap is out of the table first, and the library has the pages back
//! afterwards: changes of these pages wait for that, and an unmap waits for a change. Unmaps do not wait for each other. Looks never
//! wait. Nobody waits for calls that use pages that were unmapped meanwhile: EBUSY.

use super::kept;
use super::take_out::in_use;
use super::{Arc, MmapRaw, Part, Range, Window, change, common, look};
use crate::failure::Failure;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The right of one thread to change pages of a window, until it is dropped.
struct ChangeGuard {
    /// An address of the window.
    at: usize,
    number: u64,
}

/// The number of a turn, or of an unmap.
pub(super) fn number() -> u64 {
    // Relaxed: numbers only differ.
    static NUMBERS: AtomicU64 = AtomicU64::new(0);
    NUMBERS.fetch_add(1, Relaxed)
}

/// Another thread has some system calls to do before it is through with a window.
pub(super) fn wait() {
    std::thread::yield_now();
}

impl ChangeGuard {
    /// Waits for the turn of all windows that these pages are in, each of the ranges in one; and if `may` says so of all of
    /// them, takes it, and returns the result of `first`, in the same step.
    fn of<T>(
        parts: &[Range<usize>],
        may: impl Fn(&Window, &Range<usize>) -> Result<(), Failure>,
        first: impl Fn(&mut Window, &Range<usize>) -> T,
    ) -> Result<Vec<(Self, T)>, Failure> {
        loop {
            let mut maps = change();
            let mut are_free = true;
            for part in parts {
                let window = maps.window(part.start).ok_or_else(Failure::not_mapped)?;
                if window.is_in_use(part) {
                    return may(window, part).and(Err(in_use()));
                }
                match window.is_in_work(part) {
                    true => are_free = false,
                    false => may(window, part)?,
                }
            }
            if are_free {
                let guards = parts.iter().map(|part| {
                    let window = maps.window_mut(part.start).expect("it was found");
                    let (at, number) = (part.start, number());
                    window.changing = Some(number);
                    (Self { at, number }, first(window, part))
                });
                return Ok(guards.collect());
            }
            drop(maps);
            wait();
        }
    }
}

impl Drop for ChangeGuard {
    fn drop(&mut self) {
        let mut maps = change();
        // It may have been unmapped meanwhile, and another be there.
        let window = maps.window_mut(self.at);
        if let Some(window) = window.filter(|window| window.changing == Some(self.number)) {
            window.changing = None;
        }
    }
}

/// Lets a part of a map, which no other map shows, be written to, or not any more.
pub(crate) fn protect(part: &Part, writable: bool) -> Result<(), Failure> {
    let (map, pages) = (&part.map, &part.range);
    let is_there = |window: &Window, pages: &Range<usize>| match window.has(map)
        && window.uncovered(pages).is_empty()
    {
        true => Ok(()),
        false => Err(Failure::not_mapped()),
    };
    let _guard = ChangeGuard::of(core::slice::from_ref(pages), is_there, |_, _| ())?;
    map.protect_part(part.offsets(), writable)?;
    let mut maps = change();
    let window = maps.window_mut(pages.start);
    if let Some(window) = window.filter(|window| window.has(map)) {
        window.set_writable(pages, writable);
    }
    Ok(())
}

/// Lets pages be zeros again, whether they are mapped or were: mapped ones too, if `replaces`; else EEXIST, and nothing was
/// done. False, and nothing was done, if some of them are of no map of zeros.
pub(crate) fn renew(pages: &Range<usize>, writable: bool, replaces: bool) -> Result<bool, Failure> {
    let Some(parts) = parts_of_zeros(pages) else {
        return Ok(false);
    };
    let may = |window: &Window, part: &Range<usize>| {
        window.zeros(part).ok_or_else(Failure::not_mapped)?;
        let is_free = || window.uncovered(part) == [part.clone()];
        match replaces || is_free() {
            true => Ok(()),
            false => Err(Failure::taken()),
        }
    };
    let first = |window: &mut Window, part: &Range<usize>| {
        let mapped = window.zeros(part).expect("it was there");
        let map = mapped.map.clone();
        (map, window.take_kept_of(core::slice::from_ref(part)))
    };
    // Of all before any is changed: no other thread gets pages of the range meanwhile.
    let guards = ChangeGuard::of(&parts, may, first)?;
    let mut renewed = Ok(());
    for ((_guard, (map, kept)), part) in guards.into_iter().zip(&parts) {
        // As when they are unmapped.
        kept::unmapped(kept, core::slice::from_ref(part));
        if renewed.is_ok() {
            renewed = zero_part(&map, part, writable);
        }
    }
    renewed.map(|()| true)
}

/// True if all of the pages are of maps of zeros, mapped or unmapped.
pub(crate) fn are_of_zeros(pages: &Range<usize>) -> bool {
    parts_of_zeros(pages).is_some()
}

/// A range by the windows that it is in, if all of it is in maps of zeros.
fn parts_of_zeros(pages: &Range<usize>) -> Option<Vec<Range<usize>>> {
    let maps = look();
    let mut parts = Vec::new();
    let mut at = pages.start;
    while at < pages.end {
        let window = maps.window(at)?;
        let part = common(window.range(), pages);
        window.zeros(&part)?;
        at = part.end;
        parts.push(part);
    }
    Some(parts)
}

/// In the turn of this thread, which the map's window has.
fn zero_part(map: &Arc<MmapRaw>, pages: &Range<usize>, writable: bool) -> Result<(), Failure> {
    let (start, len) = (map.as_ptr() as usize, map.len());
    let offsets = pages.start - start..(pages.end - start).min(len);
    // SAFETY: the caller gives the pages up, and none of them is kept.
    unsafe { map.zero_part(offsets, writable) }?;
    let mut maps = change();
    if let Some(window) = maps.window_mut(pages.start) {
        window.renew(map, pages, writable);
    }
    Ok(())
}
