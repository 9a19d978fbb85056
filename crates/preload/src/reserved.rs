//! Address space that the program has reserved (PROT_NONE), and takes into use part by part, as virtual machines and allocators
//! do with their heaps.
//!
//! ```text
//!   mmap(PROT_NONE)                 the kernel's mapping stays, and is remembered here
//!   mmap(MAP_FIXED) or mprotect,    the first time a window is made over the reservation (private/), of which nothing
//!   to be read and written            is served; the part is zeros that the engine serves          commit.rs
//!   MAP_FIXED with PROT_NONE        the pages go, and the part is reserved again
//!   munmap                          the part goes
//!   any other call                  the part is the kernel's, and no reservation any more
//! ```

use crate::decide::{LARGEST_RESERVATION, LEAST};
use crate::marked;
use core::ops::Range;
use std::collections::BTreeMap;

/// Where windows begin.
const SPAN: usize = 2 << 20;

/// Reservations over which there is no window yet, each from a multiple of [`SPAN`] on.
#[derive(Default)]
pub struct Reservations(BTreeMap<usize, Reservation>);

/// Another end of one.
#[derive(Clone, Copy)]
struct Reservation {
    end: usize,
    /// Children of fork do not have it (MADV_DONTFORK).
    is_childless: bool,
}

impl Reservations {
    /// None.
    pub const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Remembers one: of a range what a window can be made over.
    pub fn remember(&mut self, range: &Range<usize>, is_childless: bool) {
        if let Some(start) = range.start.checked_next_multiple_of(SPAN)
            && start + LEAST <= range.end
            && marked::can_mark(range)
            && marked::make()
        {
            marked::mark(&(start..range.end), true);
            let end = range.end;
            self.0.insert(start, Reservation { end, is_childless });
        }
    }

    /// Those that overlap a range, by address.
    pub fn over(&self, range: &Range<usize>) -> Vec<Range<usize>> {
        let before = self.0.range(..range.end).rev();
        let over = before.take_while(|(_, own)| own.end > range.start);
        let mut over: Vec<_> = over.map(|(&start, own)| start..own.end).collect();
        over.reverse();
        over
    }

    /// Remembers a part of a reservation that was in use, as one with those beside it that children of fork have, too. True if it is
    /// `least` bytes with them.
    pub fn join(&mut self, part: &Range<usize>, least: usize) -> bool {
        let near = part.start.saturating_sub(1)..part.end.saturating_add(1);
        let near = self.over(&near).into_iter();
        let joined: Vec<_> = near.filter(|own| !self.is_childless(own.start)).collect();
        let start = joined
            .first()
            .map_or(part.start, |own| own.start.min(part.start));
        let end = joined.last().map_or(part.end, |own| own.end.max(part.end));
        if joined.is_empty() || !(least..=LARGEST_RESERVATION).contains(&(end - start)) {
            return false;
        }
        // Their bits stay: others look at them meanwhile.
        for own in joined {
            self.0.remove(&own.start);
        }
        // Of others, what is in the part is none any more.
        self.forget(part);
        self.remember(&(start..end), false);
        true
    }

    /// Forgets those of a range, which are something else from now on.
    pub fn forget(&mut self, range: &Range<usize>) {
        for own in self.over(range) {
            let Some(Reservation { is_childless, .. }) = self.0.remove(&own.start) else {
                continue;
            };
            let mut left = |start: usize, end: usize| {
                let left = start + LEAST <= end;
                if left {
                    self.0.insert(start, Reservation { end, is_childless });
                }
                left
            };
            let mut goes = own.clone();
            if left(own.start, range.start.min(own.end)) {
                goes.start = range.start.next_multiple_of(SPAN);
            }
            let rest = range.end.next_multiple_of(SPAN);
            if range.end < own.end && left(rest, own.end) {
                goes.end = rest;
            }
            // The bits of the units that are left are never cleared in between: others look at them meanwhile.
            if goes.start < goes.end {
                marked::mark(&goes, false);
            }
        }
    }

    /// Children of fork have those of a range that is all of them, or have not.
    pub fn keep_from_children(&mut self, range: &Range<usize>, is_childless: bool) {
        for own in self.over(range) {
            let is_all = own.start >= range.start && own.end <= range.end;
            match self.0.get_mut(&own.start) {
                Some(reservation) if is_all => reservation.is_childless = is_childless,
                _ => self.forget(range),
            }
        }
    }

    /// True if children of fork do not have the one that begins there.
    pub fn is_childless(&self, start: usize) -> bool {
        (self.0.get(&start)).is_some_and(|reservation| reservation.is_childless)
    }

    /// Takes one out over which a window is made; it stays marked. True if children do not have it.
    pub fn take(&mut self, start: usize) -> bool {
        let taken = self.0.remove(&start);
        taken.is_some_and(|reservation| reservation.is_childless)
    }

    /// In a child of fork: it does not have all of its parent's.
    pub fn forked(&mut self) {
        let childless: Vec<_> = (self.0.iter())
            .filter(|(_, own)| own.is_childless)
            .map(|(&start, own)| start..own.end)
            .collect();
        childless.iter().for_each(|range| self.forget(range));
    }
}
