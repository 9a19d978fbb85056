//! Bringing pages in because the caller says so, with errors as values: `madvise`'s
//! `MADV_POPULATE_READ` and `MADV_POPULATE_WRITE`, and `mlock`.

use super::{FaultAddress, FaultError, FaultFlags, FaultIn, FaultInError};
use super::{Interrupt, Outcome, Progress, mmu_error, once_for_call, serve};
use crate::PAGE_SIZE;
use crate::anon::Anonymous;
use crate::mm::AddressSpace;
use crate::mm::backing::VmOps;
use core::ops::Range;
use core::slice;
use sync::Arc;

/// How far it got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Populated {
    /// All of it.
    Done,
    /// Up to this address; go on from there.
    Interrupted(usize),
    /// Up to this address, and why not further.
    Failed(usize, FaultError),
}

/// Brings the pages of `range` in, as reads or writes of each would. Nothing keeps them
/// there: where memory is short the first may be gone before the last has come.
pub fn populate(
    space: &AddressSpace,
    range: Range<usize>,
    write: bool,
    interrupt: &dyn Interrupt,
) -> Populated {
    let mut progress = FaultIn::new(write);
    match progress.run(slice::from_ref(&range), space, interrupt) {
        Progress::Done => Populated::Done,
        Progress::Interrupted => Populated::Interrupted(progress.reached().unwrap_or(range.start)),
        Progress::Failed(addr, FaultInError::Error(error)) => Populated::Failed(addr, error),
        Progress::Failed(_, FaultInError::TimedOut) => {
            unreachable!("a missing page is waited for")
        }
    }
}

/// The same, and the pages of private memory stay until [`unlock`] (`mlock(2)`). Where
/// `write` says that they come for writes, none of them is protected any more: they may
/// be handed to system calls that write to them. At most half of the budget may be kept
/// so, pinned pages included. After a failure, those below the address stay, and the one there may: the caller
/// lets those go that nobody else keeps.
pub fn lock(
    space: &AddressSpace,
    range: Range<usize>,
    write: bool,
    interrupt: &dyn Interrupt,
) -> Populated {
    let mut ahead = FaultIn::new(write);
    for_pages(&range, |addr| {
        ahead.keep_ahead_of(addr, slice::from_ref(&range), space);
        let Some((anon, page)) = private_page(space, addr) else {
            return bring_in(space, addr, write, interrupt);
        };
        // Its words are paid for with it.
        let outcome = bring_in(space, addr, write, interrupt);
        if outcome != Outcome::Mapped {
            return outcome;
        }
        // Counted before it stays: whoever lets it go takes the count back, and a child looks at the count.
        while !anon.stays(page) {
            if !anon.node.try_pin(1) {
                return Outcome::Error(FaultError::NoMemory);
            }
            if anon.keep_page(page) {
                break;
            }
            anon.node.unpin_pages(1);
        }
        // It may have gone again before it was told to stay. If it cannot be had, it stays all the same: another caller may
        // rely on that by now.
        let outcome = bring_in(space, addr, write, interrupt);
        if outcome == Outcome::Mapped
            && write
            && let Err(error) = anon.make_writable(page)
        {
            return Outcome::Error(mmu_error(error));
        }
        outcome
    })
}

/// The pages of `range` may be evicted again (`munlock(2)`).
pub fn unlock(space: &AddressSpace, range: Range<usize>) {
    for_pages(&range, |addr| {
        if let Some((anon, page)) = private_page(space, addr)
            && anon.release_page(page)
        {
            anon.node.unpin_pages(1);
        }
        Outcome::Mapped
    });
}

fn for_pages(range: &Range<usize>, mut each: impl FnMut(usize) -> Outcome) -> Populated {
    let mut addr = range.start & !(PAGE_SIZE - 1);
    while addr < range.end {
        match each(addr) {
            Outcome::Mapped => addr += PAGE_SIZE,
            Outcome::Interrupted => return Populated::Interrupted(addr),
            Outcome::Error(error) => return Populated::Failed(addr, error),
        }
    }
    Populated::Done
}

fn bring_in(space: &AddressSpace, addr: usize, write: bool, interrupt: &dyn Interrupt) -> Outcome {
    loop {
        if is_in(space, addr, write) {
            return Outcome::Mapped;
        }
        let flags = FaultFlags {
            write,
            ..FaultFlags::default()
        };
        let addr = FaultAddress::new(addr);
        let outcome = serve(space, addr, flags, interrupt, |vma, flags| {
            once_for_call(vma, addr, flags)
        });
        match outcome {
            // A fault may end because something has changed: look again.
            Outcome::Mapped => {}
            outcome => return outcome,
        }
    }
}

/// True if a touch would find the page.
fn is_in(space: &AddressSpace, addr: usize, write: bool) -> bool {
    let Ok(vma) = space.lock_vma_or_mmap_lock(addr) else {
        return false; // The fault says why.
    };
    let distance = addr - vma.vma().start();
    vma.with(|attributes| {
        let allowed = attributes.protection.allows(write);
        let is_present = |ops: &dyn VmOps| ops.is_present(attributes.pgoff, distance, write);
        allowed && attributes.backing.ops().is_some_and(is_present)
    })
}

/// The private memory that `addr` shows, and which page of it.
fn private_page(space: &AddressSpace, addr: usize) -> Option<(Arc<Anonymous>, usize)> {
    let vma = space.lock_vma_or_mmap_lock(addr).ok()?;
    let distance = addr - vma.vma().start();
    vma.with(|attributes| {
        let anon = Anonymous::shown(&attributes.backing)?;
        let addr = anon.window.address(attributes.pgoff, distance);
        Some((anon.clone(), anon.page(addr)))
    })
}
