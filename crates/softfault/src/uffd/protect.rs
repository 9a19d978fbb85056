//! Taking the leave to write away, and giving it back; zeros that cost nothing
//! as long as nobody writes to them.

use super::abi::{self, Progress};
use super::mmu::{UffdMmu, finish, mprotect, system};
use super::pagemap::Shown;
use crate::table::Working;
use core::ops::Range;
use softfault_engine::PAGE_SIZE;
use softfault_engine::mm::Protection;
use softfault_engine::mmu::{Mmu, MmuError, Reservation, Zeroed};
use softfault_engine::stage::Stage;

impl UffdMmu {
    /// `mprotect(2)` of a part of a window that was reserved for writing. Pages that userfaultfd has
    /// protected stay so.
    pub(super) fn restrict_to(
        &self,
        (window, part): (&Reservation, &Range<usize>),
        protection: Protection,
    ) -> Result<(), MmuError> {
        if protection == Protection::None {
            return Err(MmuError::System(libc::EINVAL));
        }
        if protection != Protection::ReadWrite {
            // First: after an error some of it may be.
            self.restricted().insert(window.addr);
        }
        for part in self.given.parts().served(part) {
            mprotect(&part, protection)?;
        }
        if protection == Protection::ReadWrite && *part == window.range() {
            self.restricted().remove(&window.addr);
        }
        Ok(())
    }

    /// Protects the present pages. The ranges are of windows that may be written
    /// to.
    ///
    /// The kernel asks for no particular descriptor of the process.
    pub(super) fn protect_all(&self, ranges: &[Range<usize>]) {
        let _stage = Stage::Protect.span();
        let fd = self.first();
        for range in ranges {
            if abi::protect(fd, range).is_err() {
                protect_pages(fd, range);
            }
        }
    }

    /// Protects all that is present in a window; false if that failed. In pieces: each call has the kernel's `mmap_lock` to its end, 0.2 µs
    /// a page, and a thread that maps something waits for that, and all others for it.
    pub(super) fn protect_whole(&self, window: &Reservation) -> bool {
        const PIECE: usize = 128 << 20;
        let _stage = Stage::Protect.span();
        let (fd, range) = (self.of(window), window.range());
        let mut pieces = range.clone().step_by(PIECE);
        pieces.all(|start| abi::protect(fd, &(start..range.end.min(start + PIECE))).is_ok())
    }

    /// Lets a page be written to.
    pub(super) fn unprotect(&self, window: &Reservation, addr: usize) -> Result<(), MmuError> {
        let _stage = Stage::Unprotect.span();
        if !self.protects(window) {
            return Ok(()); // All that is present is.
        }
        abi::unprotect(self.of(window), &(addr..addr + PAGE_SIZE)).map_err(system)
    }

    /// Maps the page of zeros at `addr`, if every write to it can be seen; else
    /// a page of memory.
    ///
    /// It is mapped first and protected afterwards, and a write that comes
    /// `between` gets memory from the kernel: so the page is looked at once
    /// it is protected.
    pub(super) fn zeros(
        &self,
        window: &Reservation,
        addr: usize,
        between: impl FnOnce(),
    ) -> Result<Zeroed, MmuError> {
        let _stage = Stage::Zero.span();
        if !self.protects(window) || !self.looks.pagemap.can_look() {
            self.fill(window, addr, PAGE_SIZE)?;
            return Ok(Zeroed::Memory);
        }
        let fd = self.of(window);
        self.zero_all(fd, addr, PAGE_SIZE)?;
        between();
        abi::protect(fd, &(addr..addr + PAGE_SIZE)).map_err(system)?;
        if self.looks.pagemap.look(addr) == Some(Shown::Zeros { protected: true }) {
            return Ok(Zeroed::Nothing);
        }
        // Memory may be written to, as if it had been mapped as such.
        self.unprotect(window, addr)?;
        Ok(Zeroed::Memory)
    }

    /// Maps zeros wherever nothing is.
    pub(super) fn zero_all(&self, fd: &Working, addr: usize, bytes: usize) -> Result<(), MmuError> {
        finish(bytes, |done, bytes| {
            let progress = abi::zero(fd, addr + done, bytes);
            let next = addr + done + progress.bytes;
            match progress.stopped {
                Some(libc::EEXIST) if self.calls_wait() && self.take_poison(next) => Progress {
                    stopped: None,
                    ..progress
                },
                _ => progress,
            }
        })
    }

    /// Takes the mark away that a page has which a system call could not have ([`poison`](Self::poison)); true if there was one.
    /// A page that is copied comes in its place, but zeros do not.
    #[cold]
    #[inline(never)]
    fn take_poison(&self, page: usize) -> bool {
        self.looks.is_lost(page) && self.zap.one(&(page..page + PAGE_SIZE))
    }
}

/// Protects, page by page, the pages that are still in a window of ours.
fn protect_pages(fd: &Working, range: &Range<usize>) {
    for page in range.clone().step_by(PAGE_SIZE) {
        match abi::protect(fd, &(page..page + PAGE_SIZE)) {
            // The program has mapped something else there.
            Ok(()) | Err(libc::ENOENT) => {}
            // Else a write could be lost.
            Err(errno) => panic!("protecting {page:x}: errno {errno}"),
        }
    }
}
