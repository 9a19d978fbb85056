//! Parts of private memory that go, or are handed over.

use super::{PrivateMapping, PrivateMappings};
use crate::count::{Decline, HANDED_BACK, TAKEN};
use crate::ranges::Ranges;
use core::ops::Range;
use softfault::UncheckedAdvice;

impl PrivateMappings {
    /// Takes away the part of a mapping that the program unmaps; false if it cannot be. Parts that are the program's own
    /// go too.
    pub fn unmap_part(&mut self, start: usize, range: &Range<usize>) -> bool {
        let Some(mapping) = self.mappings.get_mut(&start) else {
            return true;
        };
        mapping.cut = true;
        for part in mapping.live.within(range) {
            // SAFETY: the program unmaps it.
            if unsafe { mapping.map.unmap_addresses(&part) }.is_err() {
                return false;
            }
            mapping.live.remove(&part);
            mapping.holes.add(&part);
            self.promised -= part.len() as u64;
        }
        for part in mapping.handed_over(range) {
            // SAFETY: as above.
            if unsafe { mapping.map.close_hole(&part) }.is_err() {
                return false;
            }
            mapping.holes.add(&part);
        }
        mapping.reserved.remove(range);
        true
    }

    /// Makes a range within a mapping zeros that the engine serves, whatever is there. After an error parts of it may be
    /// the program's own, or zeros already.
    pub fn renew_part(&mut self, start: usize, range: &Range<usize>) -> Result<(), Decline> {
        let mapping = self.mappings.get(&start).ok_or(Decline::Error)?;
        let live = mapping.live.within(range);
        let served: usize = live.iter().map(Range::len).sum();
        self.has_room(mapping.map.engine(), range.len() - served)?;
        let mapping = self.mappings.get_mut(&start).ok_or(Decline::Error)?;
        mapping.cut = true;
        let mut rest = Ranges::of(range.clone());
        for part in &live {
            let (advice, offset) = (UncheckedAdvice::DontNeed, mapping.offset(part.start));
            // SAFETY: the program wants zeros.
            let done = unsafe { (mapping.map).unchecked_advise_range(advice, offset, part.len()) };
            done.map_err(|_| Decline::Error)?;
            rest.remove(part);
        }
        for part in rest.within(range) {
            mapping.holes.remove(&part);
            mapping.reserved.remove(&part);
            // SAFETY: the program wants something new there.
            let taken = unsafe { mapping.map.take_part(&part) };
            taken.map_err(|_| Decline::Error)?;
            mapping.live.add(&part);
            self.promised += part.len() as u64;
        }
        TAKEN.add(range.len());
        Ok(())
    }

    /// Parts of a range that are the program's own are reserved by now.
    pub fn reserve_part(&mut self, start: usize, range: &Range<usize>) {
        let Some(mapping) = self.mappings.get_mut(&start) else {
            return;
        };
        if !mapping.is_file && !mapping.is_block {
            for part in mapping.handed_over(range) {
                mapping.reserved.add(&part);
            }
        }
    }

    /// Hands the live parts of a range in a mapping over; false if it cannot be: the other parts stay as they were.
    pub fn hand_over_part(&mut self, start: usize, range: &Range<usize>) -> bool {
        let Some(mapping) = self.mappings.get_mut(&start) else {
            return true;
        };
        mapping.cut = true;
        for part in mapping.live.within(range) {
            // SAFETY: the map is asked for live parts only.
            let handed = unsafe { mapping.map.hand_over(&part) };
            let end = handed.as_ref().map_or_else(|&(at, _)| at, |()| part.end);
            let done = part.start..end;
            if !done.is_empty() {
                mapping.live.remove(&done);
                self.promised -= done.len() as u64;
                HANDED_BACK.add(done.len());
            }
            if handed.is_err() {
                return false;
            }
        }
        true
    }

    /// Where in a mapping there is nothing the program has mapped something, or is about to.
    pub fn leave_holes(&mut self, start: usize, range: &Range<usize>) -> bool {
        let Some(mapping) = self.mappings.get_mut(&start) else {
            return true;
        };
        mapping.cut = true;
        for part in mapping.holes.within(range) {
            if mapping.map.leave_hole(&part).is_err() {
                return false;
            }
            mapping.holes.remove(&part);
        }
        mapping.reserved.remove(range);
        true
    }

    /// Takes a mapping out of which nothing is served any more. The parts that belong to the program stay.
    pub fn remove_dead(&mut self, start: usize) -> Option<PrivateMapping> {
        let mapping = self.mappings.get(&start)?;
        match mapping.live.is_empty() {
            true => self.mappings.remove(&start),
            false => None,
        }
    }
}
