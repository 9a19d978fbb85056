//! Parts of private memory that go, or are handed over.

use super::{PrivateMapping, PrivateMappings};
use crate::call;
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
        mapping.childless.remove(range);
        true
    }

    /// Makes a range within a mapping zeros that the engine serves, whatever is there. After an error parts of it may be
    /// the program's own, or zeros already.
    pub fn zero_part(&mut self, start: usize, range: &Range<usize>) -> Result<(), Decline> {
        let mapping = self.mappings.get(&start).ok_or(Decline::Error)?;
        let live = mapping.live.within(range);
        let served: usize = live.iter().map(Range::len).sum();
        let tables = mapping.more_tables(range);
        self.has_room(mapping.map.engine(), range.len() - served, tables)?;
        let mapping = self.mappings.get_mut(&start).ok_or(Decline::Error)?;
        self.tables -= mapping.tables();
        mapping.taken.add(range);
        self.tables += mapping.tables();
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

    /// Children of fork have what is in a range.
    pub fn let_children_have(&mut self, range: &Range<usize>) {
        for start in self.over(range) {
            if let Some(mapping) = self.mappings.get_mut(&start) {
                mapping.childless.remove(range);
            }
        }
    }

    /// In a child of fork: what it does not have is not there.
    pub fn close_childless(&mut self) {
        let mut childless = Vec::new();
        for mapping in self.mappings.values_mut() {
            let parts = mapping.childless.within(&mapping.room);
            childless.extend(parts.into_iter().map(|part| (mapping.room.start, part)));
            // The kernel's have no addresses here, and others may have come to be there.
            let parts = core::mem::take(&mut mapping.childless);
            (parts.within(&mapping.room).iter()).for_each(|part| mapping.reserved.remove(part));
        }
        for (start, part) in childless {
            let live = self
                .mappings
                .get(&start)
                .map(|mapping| mapping.live.within(&part));
            for part in live.into_iter().flatten() {
                // The addresses stay taken: the program may take them for its own, and threads of ours are about to map their stacks.
                self.unmap_part(start, &part);
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
                for part in mapping.childless.within(&done) {
                    // Where the kernel refuses, children have more than they should.
                    let args = [part.start, part.len(), libc::MADV_DONTFORK as usize, 0];
                    // SAFETY: advice that the program has given for memory of its own.
                    unsafe { call::any(libc::SYS_madvise, args) };
                }
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
        mapping.childless.remove(range);
        true
    }

    /// Takes a mapping out of which nothing is served any more. The parts that belong to the program stay.
    pub fn remove_dead(&mut self, start: usize) -> Option<PrivateMapping> {
        let mapping = self.mappings.get(&start)?;
        match mapping.live.is_empty() {
            true => self.remove(start),
            false => None,
        }
    }
}
