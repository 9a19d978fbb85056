//! A file's own mapping in the place of its window, and the window in the place of that, while
//! threads read through it.
//!
//! ```text
//!   window ── show ──────► a mapping of the file, elsewhere, and mremap(2) of it to the window's place
//!   mapping ── take_over ─► 1  a private mapping of an empty memfd, elsewhere, as windows are
//!                           2  mremap(2) of it to the window's place: a touch is a SIGBUS, as
//!                              behind the end of a file
//!                           3  registered with the userfaultfd
//!                           4  the memfd gets the window's size: its pages are missing
//! ```
//!
//! Handed back, the place is the program's own: the mapping stays when the window goes.
//!
//! At no moment is there a page that shows zeros for bytes of the file, nor a place where a touch is a
//! SIGSEGV. Until the fourth step a fault can neither be served nor has it failed: the range *is changing*, and the
//! touch is made again. In a private mapping of shared memory userfaultfd fills missing pages as in
//! anonymous memory: the file stays empty.

use super::abi;
use super::mmu::{UffdMmu, system};
use super::released::Released;
use super::unplaced::UnplacedMapping;
use crate::machine::file_size_limit;
use crate::table::Guarded;
use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering};
use softfault_engine::mmu::{MmuError, Reservation};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The name in `/proc/self/maps` of the memory of a window that was taken over.
pub(super) const NAME: &str = "softfault-window";

#[cfg(test)]
thread_local! {
    /// The kernel refuses to serve the memory of a window that this thread takes over.
    pub(crate) static REFUSED: core::cell::Cell<bool> = const { core::cell::Cell::new(false) };
}

/// Windows in whose place files' own mappings are, the one that is changing, and those that changed last.
#[derive(Default)]
pub(super) struct InPlace {
    /// Where they start. Held while one changes, so that there is one.
    shown: Mutex<BTreeSet<usize>>,
    /// Windows whose places have been handed back: where each starts, and where that place ends.
    handed_back: Mutex<BTreeMap<usize, usize>>,
    /// Of the range that is changing. `end` is 0 while there is none. Release and Acquire: the end
    /// is written after the start.
    start: AtomicUsize,
    end: AtomicUsize,
    /// The ranges that have changed. Pushed to by the holder of `shown`.
    changed: Released,
    /// Empty memory for the next window that is taken over: when that has to be, there may be no descriptor left.
    spare: Mutex<Option<Guarded>>,
}

impl InPlace {
    fn shown(&self) -> MutexGuard<'_, BTreeSet<usize>> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spare(&self) -> MutexGuard<'_, Option<Guarded>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_changing(&self, addr: usize) -> bool {
        addr < self.end.load(Ordering::Acquire) && self.start.load(Ordering::Acquire) <= addr
    }

    fn handed_back(&self) -> MutexGuard<'_, BTreeMap<usize, usize>> {
        (self.handed_back.lock()).unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets a window; the end of its place, if that was handed back.
    pub(super) fn take_handed_back(&self, start: usize) -> Option<usize> {
        self.handed_back().remove(&start)
    }

    /// Forgets a window; true if a mapping is in its place.
    pub(super) fn forget(&self, start: usize) -> bool {
        self.shown().remove(&start)
    }
}

/// A file of the table's that the kernel maps in a window's place.
#[derive(Clone, Copy)]
pub struct FileToShow<'a> {
    pub(crate) file: &'a Guarded,
    /// It is read at random.
    pub(crate) random: bool,
}

impl FileToShow<'_> {
    /// A mapping of a part of it, elsewhere.
    fn map(self, part: Range<u64>) -> Result<UnplacedMapping, MmuError> {
        let place = self.map_closed(part)?;
        place.allow_reads()?;
        Ok(place)
    }

    /// The same, inaccessible yet.
    pub(super) fn map_closed(self, part: Range<u64>) -> Result<UnplacedMapping, MmuError> {
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
        let place = UnplacedMapping::new(self.file, part, flags)?;
        // As any window: a child of fork has it not.
        place.advise(libc::MADV_DONTFORK)?;
        if self.random {
            place.advise(libc::MADV_RANDOM)?;
        }
        Ok(place)
    }
}

impl UffdMmu {
    /// Puts a file's own mapping in the place of a part of a window.
    ///
    /// # Safety
    /// The part is the file's pages from its first on, and is only read. Pages that are there go with what was in its place; none can be
    /// mapped until it is taken over.
    pub unsafe fn show(&self, part: &Reservation, file: FileToShow<'_>) -> Result<(), MmuError> {
        let range = part.range();
        // Elsewhere first: of a file that refuses, mmap(2) has dropped already what was in its place.
        let place = file.map(0..range.len() as u64)?;
        self.change(&range, |shown| {
            place.put(range.start)?;
            shown.insert(range.start);
            Ok(())
        })
    }

    /// Makes sure that a window can be taken over without a new descriptor.
    pub fn prepare_take_over(&self) -> Result<(), MmuError> {
        let mut spare = self.in_place.spare();
        // That of a parent is of no use.
        if !spare.as_ref().is_some_and(Guarded::is_here) {
            *spare = Some(empty_memory()?);
        }
        Ok(())
    }

    /// Takes the place over again: from here on a touch of it is a fault that is ours to serve.
    ///
    /// After an error the mapping is as it was. Only where it cannot be put back a touch is an error.
    ///
    /// # Safety
    /// `part` was shown, of this file; the space has a mapping for it, so that faults are served.
    pub unsafe fn take_over(
        &self,
        part: &Reservation,
        file: FileToShow<'_>,
    ) -> Result<(), MmuError> {
        let spare = self.in_place.spare().take().filter(Guarded::is_here);
        let memory = spare.map_or_else(empty_memory, Ok)?;
        let changed = &self.in_place.changed;
        // SAFETY: the caller's promise.
        let taken = unsafe { self.take_part_over((part, &part.range()), file, &memory, changed) };
        // Its number is free for the next one.
        drop(memory);
        let _ = self.prepare_take_over();
        taken
    }

    /// The same of a segment of a window, with a memfd that ends before it.
    ///
    /// # Safety
    /// As of [`take_over`](Self::take_over).
    pub(super) unsafe fn take_segment_over(
        &self,
        window: &Reservation,
        segment: &Range<usize>,
        file: FileToShow<'_>,
        memory: &Guarded,
    ) -> Result<(), MmuError> {
        // SAFETY: the caller's promise.
        unsafe { self.take_part_over((window, segment), file, memory, &self.scans.changed) }
    }

    /// # Safety
    /// As of [`take_over`](Self::take_over).
    unsafe fn take_part_over(
        &self,
        (window, range): (&Reservation, &Range<usize>),
        file: FileToShow<'_>,
        memory: &Guarded,
        changed: &Released,
    ) -> Result<(), MmuError> {
        let offset = |addr: usize| (addr - window.addr) as u64;
        let part = offset(range.start)..offset(range.end);
        // The last step would end in SIGXFSZ, and its window could not be served.
        if file_size_limit() < part.end {
            return Err(system(libc::EFBIG));
        }
        let flags = libc::MAP_PRIVATE | libc::MAP_NORESERVE;
        let place = UnplacedMapping::new(memory, part.clone(), flags)?;
        // As windows are: see `reserve`. Not every kernel knows the first two.
        let _ = place.advise(libc::MADV_NOHUGEPAGE);
        let _ = place.advise(libc::MADV_UNMERGEABLE);
        place.advise(libc::MADV_DONTFORK)?;
        place.allow_reads()?;
        // The way back. Where there is none, the steps are as likely to succeed as ever.
        let before = file.map(part.clone());
        let taken = self.change_noted(range, changed, |shown| {
            let was_shown = shown.contains(&range.start);
            place.put(range.start)?;
            shown.remove(&range.start);
            let refused = match self.serve_empty(window, range, (memory, part.end)) {
                Ok(()) => return Ok(Ok(())),
                Err(refused) => refused,
            };
            before.and_then(|before| before.put(range.start))?;
            if was_shown {
                shown.insert(range.start);
            }
            // Touches that have met the empty file meanwhile are made again: it has changed, twice.
            Ok(Err(refused))
        });
        taken?
    }

    /// The last two steps: the place of a range of a window has a mapping of `memory`, which ends before it yet.
    fn serve_empty(
        &self,
        window: &Reservation,
        range: &Range<usize>,
        (memory, end): (&Guarded, u64),
    ) -> Result<(), MmuError> {
        #[cfg(test)]
        if REFUSED.get() {
            return Err(system(libc::ENOMEM));
        }
        abi::register(self.of(window), range, self.protects(window)).map_err(system)?;
        // SAFETY: no memory involved.
        let sized = unsafe { memory.call(libc::SYS_ftruncate, [end as usize, 0, 0, 0, 0]) };
        sized.map(drop).map_err(system)
    }

    /// Hands a window's place back: `replace` puts the new mapping in it, and it is not unmapped with the
    /// window, of which only what is behind it goes. If it fails, it has replaced nothing, and the window is as it was.
    ///
    /// # Safety
    /// As of [`show`](Self::show), for all parts of the place.
    pub unsafe fn hand_back(
        &self,
        part: &Reservation,
        replace: impl FnOnce() -> Result<(), MmuError>,
    ) -> Result<(), MmuError> {
        self.change(&part.range(), |shown| {
            replace()?;
            shown.remove(&part.addr);
            let end = part.range().end;
            self.in_place.handed_back().insert(part.addr, end);
            Ok(())
        })
    }

    /// True if a file's own mapping is in the place of the window that starts there.
    #[cfg(test)]
    pub(super) fn is_shown(&self, start: usize) -> bool {
        self.in_place.shown().contains(&start)
    }

    /// True if a touch there has to be made again, since the mapping is changing or has changed a
    /// short while ago.
    pub fn has_changed(&self, addr: usize) -> bool {
        self.in_place.is_changing(addr)
            || self.in_place.changed.contains(addr)
            || self.scans.changed.contains(addr)
            || self.was_released(addr)
            || self.is_given(addr)
    }

    /// Changes in place so far.
    pub fn changes(&self) -> usize {
        self.in_place.changed.count()
    }

    /// As [`has_changed`](Self::has_changed), for a fault that began after so many changes. Where there were too many since to
    /// know, the touch is made again.
    pub fn has_changed_since(&self, changes: usize, addr: usize) -> bool {
        self.has_changed(addr) || self.in_place.changed.has_forgotten_since(changes)
    }

    pub(super) fn change<T>(
        &self,
        range: &Range<usize>,
        change: impl FnOnce(&mut BTreeSet<usize>) -> Result<T, MmuError>,
    ) -> Result<T, MmuError> {
        self.change_noted(range, &self.in_place.changed, change)
    }

    fn change_noted<T>(
        &self,
        range: &Range<usize>,
        changed: &Released,
        change: impl FnOnce(&mut BTreeSet<usize>) -> Result<T, MmuError>,
    ) -> Result<T, MmuError> {
        let here = &self.in_place;
        let mut shown = here.shown();
        here.start.store(range.start, Ordering::Release);
        here.end.store(range.end, Ordering::Release);
        let done = change(&mut shown);
        if done.is_ok() {
            // A fault of a moment ago may arrive later. After an error it has its answer by what is there: to be made again
            // there it would never end.
            changed.push(range);
        }
        here.end.store(0, Ordering::Release);
        done
    }
}

/// An empty file that is memory. Nobody but the caller has it, and its mappings keep it.
pub(super) fn empty_memory() -> Result<Guarded, MmuError> {
    const NAME_AND_ZERO: &core::ffi::CStr = c"softfault-window";
    let open = |flags: u32| {
        let args = [NAME_AND_ZERO.as_ptr() as usize, flags as usize, 0, 0, 0, 0];
        // SAFETY: a string that ends in zero; the descriptor is new.
        unsafe { Guarded::open(libc::SYS_memfd_create, args) }
    };
    // Kernels that know the second flag want it said (Linux 6.3).
    let made = open(libc::MFD_CLOEXEC | libc::MFD_NOEXEC_SEAL);
    match made {
        Err(libc::EINVAL) => open(libc::MFD_CLOEXEC).map_err(system),
        made => made.map_err(system),
    }
}
