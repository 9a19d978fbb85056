//! Parts of windows that are not the window's any more: the program's own memory, or places where there is nothing.
//!
//! The window goes on around them: zaps of the window leave them out. No other window comes to be where a part of it was, also
//! where the program's part is not there any more (`map_apart` in [`reserved`](super::reserved)).
//!
//! ```text
//!   window   ┌──────────┬─────────┬──────┬─────────┐
//!            │ served   │ the     │ hole │ served  │
//!            │          │ program │      │         │
//!            └──────────┴─────────┴──────┴─────────┘
//!   a child of fork   inherits, and takes over, the served parts
//!   the window goes   all but the program's is unmapped
//! ```

use super::abi;
use super::mmu::{UffdMmu, advise_window, mprotect, system};
use crate::errno::errno;
use core::ops::{Deref, DerefMut, Range};
use libc::c_void;
use softfault_engine::mm::Protection;
use softfault_engine::mmu::{MmuError, Reservation};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Whose a part is by now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GivenTo {
    /// The program has it, and goes on with it when the window goes.
    Program,
    /// Nobody: a touch is a SIGSEGV.
    Nobody,
}

/// The parts of all windows that are not the windows' any more, by their starts. None overlaps another.
#[derive(Debug, Clone, Default)]
pub struct GivenParts(BTreeMap<usize, (usize, GivenTo)>);

impl GivenParts {
    /// Enters a part, over any earlier entry of its addresses.
    fn enter(&mut self, part: &Range<usize>, to: GivenTo) {
        self.forget(part);
        self.0.insert(part.start, (part.end, to));
    }

    /// Forgets the entries of some addresses.
    fn forget(&mut self, range: &Range<usize>) {
        let over: Vec<_> = self.over(range).collect();
        for (part, to) in over {
            self.0.remove(&part.start);
            if part.start < range.start {
                self.0.insert(part.start, (range.start, to));
            }
            if range.end < part.end {
                self.0.insert(range.end, (part.end, to));
            }
        }
    }

    /// The parts that overlap a range, whole, by address.
    fn over(&self, range: &Range<usize>) -> impl Iterator<Item = (Range<usize>, GivenTo)> {
        let before = self.0.range(..range.start).next_back();
        let before = before.filter(|&(_, &(end, _))| end > range.start);
        let parts = before.into_iter().chain(self.0.range(range.clone()));
        parts.map(|(&start, &(end, to))| (start..end, to))
    }

    /// The parts of a range outside of all given parts that `counts` selects.
    fn without(&self, range: &Range<usize>, counts: impl Fn(GivenTo) -> bool) -> Vec<Range<usize>> {
        let mut rest = Vec::new();
        let mut at = range.start;
        for (part, _) in self.over(range).filter(|&(_, to)| counts(to)) {
            if at < part.start {
                rest.push(at..part.start);
            }
            at = part.end;
        }
        if at < range.end {
            rest.push(at..range.end);
        }
        rest
    }

    /// The parts of a window that are still served.
    pub fn served(&self, window: &Range<usize>) -> Vec<Range<usize>> {
        self.without(window, |_| true)
    }

    /// True if any of a window is not.
    pub(super) fn has_any(&self, window: &Range<usize>) -> bool {
        self.over(window).next().is_some()
    }

    /// A whole window is not, for a while.
    pub(super) fn give_all(&mut self, window: &Range<usize>) {
        self.enter(window, GivenTo::Program);
    }

    /// A part is nobody's, as far as it was the window's.
    pub(super) fn lose(&mut self, part: &Range<usize>) -> Vec<Range<usize>> {
        let lost = self.served(part);
        for part in &lost {
            self.enter(part, GivenTo::Nobody);
        }
        lost
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes over the entries that `others` has for a window.
    pub(super) fn take_over(&mut self, others: &Self, window: &Range<usize>) {
        for (part, to) in others.over(window) {
            self.enter(&part, to);
        }
    }
}

/// The parts that have been given away.
#[derive(Debug, Default)]
pub(super) struct Given {
    /// Held for reading while windows are zapped, for writing while a part is given.
    parts: RwLock<GivenParts>,
    /// Held before `parts` while a part is given, and by a fork to its end. A fork does not hold `parts`: a thread that gives a part would
    /// wait for it, and all zaps for that thread, with locks that a handler of the fork may need for a fault.
    parts_lock: Mutex<()>,
}

/// The parts, while they change.
pub(super) struct ChangingParts<'a> {
    parts: RwLockWriteGuard<'a, GivenParts>,
    _parts_lock: MutexGuard<'a, ()>,
}

impl Given {
    pub(super) fn parts(&self) -> RwLockReadGuard<'_, GivenParts> {
        self.parts.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn parts_mut(&self) -> ChangingParts<'_> {
        let _parts_lock = self.lock_parts();
        let parts = self.parts.write().unwrap_or_else(PoisonError::into_inner);
        ChangingParts { parts, _parts_lock }
    }

    /// No part is given, nor is a process forked, while the result lives.
    pub(super) fn lock_parts(&self) -> MutexGuard<'_, ()> {
        self.parts_lock
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// True if no part is given, nor a process forked.
    #[cfg(test)]
    pub(super) fn may_change(&self) -> bool {
        self.parts_lock.try_lock().is_ok()
    }

    /// True if no window is being zapped, and no part is given.
    #[cfg(test)]
    pub(super) fn may_give(&self) -> bool {
        self.parts.try_write().is_ok()
    }
}

impl Deref for ChangingParts<'_> {
    type Target = GivenParts;

    fn deref(&self) -> &GivenParts {
        &self.parts
    }
}

impl DerefMut for ChangingParts<'_> {
    fn deref_mut(&mut self) -> &mut GivenParts {
        &mut self.parts
    }
}

impl UffdMmu {
    /// Gives a part of a window to the program, as it is: its missing pages are zeros from now on, and nothing is
    /// protected.
    ///
    /// # Safety
    /// Nobody serves a fault in the part, and none will; nor are pages of it evicted.
    pub unsafe fn give(&self, window: &Reservation, part: &Range<usize>) -> Result<(), MmuError> {
        self.change(part, |_| {
            let mut given = self.given.parts_mut();
            let advise = |advice| {
                // SAFETY: advice about a part of a window of ours.
                unsafe {
                    sync::kernel_calls::madvise(part.start as *mut c_void, part.len(), advice)
                }
            };
            // First: a child that had no such memory would have lost bytes.
            if advise(libc::MADV_DOFORK) < 0 {
                return Err(system(errno()));
            }
            if let Err(errno) = abi::unregister(self.of(window), part) {
                advise(libc::MADV_DONTFORK);
                return Err(system(errno));
            }
            given.enter(part, GivenTo::Program);
            Ok(())
        })
    }

    /// Gives a part of a window away; `replace` puts the new mapping in its place.
    ///
    /// # Safety
    /// As of [`give`](Self::give). The replaced pages are not needed any more.
    pub unsafe fn give_place(
        &self,
        part: &Range<usize>,
        to: GivenTo,
        replace: impl FnOnce() -> Result<(), MmuError>,
    ) -> Result<(), MmuError> {
        self.change(part, |_| {
            let mut given = self.given.parts_mut();
            replace()?;
            given.enter(part, to);
            Ok(())
        })
    }

    /// Makes address space that the program has reserved a window that may be written to. Nothing of it is the window's until
    /// [`take_back`](Self::take_back).
    pub fn window_over(&self, range: &Range<usize>) -> Result<Reservation, MmuError> {
        self.is_apart(range)?;
        // First: a child that is forked meanwhile goes on with the program's memory.
        self.given.parts_mut().enter(range, GivenTo::Program);
        let window = self.register(range.clone(), &[], Protection::ReadWrite);
        if window.is_err() {
            self.given.parts_mut().forget_window(range);
        }
        window
    }

    /// Takes a part of a window back that was given away: what is there goes, and nobody may touch it until
    /// [`open`](Self::open). After an error there may be nothing at the part, and it is the program's.
    ///
    /// # Safety
    /// Nobody uses the part.
    pub unsafe fn take_back(
        &self,
        window: &Reservation,
        part: &Range<usize>,
    ) -> Result<(), MmuError> {
        self.change(part, |_| {
            let mut given = self.given.parts_mut();
            given.enter(part, GivenTo::Program);
            nothing_at(part)?;
            let register = || {
                advise_window(part, Protection::ReadWrite)?;
                abi::register(self.of(window), part, self.protects(window)).map_err(system)
            };
            if let Err(error) = register() {
                // As new: a child of fork would not have what the program puts there now.
                if nothing_at(part).is_err() {
                    // SAFETY: advice about a part of a window of ours.
                    unsafe {
                        let start = part.start as *mut c_void;
                        sync::kernel_calls::madvise(start, part.len(), libc::MADV_DOFORK);
                    }
                }
                return Err(error);
            }
            given.forget(part);
            Ok(())
        })
    }

    /// Lets the program touch a part that was taken back, and is mapped.
    pub fn open(&self, part: &Range<usize>) -> Result<(), MmuError> {
        mprotect(part, Protection::ReadWrite)
    }

    /// True if a fault there is one of before it was given away: the kernel reports no others. Where it raises signals,
    /// it does not say.
    pub(super) fn is_given(&self, addr: usize) -> bool {
        let is_late = || self.given.parts().has_any(&(addr..addr + 1));
        self.faults().by_threads() && is_late()
    }
}

impl UffdMmu {
    /// An error if the kernel would refuse to cut a part out of its mapping: the process has as many mappings as it may
    /// have.
    pub fn can_cut(&self, part: &Range<usize>) -> Result<(), MmuError> {
        // A child of fork takes its look at windows meanwhile, and must not find this one inherited.
        let _parts_lock = self.given.lock_parts();
        let given = self.given.parts();
        let can_cut = |part: &Range<usize>| {
            let advise = |advice| {
                let start = part.start as *mut c_void;
                // SAFETY: advice about a part of a window of ours.
                unsafe { sync::kernel_calls::madvise(start, part.len(), advice) }
            };
            let cut = advise(libc::MADV_DOFORK) == 0;
            if cut {
                advise(libc::MADV_DONTFORK);
            }
            cut
        };
        // A child of fork goes on with the program's own memory in it.
        match given.served(part).iter().all(can_cut) {
            true => Ok(()),
            false => Err(MmuError::NoMemory),
        }
    }
}

/// Lets nothing be at a part of a window: a touch is a SIGSEGV. Where no new mapping may be made
/// (`mlockall(2)` with `MCL_FUTURE`, whose limit has room for no more), the old one is emptied and closed.
pub(crate) fn close(part: &Range<usize>) -> Result<(), MmuError> {
    nothing_at(part).or_else(|_| {
        let (start, bytes) = (part.start as *mut c_void, part.len());
        // SAFETY: in a window of ours, whose part nobody looks at any more.
        unsafe {
            if sync::kernel_calls::mprotect(start, bytes, libc::PROT_NONE) < 0 {
                return Err(system(errno()));
            }
            // Memory that stays is lost until the window goes, and shows nothing.
            if sync::kernel_calls::madvise(start, bytes, libc::MADV_DONTNEED) < 0 {
                sync::kernel_calls::madvise(start, bytes, libc::MADV_DONTNEED_LOCKED);
            }
        }
        Ok(())
    })
}

/// Puts a new mapping, of nothing, at a part of a window: a touch is a SIGSEGV.
pub(crate) fn nothing_at(part: &Range<usize>) -> Result<(), MmuError> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
    let start = part.start as *mut c_void;
    // SAFETY: in a window of ours, whose part nobody looks at any more.
    let put = unsafe { sync::kernel_calls::mmap(start, part.len(), libc::PROT_NONE, flags, -1, 0) };
    match put {
        libc::MAP_FAILED => Err(system(errno())),
        _ => Ok(()),
    }
}

impl GivenParts {
    /// The parts of a window that are unmapped with it.
    pub(super) fn unmapped_with(&self, window: &Range<usize>) -> Vec<Range<usize>> {
        self.without(window, |to| to == GivenTo::Program)
    }

    /// Forgets a window, which goes.
    pub(super) fn forget_window(&mut self, window: &Range<usize>) {
        self.forget(window);
    }
}
