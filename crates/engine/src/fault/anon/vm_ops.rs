//! Private memory as a VMA shows it.

use super::Fault;
use crate::PAGE_SHIFT;
use crate::anon::{Anonymous, NotShown};
use crate::mm::backing::{SoftPage, VmFault, VmOps};
use crate::mm::{Backing, ForkError, MmError, MoveError};
use crate::mmu::Mmu;
use crate::mmu::gather::MmuGather;
use core::fmt;
use core::ops::Range;
use sync::Arc;

/// Private memory of one address space.
pub struct AnonVmOps(Arc<Anonymous>);

impl AnonVmOps {
    fn address(&self, pgoff: u64, distance: usize) -> usize {
        self.0.window.address(pgoff, distance)
    }
}

impl VmOps for AnonVmOps {
    fn object(&self) -> *const () {
        Arc::as_ptr(&self.0).cast()
    }

    fn fault(&self, fault: &VmFault<'_, '_>) -> Fault {
        let addr = self.address(fault.attributes.pgoff, fault.distance());
        super::fault(&self.0, addr, fault.attributes.advice, fault.flags)
    }

    fn is_present(&self, pgoff: u64, distance: usize, write: bool) -> bool {
        let page = self.0.page(self.address(pgoff, distance));
        let state = self.0.pages.unlocked_state(page);
        state.is_some_and(|state| state.is_resident() && !(write && state.is_clean()))
    }

    fn soft_page(&self, pgoff: u64, distance: usize) -> SoftPage {
        let addr = self.address(pgoff, distance);
        let is_missing = !self.0.is_resident(addr);
        SoftPage::Window { addr, is_missing }
    }

    fn pages(&self) -> Option<Range<u64>> {
        Some(0..(self.0.addresses().len() >> PAGE_SHIFT) as u64)
    }

    fn mmu(&self) -> Option<&Arc<dyn Mmu>> {
        Some(&self.0.node.mmu)
    }

    fn claim(&self, space: u64) -> bool {
        self.0.claim(space)
    }

    fn fork(&self) -> Result<Option<Backing>, ForkError> {
        Ok(Some(self.0.fork()?.into()))
    }

    fn is_frozen_by_fork(&self) -> bool {
        true
    }

    fn move_to(&self, to: &Backing) -> Result<(), MoveError> {
        let to = Anonymous::shown(to).ok_or(MmError::NotAnonymous)?;
        Ok(self.0.move_to(to)?)
    }

    fn removed(&self, pgoff: u64, bytes: usize, gather: &mut MmuGather) -> bool {
        self.0.remove(pgoff, bytes, gather);
        true
    }
}

impl From<NotShown> for ForkError {
    fn from(error: NotShown) -> Self {
        match error {
            NotShown::Budget => Self::Budget,
            NotShown::Mmu(error) => Self::Mmu(error),
        }
    }
}

impl From<NotShown> for MoveError {
    fn from(error: NotShown) -> Self {
        match error {
            NotShown::Budget => Self::Budget,
            NotShown::Mmu(error) => Self::Mmu(error),
        }
    }
}

impl From<Arc<Anonymous>> for Backing {
    fn from(anon: Arc<Anonymous>) -> Self {
        Self::new(AnonVmOps(anon))
    }
}

impl Anonymous {
    /// The private memory that a VMA shows, if it is that.
    pub fn shown(backing: &Backing) -> Option<&Arc<Self>> {
        backing.of::<AnonVmOps>().map(|ops| &ops.0)
    }
}

impl fmt::Debug for AnonVmOps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Anonymous({:#x?})", self.0.addresses())
    }
}
