//! Windows that are read in order: the kernel serves them, a segment at a time.
//!
//! ```text
//!   the file, elsewhere              ┌──────┬──────┬──────
//!                                    │ next │      │
//!                                    └──┬───┴──────┴──────
//!                                       ▼  mremap(2), at the first touch
//!   window  ┌──────┬────────────┬───────┬──────┬──────────
//!           │ ours │ taken back │ shown │ next │ ours
//!           └──────┴────────────┴───────┴──────┴──────────
//!                                   reader ──►
//! ```
//!
//! A touch of the next segment is a fault that is ours to serve. Its handler puts the file's own mapping of that segment in its place, by
//! two calls, and the touch is made again. So the faults say how far the reader has come, and a few segments at most are shown at
//! a time: a thread takes the others back ([`take_back`](UffdMmu::take_back)), and if it is late the window's pages are served as
//! ever. The mapping is told MADV_HUGEPAGE: the kernel reads 2 MiB and the next, whatever the disk's `read_ahead_kb`, into large folios
//! where the file system has them.
//!
//! What was taken back is a private mapping of one empty memfd for all segments of a scan, from the same offset on, so that neighbours are one
//! mapping of the kernel's. Its size is the end of the last segment that was taken back: they are taken back in their order.

use super::in_place::{FileToShow, empty_memory};
use super::mmu::{UffdMmu, system};
use super::released::Released;
use super::unplaced::{allow_reads, move_part};
use crate::machine::file_size_limit;
use crate::table::Guarded;
use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering};
use softfault_engine::lock::{Bell, Mutex};
use softfault_engine::mmu::{MmuError, Reservation};
use std::sync::Arc;

/// Bytes of a segment: a fault, and a dozen system calls of a thread.
pub(crate) const SEGMENT: usize = 8 << 20;
/// Segments that the readers of a scan may be in: the last one that was shown and the one before, since several threads may read, and in an
/// order that is only nearly one.
const READ: usize = 2;
/// Segments of one scan that are shown at a time, at most: those, and two that have not been taken back yet.
const MOST_SHOWN: usize = READ + 2;
/// Memory of the kernel's that a scan has at most: its segments, and what is read ahead of them.
pub(crate) const SCAN_BYTES: usize = (MOST_SHOWN + 1) * SEGMENT;
/// Scans at a time, in the process.
const SCANS: usize = 4;
/// A touch in one of so many segments from the next on is the reader's: pages of those before may be the engine's from an earlier time.
const NEAR: usize = 4;
/// The same where the engine has served the next segment, for the thread was late.
const FAR: usize = 16;
/// How often that may be in a scan: each time leaves three mappings in the window where there is one otherwise.
const MOST_SKIPS: usize = 16;
/// Touches of segments that are shown which come to us all the same, after which the kernel is believed to be unable to read there. Some
/// began before a segment was shown.
const FAILURES: usize = 64;

/// The scans of a process.
pub(super) struct Scans {
    slots: [ScanSlot; SCANS],
    /// The ranges that were shown and taken back last. Not among those of whole windows: there are many more.
    pub(super) changed: Released,
}

impl Default for Scans {
    fn default() -> Self {
        let slot = |_| ScanSlot {
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            scan: Mutex::new(None),
        };
        Self {
            slots: core::array::from_fn(slot),
            changed: Released::default(),
        }
    }
}

struct ScanSlot {
    /// Where the next segments are. `end` is 0 while there are none. Release and Acquire: the end is written after the start.
    start: AtomicUsize,
    end: AtomicUsize,
    /// Taken by fault handlers. A holder takes no other lock.
    scan: Mutex<Option<Shown>>,
}

/// The part of a scan that handlers change.
struct Shown {
    /// Where the window begins. Immutable. Its end may be that of its file.
    window: usize,
    /// Addresses of the window to which the mapping elsewhere has yet to come.
    rest: Range<usize>,
    /// Where the first page of these is.
    elsewhere: usize,
    /// The segments that are shown, in no order.
    shown: [Option<Range<usize>>; MOST_SHOWN],
    /// How many there were so far.
    count: usize,
    /// There are no more: somebody has stopped it.
    stopped: bool,
    /// There was no place for the next one at its first touch.
    late: bool,
    skips: usize,
    failures: usize,
    /// Rings when there is one more.
    bell: Arc<Bell>,
}

impl ScanSlot {
    fn is_next(&self, addr: usize) -> bool {
        addr < self.end.load(Ordering::Acquire) && self.start.load(Ordering::Acquire) <= addr
    }

    fn set_next(&self, rest: &Range<usize>) {
        let next = rest.start..rest.end.min(rest.start.saturating_add(FAR * SEGMENT));
        self.end.store(0, Ordering::Release);
        self.start.store(next.start, Ordering::Release);
        let end = if next.is_empty() { 0 } else { next.end };
        self.end.store(end, Ordering::Release);
    }

    /// True if the touch is to be made again.
    fn show(&self, addr: usize, changed: &Released) -> bool {
        let mut scan = self.scan.lock();
        // It has ended.
        let Some(scan) = scan.as_mut() else {
            return false;
        };
        if scan.oldest(|segment| segment.contains(&addr)).is_some() {
            // Another thread was faster.
            return true;
        }
        let Some(segment) = scan.segment_of(addr) else {
            return false;
        };
        // The segments between went another way.
        let skipped = segment.start - scan.rest.start;
        let reach = if scan.late { FAR } else { NEAR };
        if skipped >= reach * SEGMENT || skipped > 0 && scan.skips == MOST_SKIPS {
            // Another reader's.
            return false;
        }
        let Some(place) = scan.shown.iter_mut().find(|place| place.is_none()) else {
            scan.late = true;
            return false;
        };
        if skipped > 0 {
            scan.skips += 1;
            unmap(scan.elsewhere..scan.elsewhere + skipped);
            (scan.elsewhere, scan.rest.start) = (scan.elsewhere + skipped, segment.start);
        }
        // A fault of before may arrive later.
        changed.push(&segment);
        let from = scan.elsewhere..scan.elsewhere + segment.len();
        // SAFETY: a part of the mapping elsewhere, which is this scan's, and a part of its window.
        let moved = allow_reads(&from).and_then(|()| unsafe { move_part(from, segment.start) });
        if moved.is_err() {
            // As many mappings as there may be: the engine serves the rest.
            scan.stop();
            self.set_next(&(0..0));
            return false;
        }
        (scan.elsewhere, scan.rest.start) = (scan.elsewhere + segment.len(), segment.end);
        scan.late = false;
        *place = Some(segment);
        scan.count += 1;
        self.set_next(&scan.rest);
        scan.bell.ring();
        true
    }
}

impl Shown {
    fn stop(&mut self) {
        let more = self.rest.len();
        self.stopped |= more > 0;
        self.rest = 0..0;
        unmap(self.elsewhere..self.elsewhere + more);
    }

    /// The segment of the rest that an address is in.
    fn segment_of(&self, addr: usize) -> Option<Range<usize>> {
        let start = self.rest.start + addr.checked_sub(self.rest.start)? / SEGMENT * SEGMENT;
        let segment = start..self.rest.end.min(start + SEGMENT);
        segment.contains(&addr).then_some(segment)
    }

    /// The first segment that is shown and `is_one`.
    fn oldest(&self, is_one: impl Fn(&Range<usize>) -> bool) -> Option<Range<usize>> {
        let shown = self
            .shown
            .iter()
            .flatten()
            .filter(|segment| is_one(segment));
        shown.min_by_key(|segment| segment.start).cloned()
    }
}

fn unmap(range: Range<usize>) {
    if !range.is_empty() {
        // SAFETY: of the mapping elsewhere, which nobody else knows.
        unsafe { sync::kernel_calls::munmap(range.start as *mut libc::c_void, range.len()) };
    }
}

/// A scan of a window. Before it is dropped, or its window goes, it is [stopped](Self::stop); segments that are shown then stay.
pub(crate) struct KernelScan {
    mmu: &'static UffdMmu,
    slot: usize,
    /// The mappings of what was taken back keep it.
    memory: Guarded,
}

impl UffdMmu {
    /// Lets the kernel serve a part of a window, a segment after the other, as its reader comes to them. `None`: there are too many scans.
    ///
    /// # Safety
    /// As of [`show`](Self::show), for each segment until it is taken back. `rest` is in the window.
    pub(crate) unsafe fn begin_scan(
        &'static self,
        window: &Reservation,
        rest: Range<usize>,
        file: FileToShow<'_>,
        bell: &Arc<Bell>,
    ) -> Result<Option<KernelScan>, MmuError> {
        let offset = |addr: usize| (addr - window.addr) as u64;
        // As in `take_part_over`.
        if file_size_limit() < offset(rest.end) {
            return Err(system(libc::EFBIG));
        }
        // Inaccessible, but for what is moved: mlockall(2) would bring all of it in.
        let place = file.map_closed(offset(rest.start)..offset(rest.end))?;
        // A kernel without huge pages refuses: there it reads as the disk is set.
        place.advise(libc::MADV_HUGEPAGE)?;
        let memory = empty_memory()?;
        for (number, slot) in self.scans.slots.iter().enumerate() {
            let mut scan = slot.scan.lock();
            if scan.is_none() {
                *scan = Some(Shown {
                    window: window.addr,
                    rest: rest.clone(),
                    elsewhere: place.keep(),
                    shown: [const { None }; MOST_SHOWN],
                    count: 0,
                    stopped: false,
                    late: false,
                    skips: 0,
                    failures: 0,
                    bell: bell.clone(),
                });
                slot.set_next(&rest);
                return Ok(Some(KernelScan {
                    mmu: self,
                    slot: number,
                    memory,
                }));
            }
        }
        Ok(None)
    }

    /// True if a touch is to be made again: it was of the next segment of a scan, and the kernel serves that by now. For the fault handler.
    pub(crate) fn show_next(&self, addr: usize) -> bool {
        let mut slots = self.scans.slots.iter();
        slots.any(|slot| slot.is_next(addr) && slot.show(addr, &self.scans.changed))
    }

    /// A touch of a page that is there, and that could not be mapped, since the kernel serves it: the device may have failed to read 2 MiB as a whole.
    /// Its scan ends then, and the engine reads page by page. For the fault handler.
    pub(crate) fn note_unmappable(&self, addr: usize) {
        for slot in &self.scans.slots {
            let mut scan = slot.scan.lock();
            if let Some(scan) = scan.as_mut()
                && scan.oldest(|segment| segment.contains(&addr)).is_some()
            {
                scan.failures += 1;
                scan.bell.ring();
            }
        }
    }

    /// A window goes: nothing is shown there any more, whoever has its addresses next.
    pub(super) fn stop_scans_of(&self, window: &Range<usize>) {
        for slot in &self.scans.slots {
            let mut scan = slot.scan.lock();
            if let Some(scan) = scan.as_mut().filter(|scan| window.contains(&scan.window)) {
                slot.set_next(&(0..0));
                scan.stop();
            }
        }
    }
}

impl KernelScan {
    fn slot(&self) -> &ScanSlot {
        &self.mmu.scans.slots[self.slot]
    }

    fn with<T>(&self, look: impl FnOnce(&mut Shown) -> T) -> T {
        let mut scan = self.slot().scan.lock();
        look(scan.as_mut().expect("it is there until it is dropped"))
    }

    /// No segment is shown from now on.
    pub(crate) fn stop(&self) {
        let slot = self.slot();
        let mut scan = slot.scan.lock();
        slot.set_next(&(0..0));
        if let Some(scan) = scan.as_mut() {
            scan.stop();
        }
    }

    /// True if all segments were shown.
    pub(crate) fn is_at_its_end(&self) -> bool {
        self.with(|scan| scan.rest.is_empty() && !scan.stopped)
    }

    /// True if there are more to show.
    pub(crate) fn goes_on(&self) -> bool {
        self.with(|scan| !scan.rest.is_empty())
    }

    /// True if the kernel cannot read what it is to serve.
    pub(crate) fn has_failed(&self) -> bool {
        self.with(|scan| scan.failures >= FAILURES)
    }

    /// Segments that were shown so far.
    pub(crate) fn count(&self) -> usize {
        self.with(|scan| scan.count)
    }

    /// The first segment that is shown.
    pub(crate) fn oldest(&self) -> Option<Range<usize>> {
        self.with(|scan| scan.oldest(|_| true))
    }

    /// The same, if its readers have left it.
    pub(crate) fn passed(&self) -> Option<Range<usize>> {
        self.with(|scan| {
            let shown = scan.shown.iter().flatten().count();
            scan.oldest(|_| shown > READ)
        })
    }

    /// The segments from the next one on, one of which the kernel may have begun to read.
    pub(crate) fn next_two(&self) -> [Range<usize>; 2] {
        self.with(|scan| {
            let segment = |start: usize| start..scan.rest.end.min(start + SEGMENT);
            let next = segment(scan.rest.start);
            let second = segment(next.end);
            [next, second]
        })
    }

    /// Takes a segment back, the first that is shown: from here on a touch of it is a fault that is ours to serve. False: it is not shown. After an
    /// error it is shown as before.
    ///
    /// # Safety
    /// Of this scan's window and file; one thread at a time.
    pub(crate) unsafe fn take_back(
        &self,
        window: &Reservation,
        segment: &Range<usize>,
        file: FileToShow<'_>,
    ) -> Result<bool, MmuError> {
        let is_this = |shown: &Option<Range<usize>>| shown.as_ref() == Some(segment);
        if !self.with(|scan| scan.shown.iter().any(is_this)) {
            return Ok(false);
        }
        // SAFETY: the caller's promise.
        unsafe {
            self.mmu
                .take_segment_over(window, segment, file, &self.memory)
        }?;
        self.with(|scan| {
            let place = scan.shown.iter_mut().find(|shown| is_this(shown));
            place.into_iter().for_each(|shown| *shown = None);
        });
        Ok(true)
    }
}

impl Drop for KernelScan {
    fn drop(&mut self) {
        self.stop();
        *self.slot().scan.lock() = None;
    }
}
