//! A core's translation buffer, and accesses through it or past it.
//!
//! An entry says which frame a page of a space is in. It is good while the
//! generation is the one it was made under (`cores`); so a shootdown empties
//! all buffers at once.

use super::cores::CoreHandle;
use super::entry::Pte;
use super::tables::Tables;
use crate::{PAGE_SHIFT, PAGE_SIZE};

/// Entries of a buffer: 1 MiB of pages in a row.
const ENTRIES: usize = 256;

/// Where a page is.
#[derive(Debug, Clone, Copy)]
struct Translation {
    /// Number of the space.
    space: u64,
    /// Number of the page in the space.
    page: usize,
    /// The generation at its filling; 0 is none.
    generation: u64,
    frame: u32,
    writable: bool,
}

/// A translation buffer: direct-mapped, one core's.
#[derive(Debug)]
pub struct Tlb {
    entries: Box<[Translation; ENTRIES]>,
}

/// The operation on the bytes of a page.
pub enum Transfer<'a> {
    /// They are copied out.
    Load(&'a mut [u8]),
    /// They are replaced.
    Store(&'a [u8]),
}

impl Transfer<'_> {
    /// True if the page must be writable.
    pub fn is_store(&self) -> bool {
        matches!(self, Self::Store(_))
    }
}

/// A page as a space shows it.
#[derive(Debug, Clone, Copy)]
pub struct TlbKey {
    /// Number of the space.
    pub space: u64,
    /// The address there.
    pub addr: usize,
}

impl Default for Tlb {
    /// A buffer with nothing in it.
    fn default() -> Self {
        let none = Translation {
            space: 0,
            page: 0,
            generation: 0,
            frame: 0,
            writable: false,
        };
        Self {
            entries: Box::new([none; ENTRIES]),
        }
    }
}

impl Tlb {
    /// The slot of a page; valid or not.
    #[inline]
    fn find(&self, place: TlbKey) -> Option<&Translation> {
        let page = place.addr >> PAGE_SHIFT;
        let found = &self.entries[page % ENTRIES];
        (found.page == page && found.space == place.space).then_some(found)
    }

    fn enter(&mut self, place: TlbKey, generation: u64, frame: u32, writable: bool) {
        let page = place.addr >> PAGE_SHIFT;
        self.entries[page % ENTRIES] = Translation {
            space: place.space,
            page,
            generation,
            frame,
            writable,
        };
    }
}

impl<const N: usize> Tables<N> {
    /// An access by buffered translations. `false` if there is none that allows it:
    /// nothing was done.
    #[inline]
    pub fn hit(
        &self,
        handle: &mut CoreHandle,
        tlb: &Tlb,
        place: TlbKey,
        transfer: Transfer<'_>,
    ) -> bool {
        let Some(found) = tlb.find(place) else {
            return false;
        };
        if transfer.is_store() && !found.writable {
            return false;
        }
        let inside = self.cores.enter(handle);
        let good = found.generation == inside.generation;
        if good {
            self.transfer(found.frame, place.addr, transfer);
        }
        good
    }

    /// An access by the tables' entry at `window_addr`, which is then in the
    /// buffer. `false` if the page is missing, or is to be stored to and not
    /// writable: nothing was done. The caller holds a lock of the VMA that
    /// shows the window's page at `place`, and `may_write` if the VMA does.
    pub fn miss(
        &self,
        handle: &mut CoreHandle,
        tlb: &mut Tlb,
        place: TlbKey,
        window_addr: usize,
        may_write: bool,
        transfer: Transfer<'_>,
    ) -> bool {
        let walk = || self.walk(window_addr);
        self.miss_found(handle, tlb, place, may_write, transfer, walk)
    }

    /// The same by the entry that `walk` finds, inside of the access.
    pub(super) fn miss_found(
        &self,
        handle: &mut CoreHandle,
        tlb: &mut Tlb,
        place: TlbKey,
        may_write: bool,
        transfer: Transfer<'_>,
        walk: impl FnOnce() -> Pte,
    ) -> bool {
        let inside = self.cores.enter(handle);
        let entry = walk();
        let writable = entry.is_writable() && may_write;
        if !entry.is_present() || (transfer.is_store() && !writable) {
            return false;
        }
        tlb.enter(place, inside.generation, entry.frame(), writable);
        self.transfer(entry.frame(), place.addr, transfer);
        true
    }

    /// Called inside an access, for a frame that was found there.
    #[inline]
    fn transfer(&self, frame: u32, addr: usize, transfer: Transfer<'_>) {
        let at = addr % PAGE_SIZE;
        match transfer {
            // SAFETY: the frame was found inside the access that goes on: it
            // is not reused before the access ends.
            Transfer::Load(target) => unsafe { self.frames.load(frame, at, target) },
            // SAFETY: as above.
            Transfer::Store(source) => unsafe { self.frames.store(frame, at, source) },
        }
    }
}
