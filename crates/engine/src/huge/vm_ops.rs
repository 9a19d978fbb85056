//! Huge pages as a VMA shows them.

use super::HugeMapping;
use super::fault;
use crate::PAGE_SIZE;
use crate::mm::backing::{SoftPage, VmFault, VmOps};
use crate::mm::{Backing, ForkError};
use crate::mmu::Mmu;
use crate::mmu::gather::MmuGather;
use crate::wait::Fault;
use core::fmt;
use core::ops::Range;
use sync::Arc;

/// Huge pages of a file, of one address space.
pub struct HugeVmOps(Arc<HugeMapping>);

impl VmOps for HugeVmOps {
    fn object(&self) -> *const () {
        Arc::as_ptr(&self.0).cast()
    }

    fn fault(&self, fault: &VmFault<'_, '_>) -> Fault {
        fault::fault(&self.0, fault)
    }

    fn is_present(&self, pgoff: u64, distance: usize, _write: bool) -> bool {
        self.0.is_mapped(pgoff + (distance / PAGE_SIZE) as u64)
    }

    fn soft_page(&self, _pgoff: u64, _distance: usize) -> SoftPage {
        SoftPage::Own
    }

    fn frame(&self, page: u64) -> Option<u32> {
        self.0.frame(page)
    }

    fn pages(&self) -> Option<Range<u64>> {
        Some(self.0.pages())
    }

    fn mmu(&self) -> Option<&Arc<dyn Mmu>> {
        Some(&self.0.pool().tables)
    }

    fn claim(&self, space: u64) -> bool {
        self.0.claim(space)
    }

    fn is_aligned(&self, pgoff: u64, distance: usize, addr: usize) -> bool {
        self.0.is_aligned(pgoff, distance, addr)
    }

    fn unshare(&self, pgoff: u64, bytes: usize) {
        self.0.unshare(pgoff, bytes);
    }

    /// The child may fault in the pages that the parent has reserved.
    fn fork(&self) -> Result<Option<Backing>, ForkError> {
        Ok(Some(self.0.fork().into()))
    }

    fn removed(&self, pgoff: u64, bytes: usize, _gather: &mut MmuGather) -> bool {
        self.0.unmap(pgoff, bytes);
        false
    }
}

impl From<Arc<HugeMapping>> for Backing {
    fn from(mapping: Arc<HugeMapping>) -> Self {
        Self::new(HugeVmOps(mapping))
    }
}

impl fmt::Debug for HugeVmOps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Huge({:?})", self.0.pages())
    }
}
