//! Parts of private memory that a program has mapped by itself, and takes away, or wants to be the kernel's own. For
//! those who take over what a program has mapped.

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

    /// Unmaps a part, by its addresses: whole pages. The addresses stay taken until the map goes; a touch of them is a
    /// SIGSEGV.
    ///
    /// # Safety
    /// Nobody looks at the part any more.
    #[doc(hidden)]
    pub unsafe fn unmap_addresses(&self, part: &Range<usize>) -> io::Result<()> {
        let private = self.private_here()?;
        // SAFETY: the caller's promise.
        unsafe { private.unmap_part(self.managed(), part) }
    }

    /// Hands a part over to the program, by its addresses: whole pages, which the kernel serves from then on, with the
    /// bytes that they have, also when the map goes. After an error the address up to which it was done.
    ///
    /// # Safety
    /// The map is not asked for the part any more.
    #[doc(hidden)]
    pub unsafe fn hand_over(&self, part: &Range<usize>) -> Result<(), (usize, io::Error)> {
        let private = self.private_here().map_err(|error| (part.start, error))?;
        // SAFETY: the caller's promise.
        unsafe { private.hand_over(self.managed(), part) }
    }

    /// Says that the program has mapped something in a part that was unmapped: that stays when the map goes.
    #[doc(hidden)]
    pub fn leave_hole(&self, part: &Range<usize>) -> io::Result<()> {
        Private::leave_hole(part)
    }

    /// Unmaps what the program has in a part that is not the map's any more. The addresses stay taken.
    ///
    /// # Safety
    /// The program gives it up.
    #[doc(hidden)]
    pub unsafe fn close_hole(&self, part: &Range<usize>) -> io::Result<()> {
        // SAFETY: the caller's promise.
        unsafe { Private::close_hole(part) }
    }

    /// The addresses that no other map gets as long as this one lives.
    #[doc(hidden)]
    pub fn room(&self) -> Option<Range<usize>> {
        let private = self.private()?;
        Some(private.anonymous().addresses())
    }

    /// Lets it be read only, or be written to as well.
    #[doc(hidden)]
    pub fn set_writable(&mut self, writable: bool) -> io::Result<()> {
        self.protect(match writable {
            true => Protection::ReadWrite,
            false => Protection::Read,
        })
    }
}
