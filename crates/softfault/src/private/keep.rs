//! Pages that stay in memory, and may be handed to system calls.
//!
//! Each range of pages that is to stay is in a list; a page may go again when it
//! is in no range of it.

use super::Private;
use crate::FaultError;
use crate::generation::ProcessGeneration;
use crate::managed::Managed;
use crate::range::whole_pages;
use core::ops::Range;
use core::sync::atomic::Ordering;
use softfault_engine::PAGE_SIZE;
use softfault_engine::fault;
use softfault_engine::mm::Protection;
use std::sync::{MutexGuard, PoisonError};

/// The accesses for which pages are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HoldFor {
    Reads,
    /// An error where the pages may not be written to: a store would be a SIGSEGV.
    Writes,
    /// Reads, and writes of pages that may be written to.
    Allowed,
}

impl HoldFor {
    /// Whether pages are brought in as writes would, where they may be written to or not.
    fn is_write(self, may_write: bool) -> Result<bool, FaultError> {
        match self {
            Self::Reads => Ok(false),
            Self::Writes if !may_write => Err(FaultError::ReadOnly),
            Self::Writes | Self::Allowed => Ok(may_write),
        }
    }
}

impl Private {
    fn held(&self) -> MutexGuard<'_, Vec<Range<usize>>> {
        let held = self.kept.get().held.lock();
        held.unwrap_or_else(PoisonError::into_inner)
    }

    fn locked(&self) -> MutexGuard<'_, bool> {
        let locked = self.kept.get().locked.lock();
        locked.unwrap_or_else(PoisonError::into_inner)
    }

    fn numbers(&self, addresses: &Range<usize>) -> Range<usize> {
        let start = self.anon.addresses().start;
        let pages = whole_pages(addresses);
        (pages.start - start) / PAGE_SIZE..(pages.end - start) / PAGE_SIZE
    }

    fn addresses_of(&self, numbers: &Range<usize>) -> Range<usize> {
        let start = self.anon.addresses().start;
        start + numbers.start * PAGE_SIZE..start + numbers.end * PAGE_SIZE
    }

    /// Brings the pages of some addresses in, and keeps them until [`release`] is called
    /// for the same. Pages that are kept for writes can be written to by a system call, too.
    ///
    /// [`release`]: Self::release
    pub(crate) fn hold(
        &self,
        managed: &Managed,
        addresses: Range<usize>,
        accesses: HoldFor,
    ) -> Result<(), FaultError> {
        if addresses.is_empty() {
            return Ok(());
        }
        // First: no other thread lets go of pages in the list.
        self.held().push(self.numbers(&addresses));
        let kept = self.keep(managed, addresses.clone(), accesses);
        if kept.is_err() {
            self.release(managed, addresses);
        }
        kept
    }

    fn keep(
        &self,
        managed: &Managed,
        addresses: Range<usize>,
        accesses: HoldFor,
    ) -> Result<(), FaultError> {
        if !self.parts_differ.load(Ordering::Relaxed) {
            let write = accesses.is_write(self.is_writable())?;
            return self.keep_as(managed, addresses, write);
        }
        let parts = {
            let _masked = self.access_path.masked();
            self.protections(managed, &addresses)
        };
        for (part, protection) in parts {
            let write = accesses.is_write(protection == Protection::ReadWrite)?;
            self.keep_as(managed, part, write)?;
        }
        Ok(())
    }

    /// The same of pages that may all be used alike.
    fn keep_as(
        &self,
        managed: &Managed,
        addresses: Range<usize>,
        write: bool,
    ) -> Result<(), FaultError> {
        let space = &managed.space;
        self.access_path.each_attempt(addresses, |rest, interrupt| {
            fault::lock(space, rest, write, interrupt)
        })
    }

    /// Lets pages go that were held, unless somebody else holds them too.
    pub(crate) fn release(&self, managed: &Managed, addresses: Range<usize>) {
        if addresses.is_empty() {
            return;
        }
        let _masked = self.access_path.masked();
        let numbers = self.numbers(&addresses);
        let mut held = self.held();
        let place = held.iter().position(|other| *other == numbers);
        match place {
            Some(place) => drop(held.swap_remove(place)),
            // A parent held them: here they do not stay.
            None if ProcessGeneration::is_child() => return,
            None => unreachable!("pages that are not held are let go"),
        }
        self.release_unheld(managed, &held, numbers);
    }

    /// Lets pages go that were to be handed over, and were not: those that nobody holds. Signals are masked.
    pub(super) fn release_remaining(&self, managed: &Managed, addresses: Range<usize>) {
        let held = self.held();
        self.release_unheld(managed, &held, self.numbers(&addresses));
    }

    /// Lets those of some pages go that nobody holds. The list is locked meanwhile: a later hold of one of them comes after.
    fn release_unheld(&self, managed: &Managed, held: &[Range<usize>], numbers: Range<usize>) {
        let mut parts = vec![numbers];
        for other in held.iter() {
            let without = |part: Range<usize>| {
                let below = part.start..part.end.min(other.start);
                let above = part.start.max(other.end)..part.end;
                [below, above]
            };
            parts = parts.into_iter().flat_map(without).collect();
            parts.retain(|part| !part.is_empty());
        }
        for part in parts {
            fault::unlock(&managed.space, self.addresses_of(&part));
        }
    }

    /// The pages of the map: an empty one has none, but the page that stays mapped.
    fn all(&self) -> Range<usize> {
        match self.len {
            0 => self.start()..self.start(),
            _ => self.window(),
        }
    }

    /// Keeps all of the map, until [`unlock`](Self::unlock). Once or more is the same.
    pub(crate) fn lock(&self, managed: &Managed) -> Result<(), FaultError> {
        let mut locked = self.locked();
        if !*locked {
            self.hold(managed, self.all(), HoldFor::Allowed)?;
            *locked = true;
        }
        Ok(())
    }

    /// Ends [`lock`](Self::lock).
    pub(crate) fn unlock(&self, managed: &Managed) {
        let mut locked = self.locked();
        if core::mem::take(&mut *locked) {
            self.release(managed, self.all());
        }
    }

    /// After a locked map has become shorter or longer: all of it is locked. As with
    /// mremap(2), pages that do not fit are not locked, and that is no error.
    pub(super) fn keep_resized(&mut self, managed: &Managed) {
        let all = self.all();
        // Other holders of pages had the map borrowed.
        self.held().clear();
        if *self.locked() && !all.is_empty() {
            self.held().push(self.numbers(&all));
            let _ = self.keep(managed, all, HoldFor::Allowed);
        }
    }

    /// After some pages became writable: those of them that stay are not write-protected any more, as far as the
    /// budget goes.
    pub(super) fn keep_writable(&self, managed: &Managed, pages: &Range<usize>) {
        let pages = self.numbers(pages);
        let parts: Vec<_> = {
            let mut held = self.held();
            let part = |held: &Range<usize>| held.start.max(pages.start)..held.end.min(pages.end);
            let parts = held.iter().map(part).filter(|part| !part.is_empty());
            let parts: Vec<_> = parts.collect();
            // This thread holds them as well: were others to let go of them meanwhile, they would stay for ever.
            held.extend_from_slice(&parts);
            parts
        };
        for part in parts {
            let addresses = self.addresses_of(&part);
            let _ = self.keep(managed, addresses.clone(), HoldFor::Allowed);
            self.release(managed, addresses);
        }
    }
}
