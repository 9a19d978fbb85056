//! Advice and locks on pages of anonymous memory, and the locked pages meanwhile.

use super::shadow::Shows;
use super::world::{Member, Player, addresses};
use crate::op::MemoryVerb;
use crate::verbs::{self, Managed};
use core::ops::Range;
use softfault_engine::mm::Protection;

impl Player<'_> {
    /// Does something with pages, if all are anonymous memory that allows it, or brings pages of files in. False if
    /// they are not for it.
    pub(super) fn manage(&mut self, space: u8, pages: &Range<usize>, verb: MemoryVerb) -> bool {
        let Some((number, member)) = self.own(space) else {
            return false;
        };
        let last = self.world.shadow().last(number, pages);
        let is_for = |shows: &Shows| match (*shows, verb) {
            (Shows::File(_, protection), MemoryVerb::PopulateRead) => {
                protection != Protection::None
            }
            (Shows::Nothing | Shows::File(..), _) => false,
            // Its bytes are the file's: there is nothing to become zeros.
            (Shows::Zeros(page, _), MemoryVerb::Free) => {
                self.world.shadow().origin(number, page).is_none()
            }
            (Shows::Zeros(_, protection), _) => protection == Protection::ReadWrite,
        };
        let is_locked = |page| self.locked.contains(&(number, page));
        let stays = matches!(
            verb,
            MemoryVerb::DontNeed | MemoryVerb::Free | MemoryVerb::Cold | MemoryVerb::PageOut
        );
        if !last.iter().flatten().all(is_for) || stays && pages.clone().any(is_locked) {
            return false;
        }
        if verb == MemoryVerb::Unlock {
            self.assert_locked();
            for page in pages.clone() {
                self.locked.remove(&(number, page));
            }
        }
        let from = self.world.shadow().tick();
        if verb == MemoryVerb::DontNeed {
            let after = self.renewed(number, &last);
            self.world.shadow().begin(number, pages.start, after);
        }
        let freed: Vec<u32> = match verb {
            MemoryVerb::Free => last.iter().flatten().filter_map(Shows::number).collect(),
            _ => Vec::new(),
        };
        for &page in &freed {
            self.world.shadow().begin_free(number, page, from);
        }
        let managed = verbs::manage(&member.space, addresses(pages), verb);
        for &page in &freed {
            self.world.shadow().end_free(number, page, from);
        }
        match (managed, verb) {
            (_, MemoryVerb::DontNeed) => self.world.shadow().end(number, pages),
            (Managed::Done, MemoryVerb::Lock) => {
                let pages = pages.clone().map(|page| (number, page));
                self.locked.extend(pages);
                self.assert_locked();
            }
            (_, MemoryVerb::Lock) => self.unlock(number, pages),
            _ => {}
        }
        match managed {
            Managed::Done => {
                let cut_off = self.world.shadow().was_cut_off(number, pages, from);
                assert!(
                    verb != MemoryVerb::PopulateRead || !cut_off,
                    "{verb:?} brought in pages past the end"
                );
            }
            Managed::NoMemory => assert!(self.world.may_be_short, "{verb:?} found no memory"),
            Managed::Io => assert!(self.world.may_fail, "{verb:?} found that swap fails"),
            Managed::Refused => {
                let mut shadow = self.world.shadow();
                let changed = shadow.was_changed(number, pages, from)
                    || shadow.was_short(number, pages, from);
                assert!(changed, "{verb:?} was refused");
            }
        }
        true
    }

    /// The same pages with new bytes.
    fn renewed(&self, number: usize, last: &[Vec<Shows>]) -> Vec<Vec<Shows>> {
        let mut shadow = self.world.shadow();
        let mut renew = |shows: &Shows| match *shows {
            Shows::Zeros(page, protection) => {
                let origin = shadow.origin(number, page);
                Shows::Zeros(shadow.new_page(number, origin), protection)
            }
            other => other,
        };
        let pages = last.iter();
        pages
            .map(|values| values.iter().map(&mut renew).collect())
            .collect()
    }

    /// These pages of a space have changed.
    pub(super) fn unlock(&mut self, number: usize, pages: &Range<usize>) {
        self.locked
            .retain(|(space, page)| *space != number || !pages.contains(page));
    }

    /// Asserts that this thread's locked pages are in memory.
    pub(super) fn assert_locked(&self) {
        for &(number, page) in &self.locked {
            let Member { space, .. } = self.world.member(number);
            let address = addresses(&(page..page + 1)).start;
            let there = verbs::is_resident(&space, address);
            assert!(there, "page {page} of space {number} is locked, and went");
        }
    }
}
