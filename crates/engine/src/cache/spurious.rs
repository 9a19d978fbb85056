//! Recent spurious faults.
//!
//! As a rule another thread's fault was faster, and the touch finds the page. But the
//! program may have thrown it away behind our back: `madvise(2)` with `MADV_DONTNEED`,
//! say, on the addresses of a map. Then the touch faults again, for ever, with all signals
//! masked. So the first spurious fault on a page is answered by another touch. If the same page comes again, the page
//! tables are asked, with the page locked; and a page that is missing is filled again, with
//! the bytes that the kernel would show: a file's bytes, and zeros for private memory
//! (`vanished` of the faults on each).

use crate::PAGE_SIZE;
use crate::page::FaultError;
use sync::PROCESSORS;
use sync::atomic::{AtomicUsize, Ordering};

/// EIO: the page tables have the page, and no touch can have its bytes ([`Mmu::is_lost`](crate::mmu::Mmu::is_lost)). Another
/// one would fault again, for ever.
pub(crate) const UNREADABLE: FaultError = FaultError::Io(5);

/// Pages that are remembered.
const PLACES: usize = if PROCESSORS < 8 { 1 } else { 64 };

/// The pages of the last spurious faults. Relaxed throughout: a lost entry is one more
/// touch, and one too many is one more question to the page tables.
pub(crate) struct SpuriousFaults([AtomicUsize; PLACES]);

impl Default for SpuriousFaults {
    fn default() -> Self {
        Self(core::array::from_fn(|_| AtomicUsize::new(0)))
    }
}

impl SpuriousFaults {
    /// True if this is the page's second spurious fault, with none of another page
    /// at its place between.
    pub(crate) fn is_second(&self, addr: usize) -> bool {
        let place = &self.0[addr / PAGE_SIZE % self.0.len()];
        if place.load(Ordering::Relaxed) == addr {
            place.store(0, Ordering::Relaxed);
            return true;
        }
        place.store(addr, Ordering::Relaxed);
        false
    }
}
