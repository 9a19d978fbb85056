//! Pinned pages.

use super::{Mmap, MmapKind};
use crate::error::FaultError;
use crate::file_map::{FileMap, FilePin, populate_by_kernel};
use crate::kernel_copy;
use crate::managed::Managed;
use crate::private::HoldFor;
use core::ops::{Deref, Range};
use softfault_engine::PAGE_SIZE;

/// A pinned range of a map: it stays in memory. A touch of it never
/// faults, and system calls may use it. [`Mmap::pin`] says what differs where the kernel serves the map.
pub struct Pinned<'a> {
    map: &'a Mmap,
    /// Offsets in the map.
    range: Range<usize>,
    held: Held,
}

/// The pin itself.
pub(crate) enum Held {
    /// No pin: the range is empty.
    Nothing,
    /// No pin either: the kernel serves it.
    ByKernel,
    /// Pages of private memory are kept.
    Private,
    File(FilePin),
}

impl<'a> Pinned<'a> {
    pub(super) fn new(map: &'a Mmap, range: Range<usize>) -> Result<Self, FaultError> {
        let held = map.hold_part(range.clone(), FileMap::pin)?;
        Ok(Self { map, range, held })
    }

    /// Pins bytes of one page of a file without counting them: for a moment, as a fault holds its folio.
    pub(super) fn uncounted(map: &'a Mmap, range: Range<usize>) -> Result<Self, FaultError> {
        let addresses = map.addresses(range.clone())?;
        debug_assert_eq!(
            addresses.start / PAGE_SIZE,
            (addresses.end - 1) / PAGE_SIZE,
            "one page"
        );
        let held = match map.file() {
            Some(file) => Held::File(file.pin_uncounted(map.managed(), addresses)?),
            None => map.hold_part(range.clone(), FileMap::pin)?,
        };
        Ok(Self { map, range, held })
    }

    /// True if the kernel serves the range: nothing keeps its pages.
    pub(super) fn is_kernels(&self) -> bool {
        match &self.held {
            Held::ByKernel => true,
            Held::File(pin) => pin.is_kernels(),
            Held::Nothing | Held::Private => false,
        }
    }

    /// Copies the range out, which has as many bytes.
    pub(super) fn copy_to(&self, into: &mut [u8]) -> Result<(), FaultError> {
        let from = self.map.start + self.range.start;
        assert_eq!(into.len(), self.range.len(), "it was made for them");
        if !self.is_kernels() {
            // By pointers: code that has pointers to the map may write to it meanwhile, which no reference allows.
            // SAFETY: within the map, whose pages are pinned; the buffer is borrowed.
            unsafe { (from as *const u8).copy_to(into.as_mut_ptr(), into.len()) };
            return Ok(());
        }
        // SAFETY: the range is within the map, and a window of the kernel's stays so while it is pinned; the buffer is borrowed.
        unsafe { kernel_copy::read(from, into.as_mut_ptr(), into.len()) }
    }
}

/// The ways to keep pages of a file.
type PinFn = fn(&FileMap, &Managed, Range<usize>) -> Result<FilePin, FaultError>;

impl Mmap {
    /// Brings a part in, and keeps it until [`release_part`](Self::release_part) is called with the result.
    pub(crate) fn hold_part(&self, part: Range<usize>, of_file: PinFn) -> Result<Held, FaultError> {
        let addresses = self.addresses(part)?;
        Ok(match (self.private(), self.file()) {
            _ if addresses.is_empty() => Held::Nothing,
            (Some(private), _) => {
                private.hold(self.managed(), addresses, HoldFor::Reads)?;
                Held::Private
            }
            (None, Some(file)) => Held::File(of_file(file, self.managed(), addresses)?),
            (None, None) => {
                populate_by_kernel(&addresses, false)?;
                Held::ByKernel
            }
        })
    }

    /// Releases a part that [`hold_part`](Self::hold_part) has kept.
    pub(crate) fn release_part(&self, part: Range<usize>, held: Held) {
        if self.is_parents() || matches!(self.kind(), MmapKind::Inherited) {
            // The parent's locks are.
            return core::mem::forget(held);
        }
        let addresses = self.addresses(part).expect("checked when it was held");
        match held {
            Held::Nothing | Held::ByKernel => {}
            Held::Private => {
                let private = self.private().expect("its pages are kept");
                private.release(self.managed(), addresses);
            }
            Held::File(pin) => {
                match self.file() {
                    Some(file) => file.unpin(addresses, pin),
                    // A shared writable file's, in a child of fork: the kernel maps the file there.
                    None => core::mem::forget(pin),
                }
            }
        }
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
        self.map.release_part(self.range.clone(), held);
    }
}
