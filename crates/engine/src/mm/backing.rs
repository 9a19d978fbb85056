//! The memory behind a mapping: Linux's `vm_ops`.
//!
//! `mm` knows the trait only. Each kind of memory implements it in a file of its own:
//! [`fault`](crate::fault) for files and for private memory, [`huge`](crate::huge) for huge
//! pages.

use super::fork::ForkError;
use super::move_to::MoveError;
use super::space::MmError;
use super::vma::Attributes;
use super::vma_lock::VmaRead;
use crate::PAGE_SIZE;
use crate::mmu::Mmu;
use crate::mmu::gather::MmuGather;
use crate::page::{FaultAddress, FaultError, FaultFlags};
use crate::wait::Fault;
use core::any::Any;
use core::fmt;
use core::ops::Range;
use sync::Arc;

/// A touch of a VMA, for its backing to serve. The VMA is locked, and
/// allows the access.
pub struct VmFault<'a, 'b> {
    /// The VMA.
    pub vma: &'a VmaRead<'b>,
    /// Its attributes.
    pub attributes: &'a Attributes,
    /// The byte that was touched.
    pub addr: FaultAddress,
    /// How the fault came about.
    pub flags: FaultFlags,
}

impl VmFault<'_, '_> {
    /// Bytes from the VMA's start.
    pub fn distance(&self) -> usize {
        self.addr.in_space() - self.vma.vma().start()
    }
}

/// Which page tables of our own have a page, for an access that goes by them
/// ([`SoftMmu`](crate::mmu::SoftMmu)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SoftPage {
    /// Those of windows.
    Window {
        /// The byte, as the window has it.
        addr: usize,
        /// Known to be missing a moment ago: not worth a walk.
        is_missing: bool,
    },
    /// Those of the backing: [`VmOps::frame`] says.
    Own,
}

/// A kind of memory behind VMAs. A VMA shows its pages from `pgoff` on. Methods that are not implemented
/// behave as for pages without end of which none is ever there.
pub trait VmOps: Any + Send + Sync + fmt::Debug {
    /// The address of the object that has the pages: the same address means the same pages.
    fn object(&self) -> *const ();

    /// Serves a touch; [`fault`](crate::fault) describes it.
    fn fault(&self, _fault: &VmFault<'_, '_>) -> Fault {
        Fault::Error(FaultError::NotMapped)
    }

    /// True if a touch would find the page so many bytes after `pgoff`: a write of it, if
    /// `write`.
    fn is_present(&self, _pgoff: u64, _distance: usize, _write: bool) -> bool {
        false
    }

    /// How many bytes of the `bytes` that lie so far behind `pgoff`, which are whole pages, a
    /// touch would find: those before the first page that it would not.
    fn present(&self, pgoff: u64, distance: usize, bytes: usize, write: bool) -> usize {
        let missing = |&done: &usize| !self.is_present(pgoff, distance + done, write);
        let first = (0..bytes).step_by(PAGE_SIZE).find(missing);
        first.unwrap_or(bytes)
    }

    /// Where page tables of our own have that page.
    fn soft_page(&self, _pgoff: u64, _distance: usize) -> SoftPage {
        SoftPage::Own
    }

    /// The frame that has a page, of a backing with page tables of its own.
    fn frame(&self, _page: u64) -> Option<u32> {
        None
    }

    /// The pages that there are to show; `None` if there is no end.
    fn pages(&self) -> Option<Range<u64>> {
        None
    }

    /// True if a VMA of this range, which shows its pages from a `pgoff` on, shows all of them where nothing else is mapped before
    /// they are zapped, and no two VMAs ever show the same one.
    fn is_alone(&self, _pgoff: u64, _range: &Range<usize>) -> bool {
        false
    }

    /// The page tables that have its pages.
    fn mmu(&self) -> Option<&Arc<dyn Mmu>> {
        None
    }

    /// True if it may be written to.
    fn is_writable(&self) -> bool {
        true
    }

    /// A program writes to it, and may not. True if the system will refuse the next touch: then the fault is no error of ours.
    fn refuse_write(&self) -> bool {
        false
    }

    /// Makes `space` the one that maps it, if only one may: false if it is already, and
    /// may show each page once only.
    fn claim(&self, _space: u64) -> bool {
        true
    }

    /// True if a VMA with this `pgoff` may begin, end or be cut so many bytes on, which
    /// is at `addr`.
    fn is_aligned(&self, _pgoff: u64, _distance: usize, _addr: usize) -> bool {
        true
    }

    /// `bytes` from a `pgoff` on are about to be shown elsewhere, or to be used
    /// otherwise: nobody may share the tables that they are in.
    fn unshare(&self, _pgoff: u64, _bytes: usize) {}

    /// The backing in a child of fork; `None` if it is the same.
    fn fork(&self) -> Result<Option<Backing>, ForkError> {
        Ok(None)
    }

    /// Moves all of its pages to the same places of `to`, which has nothing yet. No fault is
    /// in progress on either.
    fn move_to(&self, _to: &Backing) -> Result<(), MoveError> {
        Err(MmError::NotAnonymous.into())
    }

    /// True if nobody may change it while the process forks.
    fn is_frozen_by_fork(&self) -> bool {
        false
    }

    /// `bytes` from a `pgoff` on are shown no more, and no fault is under way. True if
    /// `gather` will flush their buffered translations.
    fn removed(&self, _pgoff: u64, _bytes: usize, _gather: &mut MmuGather) -> bool {
        false
    }

    /// `bytes` from a `pgoff` on are somebody else's from now on, where they are: they are shown no more, no fault is
    /// under way, and nothing is zapped.
    fn handed_over(&self, _pgoff: u64, _bytes: usize) {}
}

/// Where the pages of a VMA come from; by default nowhere, and a touch is an error. The
/// last reference is dropped outside the fault handler: the owner keeps one until no
/// mapping and no fault has another.
#[derive(Clone, Default)]
pub struct Backing(Option<Arc<dyn VmOps>>);

impl Backing {
    /// A backing of these pages.
    pub fn new(ops: impl VmOps) -> Self {
        Self(Some(Arc::new(ops)))
    }

    /// The operations of the backing, if there is one.
    pub fn ops(&self) -> Option<&dyn VmOps> {
        self.0.as_deref()
    }

    /// The same, if it is of this kind.
    pub fn of<T: VmOps>(&self) -> Option<&T> {
        let ops: &dyn Any = self.ops()?;
        ops.downcast_ref()
    }
}

impl Attributes {
    /// True if this range shows all that there is of the backing, at a place that is the backing's own.
    pub(super) fn is_alone(&self, range: &Range<usize>) -> bool {
        let ops = self.backing.ops();
        ops.is_some_and(|ops| ops.is_alone(self.pgoff, range))
    }

    /// The page of the backing that lies so many bytes after the VMA's start.
    pub fn page_at(&self, distance: usize) -> u64 {
        self.pgoff + (distance / PAGE_SIZE) as u64
    }
}

impl PartialEq for Backing {
    fn eq(&self, other: &Self) -> bool {
        self.ops().map(VmOps::object) == other.ops().map(VmOps::object)
    }
}

impl Eq for Backing {}

impl fmt::Debug for Backing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ops() {
            None => f.write_str("None"),
            Some(ops) => ops.fmt(f),
        }
    }
}
