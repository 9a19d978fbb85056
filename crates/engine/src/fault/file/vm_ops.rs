//! A file as a VMA shows it.

use super::{Fault, baseline};
use crate::PAGE_SHIFT;
use crate::cache::PageCache;
use crate::mm::Backing;
use crate::mm::backing::{SoftPage, VmFault, VmOps};
use crate::mmu::Mmu;
use crate::policy::MissAccounting;
use core::fmt;
use core::ops::Range;
use sync::Arc;

/// A file, through its page cache.
pub struct FileVmOps(Arc<PageCache>);

impl FileVmOps {
    fn address(&self, pgoff: u64, distance: usize) -> usize {
        self.0.window.address(pgoff, distance)
    }
}

impl VmOps for FileVmOps {
    fn object(&self) -> *const () {
        Arc::as_ptr(&self.0).cast()
    }

    fn fault(&self, fault: &VmFault<'_, '_>) -> Fault {
        let addr = self.address(fault.attributes.pgoff, fault.distance());
        let (advice, flags) = (fault.attributes.advice, fault.flags);
        match self.0.node.policies.miss_accounting {
            MissAccounting::Adaptive => super::fault(&self.0, addr, advice, flags),
            _ => baseline::fault(&self.0, addr, advice, flags),
        }
    }

    fn is_present(&self, pgoff: u64, distance: usize, _write: bool) -> bool {
        self.0.is_mapped(self.address(pgoff, distance))
    }

    fn soft_page(&self, pgoff: u64, distance: usize) -> SoftPage {
        SoftPage::Window {
            addr: self.address(pgoff, distance),
            is_missing: false,
        }
    }

    fn pages(&self) -> Option<Range<u64>> {
        Some(0..(self.0.addresses().len() >> PAGE_SHIFT) as u64)
    }

    fn mmu(&self) -> Option<&Arc<dyn Mmu>> {
        Some(&self.0.node.mmu)
    }

    fn is_writable(&self) -> bool {
        false
    }
}

impl From<Arc<PageCache>> for Backing {
    fn from(cache: Arc<PageCache>) -> Self {
        Self::new(FileVmOps(cache))
    }
}

impl fmt::Debug for FileVmOps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "File({:#x?})", self.0.addresses())
    }
}
