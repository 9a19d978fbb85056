//! Pinned pages.

use super::SoftMap;
use crate::FaultError;
use crate::file_map::FilePin;
use crate::generation::ProcessGeneration;
use crate::range::clip;
use core::ops::Range;

/// A pinned range of a map: it stays in memory. A read of it never blocks
/// and cannot fail.
pub struct SoftPinned<'a> {
    map: &'a SoftMap,
    /// Offsets in the map.
    range: Range<usize>,
    /// Taken when it is dropped.
    pin: Option<FilePin>,
}

impl<'a> SoftPinned<'a> {
    pub(super) fn new(map: &'a SoftMap, range: Range<usize>) -> Result<Self, FaultError> {
        let addresses = map.addresses(&range)?;
        let pin = Some(map.file.pin(&map.engine.inner.managed, addresses)?);
        Ok(Self { map, range, pin })
    }

    /// Bytes that are pinned.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// True if no byte is pinned.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// Copies bytes from `offset` of the pinned range on; returns the number of
    /// bytes copied: 0 in a child of fork, which has none of them.
    pub fn read_at(&self, buffer: &mut [u8], offset: usize) -> usize {
        let start = self.map.start() + self.range.start;
        let addresses = clip(start, self.len(), offset, buffer.len());
        let count = addresses.len();
        let engine = &self.map.engine;
        let space = &engine.inner.managed.space;
        if ProcessGeneration::is_child() {
            return 0;
        }
        let read = engine.read(space, addresses.start, &mut buffer[..count]);
        read.expect("pinned pages are there");
        count
    }
}

impl core::fmt::Debug for SoftPinned<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SoftPinned")
            .field("range", &self.range)
            .finish()
    }
}

impl Drop for SoftPinned<'_> {
    fn drop(&mut self) {
        let pin = self.pin.take();
        if ProcessGeneration::is_child() {
            // The parent's locks are.
            return core::mem::forget(pin);
        }
        let addresses = self.map.addresses(&self.range);
        let addresses = addresses.expect("checked when it was made");
        let pin = pin.expect("taken once");
        self.map.file.unpin(addresses, pin);
    }
}
