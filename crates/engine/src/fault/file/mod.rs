//! A file as a VMA shows it, and a fault on it: look the page up, and branch.

use super::{Fault, FaultError, FaultFlags, Wait, mmu_error};
use crate::cache::folio::{Folio, flag};
use crate::cache::reads::read;
use crate::cache::{FolioRef, OnTruncate, PageCache};
use crate::mm::Backing;
use crate::mm::backing::{SoftPage, VmFault, VmOps};
use crate::mmu::Mmu;
use crate::page::Advice;
use crate::policy::MissAccounting;
use crate::{PAGE_SHIFT, PAGE_SIZE};
use core::fmt;
use core::ops::Range;
use sync::Arc;

mod around;
mod baseline;
mod expect;
mod hole;
pub(super) mod map;
mod miss;
mod note_call;
mod pin;
mod row;
mod vanished;
mod write;
mod write_whole;

pub use note_call::note_call;
pub use pin::{Pin, open_to_writes, pin, unpin};
pub use write_whole::{absent_from, write_whole};

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
            MissAccounting::Adaptive => self::fault(&self.0, addr, advice, flags),
            _ => baseline::fault(&self.0, addr, advice, flags),
        }
    }

    fn is_present(&self, pgoff: u64, distance: usize, write: bool) -> bool {
        let addr = self.address(pgoff, distance);
        match write {
            true => self.0.is_writable_at(addr),
            false => self.0.is_mapped(addr),
        }
    }

    fn present(&self, pgoff: u64, distance: usize, bytes: usize, write: bool) -> usize {
        let start = self.address(pgoff, distance);
        self.0.mapped_bytes(start..start + bytes, write)
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
        self.0.is_writable()
    }

    fn refuse_write(&self) -> bool {
        // Others cannot be written to anyway.
        self.0.window.is_for_moves() && {
            self.0.window.end_moves();
            self.0.node.mmu.refuse_writes(self.0.window.reservation())
        }
    }
}

impl PageCache {
    /// The page cache of the file that a VMA shows, if it shows one.
    pub(super) fn shown(backing: &Backing) -> Option<&Arc<Self>> {
        backing.of::<FileVmOps>().map(|ops| &ops.0)
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

/// Serves a fault at `addr` of the window; as in swap, so in a file.
pub(super) fn fault(
    cache: &Arc<PageCache>,
    addr: usize,
    advice: Advice,
    flags: FaultFlags,
) -> Fault {
    let addr = addr & !(PAGE_SIZE - 1);
    if is_beyond_end(cache, addr) {
        return beyond_end(cache, addr);
    }
    if cache.is_emptied(&(addr..addr + PAGE_SIZE)) {
        return Fault::Retry(Wait::length(cache, addr));
    }
    let found = cache.find(addr);
    if may_end_later(cache, found.as_deref(), addr) {
        return Fault::Retry(Wait::length(cache, addr));
    }
    let Some(folio) = found else {
        if flags.io_done {
            cache.retry_io_miss().add(1);
        }
        return match flags.asked {
            // Read-ahead was told of the touch before its wait, as a rule. What it waited for may have failed for another page.
            0 if flags.tried => miss::asked(cache, addr, 1, flags),
            0 => miss::fault(cache, addr, advice, flags),
            pages => miss::asked(cache, addr, pages, flags),
        };
    };
    let state = folio.state();
    if state & flag::LOCKED != 0 {
        return Fault::Retry(Wait::folio(cache, folio));
    }
    if state & flag::ERROR != 0 {
        return failed(cache, &folio, addr, flags);
    }
    if ends_before(&folio, state, addr) {
        return Fault::Again;
    }
    if state & flag::MAPPED != 0 {
        return present(cache, folio, addr, flags);
    }
    row::map(cache, &folio, (addr, advice), flags)
        .unwrap_or_else(|| map::folio(cache, folio, addr, advice, flags))
}

/// True if a folio that was found for `addr` has not that page: the file was shorter than known when it was read, and it was read since
/// the look-up. `state` is its state since.
fn ends_before(folio: &Folio, state: u32, addr: usize) -> bool {
    state & flag::UPTODATE != 0 && !folio.range().contains(&addr)
}

/// A fault on a page that is in the window.
fn present(cache: &Arc<PageCache>, folio: FolioRef<'_>, addr: usize, flags: FaultFlags) -> Fault {
    match flags.write {
        true => write::fault(cache, folio, addr),
        // Somebody else's fault was faster, as a rule.
        false => vanished::fault(cache, folio, addr),
    }
}

fn is_beyond_end(cache: &PageCache, addr: usize) -> bool {
    cache.offset(addr) >= cache.end() && cache.on_truncate == OnTruncate::Error
}

/// A file that is written to becomes longer by others, and its maps reach as far: whether it has is looked at with no lock in
/// hand.
fn beyond_end(cache: &Arc<PageCache>, addr: usize) -> Fault {
    match cache.is_writable() {
        true => Fault::Retry(Wait::length(cache, addr)),
        false => Fault::Error(FaultError::BeyondEnd),
    }
}

/// True if the page at `addr` is to be mapped, and its neighbour at the end of the file too, which has moved since.
fn may_end_later(cache: &PageCache, folio: Option<&Folio>, addr: usize) -> bool {
    folio.is_none_or(|folio| !folio.is(flag::MAPPED)) && cache.ends_later(addr)
}

/// Reports a failed read and forgets it, so that the next touch tries again. A store fails a read of several pages as a whole, whichever
/// is bad: then the page of the fault is read alone, as Linux does.
#[inline(never)]
fn failed(cache: &Arc<PageCache>, folio: &FolioRef<'_>, addr: usize, flags: FaultFlags) -> Fault {
    let error = folio.read_error();
    let may_be_others = folio.pages() > 1
        && flags.asked <= 1
        && matches!(error, FaultError::Io(_) | FaultError::Short);
    if folio.try_lock() {
        if folio.is(flag::DEAD) {
            folio.unlock();
        } else {
            read::discard(&cache.node, cache, folio);
        }
    }
    match may_be_others {
        true => miss::asked(cache, addr, 1, flags),
        false => Fault::Error(error),
    }
}
