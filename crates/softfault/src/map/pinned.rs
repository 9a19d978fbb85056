//! Pages that stay.

use super::{Mmap, MmapKind};
use crate::error::FaultError;
use crate::file_map::{FilePin, populate_by_kernel};
use core::ops::{Deref, Range};
use softfault_engine::PAGE_SIZE;

/// A range of a map that is in memory and stays there: touching it never
/// faults, and it may be handed to system calls.
pub struct Pinned<'a> {
    map: &'a Mmap,
    /// Offsets in the map.
    range: Range<usize>,
    held: Held,
}

/// What keeps it there.
enum Held {
    /// Nothing: it is empty, or the kernel's own.
    Nothing,
    /// Pages of private memory are kept.
    Private,
    File(FilePin),
}

impl<'a> Pinned<'a> {
    pub(super) fn new(map: &'a Mmap, range: Range<usize>) -> Result<Self, FaultError> {
        let addresses = map.addresses(range.clone())?;
        let held = match (map.private(), map.file()) {
            _ if addresses.is_empty() => Held::Nothing,
            (Some(private), _) => {
                private.hold(map.managed(), addresses, false)?;
                Held::Private
            }
            (None, Some(file)) => Held::File(file.pin(map.managed(), addresses)?),
            (None, None) => {
                populate_by_kernel(&addresses, false)?;
                Held::Nothing
            }
        };
        Ok(Self { map, range, held })
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
        let held = match (map.private(), map.file()) {
            (Some(private), _) => {
                private.populate(map.managed(), addresses, false)?;
                Held::Nothing
            }
            (None, Some(file)) => Held::File(file.pin_uncounted(map.managed(), addresses)?),
            (None, None) => {
                populate_by_kernel(&addresses, false)?;
                Held::Nothing
            }
        };
        Ok(Self { map, range, held })
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
        let held = core::mem::replace(&mut self.held, Held::Nothing);
        if self.map.is_parents() || matches!(self.map.kind(), MmapKind::Inherited) {
            // The parent's locks are.
            return core::mem::forget(held);
        }
        let addresses = self.map.addresses(self.range.clone());
        let addresses = addresses.expect("checked when it was made");
        match held {
            Held::Nothing => {}
            Held::Private => {
                let private = self.map.private().expect("its pages are kept");
                private.release(self.map.managed(), addresses);
            }
            Held::File(pin) => {
                let file = self.map.file().expect("its pages are pinned");
                file.unpin(addresses, pin);
            }
        }
    }
}
