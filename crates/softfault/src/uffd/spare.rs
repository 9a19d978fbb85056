//! Windows that were given back, kept for the next of their size.
//!
//! Making one takes half a dozen system calls, all of which write the kernel's
//! `mmap_lock`: programs that map and unmap in a loop would spend their time
//! there. A spare window stays registered and has no pages. To make it as new for its next map takes four calls ([`renew`]).
//!
//! None is kept where windows are a program's own maps by `mmap(2)`: it may map something else where it has just
//! unmapped one.

use super::mmu::{MOVES, UffdMmu, WRITABLE, mprotect};
use super::reserved::unmap;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use libc::{c_int, c_void};
use softfault_engine::mm::Protection;
use softfault_engine::mmu::Reservation;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Spare windows at most: address space, and a mapping of the kernel's each.
const MOST: usize = 32;
/// The largest that are kept.
pub(crate) const LARGEST: usize = 64 << 20;

/// Relaxed: set before the first window is made.
static KEEPS_NONE: AtomicBool = AtomicBool::new(false);

/// Keeps no window of this process from now on: the addresses of one that goes are free. Called before there is any.
pub fn keep_no_spare_windows() {
    KEEPS_NONE.store(true, Relaxed);
}

/// Spare windows, the last given back at the end.
#[derive(Default)]
pub struct SpareWindows {
    windows: Mutex<Vec<(Reservation, Protection)>>,
}

impl SpareWindows {
    fn windows(&self) -> MutexGuard<'_, Vec<(Reservation, Protection)>> {
        self.windows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A window of so many bytes and this protection, that is one of these, if there is one.
    pub fn take(
        &self,
        bytes: usize,
        protection: Protection,
        is_one: impl Fn(&Reservation) -> bool,
    ) -> Option<Reservation> {
        let mut windows = self.windows();
        let fits = |(window, its): &(Reservation, Protection)| {
            window.bytes == bytes && *its == protection && is_one(window)
        };
        let place = windows.iter().rposition(fits)?;
        Some(windows.remove(place).0)
    }

    /// Keeps a window that has no pages. Returns the addresses of one that has
    /// to go instead.
    pub fn keep(&self, window: Reservation, protection: Protection) -> Option<Range<usize>> {
        if window.bytes > LARGEST || KEEPS_NONE.load(Relaxed) {
            return Some(window.range());
        }
        let mut windows = self.windows();
        windows.push((window, protection));
        (windows.len() > MOST).then(|| windows.remove(0).0.range())
    }
}

/// From `<asm-generic/mman-common.h>`, since Linux 6.13: takes guard pages away.
const MADV_GUARD_REMOVE: c_int = 103;

/// Makes a window what it was before its owner's own calls: its protection, guard pages, what a child of fork gets of it (with
/// `MADV_WIPEONFORK` zeros, which the child's engine would take for data), and that its pages are not merged with others
/// (see [`advise_window`](super::mmu::advise_window)). `mlock(2)` stays: it takes no byte from the next owner. `false`: the kernel
/// refuses; a part of the window may be unmapped.
pub(super) fn renew(window: &Reservation) -> bool {
    let range = window.range();
    let protection = match window.token & (WRITABLE | MOVES) {
        0 => Protection::Read,
        _ => Protection::ReadWrite,
    };
    for advice in [
        libc::MADV_KEEPONFORK,
        MADV_GUARD_REMOVE,
        libc::MADV_UNMERGEABLE,
    ] {
        // Kernels refuse advice that they do not know: there is nothing to undo.
        // SAFETY: takes no page and changes no byte. Nobody has a reference to the window's.
        unsafe { sync::kernel_calls::madvise(range.start as *mut c_void, range.len(), advice) };
    }
    mprotect(&range, protection).is_ok()
}

impl UffdMmu {
    /// Gives a whole window back; `is_zapped`: it was zapped as a whole, and nothing is in it.
    pub(super) fn give_back(&self, window: Reservation, is_zapped: bool) {
        let range = window.range();
        self.stop_scans_of(&range);
        let forgotten = self.windows().remove(&range.start);
        let (_, protection) = forgotten.expect("a window is released once");
        self.released.push(&range);
        if let Some(end) = self.in_place.take_handed_back(range.start) {
            // Ours until now: no zap of a last page table meets what the program maps there.
            return unmap(end..range.end);
        }
        if self.given.parts().has_any(&range) {
            // Not with the parts in hand: a fork takes them after this list.
            self.restricted().remove(&range.start);
            let mut given = self.given.parts_mut();
            given.unmapped_with(&range).into_iter().for_each(unmap);
            given.forget_window(&range);
            return;
        }
        // A file's own mapping, which is no window any more.
        if self.in_place.forget(range.start) {
            return unmap(range);
        }
        // Empty already, unless a count was lost: the next owner of the
        // window must not see old pages.
        let emptied = is_zapped || self.zap.one(&range);
        // One that may not be written to is of no use to the next.
        let restricted = self.restricted().remove(&range.start);
        // Those of files were made new when they had no map any more.
        let is_new = emptied && !restricted && (protection == Protection::Read || renew(&window));
        let goes = match is_new {
            true => self.spare.keep(window, protection),
            false => Some(range),
        };
        goes.into_iter().for_each(unmap);
    }
}
