//! Pages that stay.

use crate::{FaultError, Mmap, signal};
use core::ops::{Deref, Range};
use softfault_engine::PAGE_SIZE;
use softfault_engine::fault::{self, Pin};

/// A range of a map that is in memory and stays there: touching it never
/// faults, and it may be handed to system calls.
pub struct Pinned<'a> {
    map: &'a Mmap,
    /// Offsets in the map.
    range: Range<usize>,
    /// Pages charged to the limit on pins.
    pages: u64,
    /// True if it holds references to folios.
    holds: bool,
}

impl<'a> Pinned<'a> {
    pub(crate) fn new(map: &'a Mmap, range: Range<usize>) -> Result<Self, FaultError> {
        let addresses = map.addresses(range.clone())?;
        let (Some(_), false) = (map.cache(), range.is_empty()) else {
            return Ok(Self {
                map,
                range,
                pages: 0,
                holds: false,
            });
        };
        let node = &map.engine().inner.managed().expect("a managed map").node;
        // A folio has up to 16 pages, and both ends may be in the middle.
        let pages = (addresses.end - addresses.start).div_ceil(PAGE_SIZE) as u64 + 32;
        if !node.try_pin(pages) {
            return Err(FaultError::NoMemory);
        }
        match hold(map, addresses) {
            Ok(()) => Ok(Self {
                map,
                range,
                pages,
                holds: true,
            }),
            Err(error) => {
                node.unpin_pages(pages);
                Err(error)
            }
        }
    }

    /// Pins bytes of one page without counting them: for a moment, as a fault
    /// holds its folio.
    pub(crate) fn uncounted(map: &'a Mmap, range: Range<usize>) -> Result<Self, FaultError> {
        let addresses = map.addresses(range.clone())?;
        debug_assert_eq!(
            addresses.start / PAGE_SIZE,
            (addresses.end - 1) / PAGE_SIZE,
            "one page"
        );
        hold(map, addresses)?;
        Ok(Self {
            map,
            range,
            pages: 0,
            holds: true,
        })
    }
}

/// Maps the pages of a managed map and takes references to their folios.
fn hold(map: &Mmap, addresses: Range<usize>) -> Result<(), FaultError> {
    let cache = map.cache().expect("a managed map");
    let managed = map.engine().inner.managed().expect("a managed map");
    let space = &managed.space;
    let mut masked = signal::masked();
    let mut from = addresses.start;
    loop {
        match fault::pin(space, cache, addresses.clone(), from, &masked.pending()) {
            Pin::Done => return Ok(()),
            Pin::Interrupted(at) => from = at,
            Pin::Failed(error) => return Err(error.into()),
        }
        masked = masked.breathe();
    }
}

impl Deref for Pinned<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map[self.range.clone()]
    }
}

impl AsRef<[u8]> for Pinned<'_> {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl core::fmt::Debug for Pinned<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Pinned")
            .field("range", &self.range)
            .finish()
    }
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        if !self.holds || self.map.engine().inner.is_parents() {
            return;
        }
        let _masked = signal::masked();
        let cache = self.map.cache().expect("pages were pinned");
        let addresses = self
            .map
            .addresses(self.range.clone())
            .expect("checked when it was made");
        fault::unpin(cache, addresses);
        cache.node().unpin_pages(self.pages);
    }
}
