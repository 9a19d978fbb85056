//! Moving pages: by UFFDIO_MOVE where the kernel can, by copies where not.
//!
//! It cannot before Linux 6.8, nor if a page is shared with a child of fork, or
//! was and has not been written to since, or is just being read by a device.

use super::abi::{self, Holes, Progress};
use super::mmu::{UffdMmu, finish, system};
use super::pagemap::{Place as PagePlace, Shown};
use crate::table::Working;
use core::ops::Range;
use core::slice::from_ref;
use libc::c_int;
use softfault_engine::PAGE_SIZE;
use softfault_engine::mmu::{Mmu, MmuError, PartialMove, Place, Reservation};

/// Pages that are copied before their old places are zapped: so many exist twice
/// at most.
const RUN: usize = 16 * PAGE_SIZE;

/// Answers of EAGAIN in a row, without a page moved. It passes as a rule; but a huge page that the kernel would have to split answers it
/// as long as a device or a pipe has a page of it.
#[derive(Default)]
struct Tries(u32);

impl Tries {
    const MOST: u32 = 100;

    /// The errno that stops the move for good, if one does. A page that answers EAGAIN for ever is in use: EBUSY.
    fn after(&mut self, progress: &Progress) -> Option<c_int> {
        match progress.stopped {
            Some(libc::EAGAIN) if progress.bytes > 0 => self.0 = 0,
            Some(libc::EAGAIN) if self.0 < Self::MOST => {
                self.0 += 1;
                std::thread::yield_now();
            }
            Some(libc::EAGAIN) => return Some(libc::EBUSY),
            stopped => return stopped,
        }
        None
    }
}

impl UffdMmu {
    /// Moves the present pages of `from`. Where they can be protected, they are: the
    /// kernel makes moved pages writable.
    pub(super) fn move_all(
        &self,
        from: Range<usize>,
        (window, to): Place<'_>,
    ) -> Result<(), PartialMove> {
        let mut done = 0;
        while done < from.len() {
            let rest = from.start + done..from.end;
            // SAFETY: of windows of ours; the caller of the verb has the pages of both places to itself.
            let (moved, errno) = unsafe { self.move_run(rest, window, to + done) };
            done += moved;
            let left = from.len() - done;
            let partial = |error| PartialMove { error, moved: done };
            let bytes = match errno {
                None => continue,
                Some(errno @ (libc::ENOMEM | libc::EEXIST)) => return Err(partial(system(errno))),
                // This page only.
                Some(libc::EBUSY) => PAGE_SIZE,
                Some(_) => RUN.min(left),
            };
            let source = from.start + done;
            let copied = self.copy_run(source..source + bytes, window, to + done);
            copied.map_err(partial)?;
            done += bytes;
        }
        Ok(())
    }

    /// Moves pages from the front to a window of our own: returns bytes, and the errno that stopped it. Moved pages can be read: a page that
    /// the program has thrown away stops it.
    pub(super) fn move_away(
        &self,
        window: &Reservation,
        from: Range<usize>,
        to: usize,
    ) -> (usize, Option<c_int>) {
        let fd = self.of(window);
        let (mut moved, mut tries) = (0, Tries::default());
        while moved < from.len() {
            // SAFETY: the thread that evicts has the pages locked, and the other window is our own.
            let progress = unsafe {
                let places = (to + moved, from.start + moved);
                self.move_some(fd, places, from.len() - moved, Holes::Refused)
            };
            moved += progress.bytes;
            match tries.after(&progress) {
                None => {}
                errno => return (moved, errno),
            }
        }
        (moved, None)
    }

    /// Moves pages from the front: returns bytes, and the errno that stopped it.
    ///
    /// # Safety
    /// Both places lie in windows of ours, `to` in this one. Nobody uses, maps or zaps pages of either meanwhile.
    unsafe fn move_run(
        &self,
        from: Range<usize>,
        window: &Reservation,
        to: usize,
    ) -> (usize, Option<c_int>) {
        if !self.offers().moves {
            return (0, Some(libc::ENOSYS));
        }
        let fd = self.of(window);
        let (mut moved, mut tries) = (0, Tries::default());
        let errno = loop {
            // SAFETY: the caller's promise.
            let progress = unsafe {
                let places = (to + moved, from.start + moved);
                self.move_some(fd, places, from.len() - moved, Holes::Moved)
            };
            moved += progress.bytes;
            match tries.after(&progress) {
                _ if moved == from.len() => break None,
                None => {}
                errno => break errno,
            }
        };
        if moved > 0 && self.protects(window) {
            self.protect_all(from_ref(&(to..to + moved)));
        }
        (moved, errno)
    }

    /// UFFDIO_MOVE. Linux 6.18 moves a page that it had to begin with once more, then goes on with the same page, and answers EEXIST.
    /// The page is in its new place all the same, as one is that was moved before.
    ///
    /// # Safety
    /// As of [`abi::move_pages`].
    // Not inlined: its variables would be on the handler's stack while pages are zapped.
    #[inline(never)]
    pub(super) unsafe fn move_some(
        &self,
        fd: &Working,
        (to, from): (usize, usize),
        bytes: usize,
        holes: Holes,
    ) -> Progress {
        // SAFETY: the caller's promise.
        let progress = unsafe { abi::move_pages(fd, (to, from), bytes, holes) };
        match progress.stopped {
            Some(libc::EEXIST) if self.has_left(from + progress.bytes) => Progress {
                bytes: progress.bytes + PAGE_SIZE,
                stopped: None,
            },
            _ => progress,
        }
    }

    /// True if a page is not where it was, as far as that can be seen: its new place was empty before.
    #[cold]
    #[inline(never)]
    fn has_left(&self, page: usize) -> bool {
        let place = self.looks.pagemap.place(page);
        place.is_none_or(|place| place == PagePlace::Nowhere)
    }

    /// Copies the present pages of `from`, and zaps them there.
    fn copy_run(
        &self,
        from: Range<usize>,
        window: &Reservation,
        to: usize,
    ) -> Result<(), MmuError> {
        for at in (0..from.len()).step_by(PAGE_SIZE) {
            let done = self.copy_page(from.start + at, window, to + at);
            if done.is_err() {
                self.zap(from_ref(&(to..to + at)));
                return done;
            }
        }
        self.zap(from_ref(&from));
        Ok(())
    }

    fn copy_page(&self, from: usize, window: &Reservation, to: usize) -> Result<(), MmuError> {
        let protect = self.protects(window);
        if let Some(Shown::Zeros { .. }) = self.looks.pagemap.look(from) {
            self.zero(window, to, PAGE_SIZE)?;
            if protect {
                self.protect_all(from_ref(&(to..to + PAGE_SIZE)));
            }
            return Ok(());
        }
        // The kernel would wait for it to be served.
        if self.calls_wait() && self.is_missing(from) {
            return Ok(());
        }
        finish(PAGE_SIZE, |_, _| {
            let source = from as *const u8;
            // SAFETY: the page is there and stays, or is missing.
            match unsafe { abi::copy(self.of(window), to, source, PAGE_SIZE, protect) } {
                // It is missing, and so is the new one to be. One that may not be read is not.
                Progress {
                    stopped: Some(libc::EFAULT),
                    ..
                } if self.is_missing(from) => Progress {
                    bytes: PAGE_SIZE,
                    stopped: None,
                },
                progress => progress,
            }
        })
    }
}
