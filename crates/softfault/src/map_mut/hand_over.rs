//! Parts of private memory that the program unmaps, or that become mappings of the kernel. For
//! callers that took over the program's own mappings.

use super::{MmapMut, MmapMutKind};
use crate::private::Private;
use core::ops::Range;
use softfault_engine::mm::Protection;
use std::io;

impl MmapMut {
    fn private_here(&self) -> io::Result<&Private> {
        self.addresses(0..self.len)?;
        match &self.kind {
            MmapMutKind::Managed(private) => Ok(private),
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Unmaps a part, given by the addresses of whole pages. The addresses stay reserved until the map is dropped; a
    /// touch of them raises SIGSEGV.
    ///
    /// # Safety
    /// Nothing uses the part any more.
    #[doc(hidden)]
    pub unsafe fn unmap_addresses(&self, part: &Range<usize>) -> io::Result<()> {
        let private = self.private_here()?;
        // SAFETY: the caller's promise.
        unsafe { private.unmap_part(self.managed(), part) }
    }

    /// Hands a part over to the program, given by the addresses of whole pages. The kernel serves these pages from then
    /// on, with their present bytes, even after the map is dropped. An error has the address up to which it was done.
    ///
    /// # Safety
    /// The map is not used for the part any more.
    #[doc(hidden)]
    pub unsafe fn hand_over(&self, part: &Range<usize>) -> Result<(), (usize, io::Error)> {
        let private = self.private_here().map_err(|error| (part.start, error))?;
        // SAFETY: the caller's promise.
        unsafe { private.hand_over(self.managed(), part) }
    }

    /// Notes that the program has mapped something in an unmapped part: that mapping stays when the map is dropped.
    #[doc(hidden)]
    pub fn leave_hole(&self, part: &Range<usize>) -> io::Result<()> {
        Private::leave_hole(part)
    }

    /// Unmaps the program's mapping in a part that no longer belongs to the map. The addresses stay reserved.
    ///
    /// # Safety
    /// The program does not use the mapping any more.
    #[doc(hidden)]
    pub unsafe fn close_hole(&self, part: &Range<usize>) -> io::Result<()> {
        // SAFETY: the caller's promise.
        unsafe { Private::close_hole(part) }
    }

    /// Makes a part zeros that the engine serves, given by the addresses of whole pages that are not the map's: of a map
    /// over reserved address space, unmapped, or handed over. After an error the part is the program's, and may be
    /// inaccessible.
    ///
    /// # Safety
    /// Nobody uses the part.
    #[doc(hidden)]
    pub unsafe fn take_part(&self, part: &Range<usize>) -> io::Result<()> {
        let private = self.private_here()?;
        // SAFETY: the caller's promise.
        unsafe { private.take_back(self.managed(), part) }
    }

    /// The addresses that are reserved for this map while it lives.
    #[doc(hidden)]
    pub fn room(&self) -> Option<Range<usize>> {
        let private = self.private()?;
        Some(private.anonymous().addresses())
    }

    /// Makes the map writable, or read-only.
    #[doc(hidden)]
    pub fn set_writable(&mut self, writable: bool) -> io::Result<()> {
        self.protect(match writable {
            true => Protection::ReadWrite,
            false => Protection::Read,
        })
    }
}
