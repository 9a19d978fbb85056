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
        let mut pinned = Self {
            map,
            range,
            pages: 0,
            holds: false,
        };
        if addresses.is_empty() {
            return Ok(pinned);
        }
        if let Some(private) = map.private() {
            let managed = map.engine().inner.managed().expect("a managed map");
            private.hold(managed, addresses, false)?;
            pinned.holds = true;
        } else if map.cache().is_some() {
            pinned.pages = pin(map, addresses)?;
            pinned.holds = true;
        }
        Ok(pinned)
    }

    /// Pins bytes of one page without counting them: for a moment, as a fault
    /// holds its folio. What is private is brought in, and may go again.
    pub(crate) fn uncounted(map: &'a Mmap, range: Range<usize>) -> Result<Self, FaultError> {
        let addresses = map.addresses(range.clone())?;
        debug_assert_eq!(
            addresses.start / PAGE_SIZE,
            (addresses.end - 1) / PAGE_SIZE,
            "one page"
        );
        match map.private() {
            Some(private) => {
                let managed = map.engine().inner.managed().expect("a managed map");
                private.populate(managed, addresses, false)?;
            }
            None => hold(map, addresses)?,
        }
        Ok(Self {
            map,
            range,
            pages: 0,
            holds: map.private().is_none(),
        })
    }
}

/// Pins the pages of a managed file; how many were charged to the limit on pins.
pub(crate) fn pin(map: &Mmap, addresses: Range<usize>) -> Result<u64, FaultError> {
    let cache = map.cache().expect("a managed map");
    let pages = cache.admit_pin(&addresses).ok_or(FaultError::NoMemory)?;
    match hold(map, addresses) {
        Ok(()) => Ok(pages),
        Err(error) => {
            cache.dismiss_pin(pages);
            Err(error)
        }
    }
}

/// Ends that.
pub(crate) fn unpin(map: &Mmap, addresses: Range<usize>, pages: u64) {
    let _masked = signal::masked();
    let cache = map.cache().expect("pages were pinned");
    fault::unpin(cache, addresses);
    cache.dismiss_pin(pages);
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
        masked = masked.deliver_pending();
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
        if !self.holds || self.map.is_parents() {
            return;
        }
        let addresses = self.map.addresses(self.range.clone());
        let addresses = addresses.expect("checked when it was made");
        match self.map.private() {
            Some(private) => {
                let managed = self.map.engine().inner.managed().expect("a managed map");
                private.release(managed, addresses);
            }
            None => unpin(self.map, addresses, self.pages),
        }
    }
}
