//! Pages that stay.

use super::Mmap;
use crate::error::FaultError;
use core::ops::{Deref, Range};
use softfault_engine::PAGE_SIZE;

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
    pub(super) fn new(map: &'a Mmap, range: Range<usize>) -> Result<Self, FaultError> {
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
            private.hold(map.managed(), addresses, false)?;
            pinned.holds = true;
        } else if let Some(file) = map.file() {
            pinned.pages = file.pin(map.managed(), addresses)?;
            pinned.holds = true;
        }
        Ok(pinned)
    }

    /// Pins bytes of one page without counting them: for a moment, as a fault
    /// holds its folio. What is private is brought in, and may go again.
    pub(super) fn uncounted(map: &'a Mmap, range: Range<usize>) -> Result<Self, FaultError> {
        let addresses = map.addresses(range.clone())?;
        debug_assert_eq!(
            addresses.start / PAGE_SIZE,
            (addresses.end - 1) / PAGE_SIZE,
            "one page"
        );
        match (map.private(), map.file()) {
            (Some(private), _) => private.populate(map.managed(), addresses, false)?,
            (None, file) => {
                let file = file.expect("a managed map");
                file.pin_uncounted(map.managed(), addresses)?;
            }
        }
        Ok(Self {
            map,
            range,
            pages: 0,
            holds: map.private().is_none(),
        })
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
        match (self.map.private(), self.map.file()) {
            (Some(private), _) => private.release(self.map.managed(), addresses),
            (None, file) => {
                let file = file.expect("pages were pinned");
                file.unpin(addresses, self.pages);
            }
        }
    }
}
