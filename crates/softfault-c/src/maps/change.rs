//! Pages of a part of a map that are changed while others use the map.
//!
//! A change is some calls of the library and one of the table, which belong together; so one thread at a time changes pages
//! of a window, and others wait for their turn. Looks and unmaps do not wait.

use super::kept;
use super::{Arc, MmapRaw, Part, Range, change, common, look};
use crate::failure::Failure;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The turn of a thread that changes pages of a window.
struct Turn {
    /// An address of the window.
    at: usize,
    number: u64,
}

impl Turn {
    /// Waits for it, and returns the result of `first`, in the same step.
    fn of<T>(
        at: usize,
        first: impl FnOnce(&mut super::Window) -> Result<T, Failure>,
    ) -> Result<(Self, T), Failure> {
        // Relaxed: numbers only differ.
        static TURNS: AtomicU64 = AtomicU64::new(0);
        loop {
            let mut maps = change();
            let window = maps.window_mut(at).ok_or_else(Failure::not_mapped)?;
            if window.changing.is_none() {
                let answer = first(window)?;
                let number = TURNS.fetch_add(1, Relaxed);
                window.changing = Some(number);
                return Ok((Self { at, number }, answer));
            }
            drop(maps);
            // A few system calls of another thread.
            std::thread::yield_now();
        }
    }
}

impl Drop for Turn {
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
    let (_turn, ()) = Turn::of(pages.start, |window| {
        match window.has(map) && window.uncovered(pages).is_empty() {
            true => Ok(()),
            false => Err(Failure::not_mapped()),
        }
    })?;
    map.protect_part(part.offsets(), writable)?;
    let mut maps = change();
    let window = maps.window_mut(pages.start);
    if let Some(window) = window.filter(|window| window.has(map)) {
        window.set_writable(pages, writable);
    }
    Ok(())
}

/// Lets pages be zeros again, whether they are mapped or were. False, and nothing was done, if some of them are of no map of
/// zeros.
pub(crate) fn renew(pages: &Range<usize>, writable: bool) -> Result<bool, Failure> {
    let Some(parts) = parts_of_zeros(pages) else {
        return Ok(false);
    };
    for part in parts {
        renew_part(&part, writable)?;
    }
    Ok(true)
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

fn renew_part(pages: &Range<usize>, writable: bool) -> Result<(), Failure> {
    let (_turn, (map, kept)) = Turn::of(pages.start, |window| {
        let mapped = window.zeros(pages).ok_or_else(Failure::not_mapped)?;
        let map: Arc<MmapRaw> = mapped.map.clone();
        Ok((map, window.take_kept_of(core::slice::from_ref(pages))))
    })?;
    // As when they are unmapped.
    kept::unmapped(kept, core::slice::from_ref(pages));
    let (start, len) = (map.as_ptr() as usize, map.len());
    let offsets = pages.start - start..(pages.end - start).min(len);
    // SAFETY: the caller gives the pages up, and none of them is kept.
    unsafe { map.renew_part(offsets, writable) }?;
    let mut maps = change();
    if let Some(window) = maps.window_mut(pages.start) {
        window.renew(&map, pages, writable);
    }
    Ok(())
}
