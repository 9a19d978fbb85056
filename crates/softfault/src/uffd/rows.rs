//! Moving a huge page of the frame pool into a window that is only read: UFFDIO_MOVE, and no byte is copied.
//!
//! The kernel moves between mappings that may both be written to. So such a window may be, as far as its mapping says, and
//! userfaultfd write-protects its pages: a copy is protected from its first moment, and so is a missing page, by being missing. **Moved
//! memory is protected a moment later**, some 10 µs for 2 MiB, since the kernel forgets the protection that it had before
//! (Linux 6.18). A store into a map that is only read may succeed in that moment, where the kernel's own mapping would answer it by
//! SIGSEGV: its bytes are seen in the map until the page is evicted, and never get to the file. At any other moment it is a
//! fault: the mapping becomes read-only then ([`Mmu::refuse_writes`](softfault_engine::mmu::Mmu::refuse_writes)), and the store, which is
//! made again, is the kernel's to refuse.
//!
//! Only huge pages that one entry maps are moved: that costs 5 µs. Moving page by page costs as much as a copy, once new memory has to be
//! made for the pool.

use super::abi::{self, Holes, Progress};
use super::mmu::{MOVES, UffdMmu, finish, mprotect};
use core::ops::Range;
use core::slice::from_ref;
use libc::c_int;
use softfault_engine::PAGE_SIZE;
use softfault_engine::lock::Mutex;
use softfault_engine::mm::Protection;
use softfault_engine::mmu::{MmuError, Moved, Place, Reservation, TABLE_SPAN};
use std::sync::OnceLock;

/// Attempts where memory is in use: a read that is over keeps its pins for a moment.
const ATTEMPTS: usize = 4;

/// The state of moves.
#[derive(Default)]
pub(super) struct Rows {
    /// Where a page is moved to split the huge page that it is a part of. Made with the first window; `None` where it cannot be.
    aside: OnceLock<Option<Mutex<Reservation>>>,
}

impl UffdMmu {
    /// See [`Mmu::reserve_for_moves`](softfault_engine::mmu::Mmu::reserve_for_moves).
    pub(super) fn reserve_row_window(&self, bytes: usize) -> Option<Reservation> {
        let offers = self.offers();
        if !offers.moves || !offers.protect || !self.looks.pagemap.can_look() || is_data_limited() {
            return None;
        }
        let aside = self.rows.aside.get_or_init(|| {
            let made = self.reserve_as(TABLE_SPAN, Protection::ReadWrite, 0);
            made.ok().map(Mutex::new)
        });
        aside.as_ref()?;
        self.reserve_as(bytes, Protection::Read, MOVES).ok()
    }

    /// See [`Mmu::move_in`](softfault_engine::mmu::Mmu::move_in).
    ///
    /// # Safety
    /// As of that.
    pub(super) unsafe fn move_row(&self, (window, to): Place<'_>, from: usize) -> Moved {
        if window.token & MOVES == 0 {
            return Moved::Never;
        }
        if !self.looks.pagemap.is_huge(from) {
            return Moved::NotNow;
        }
        let fd = self.of(window);
        // The touch that asks for it has made a page table there, and an entry for a huge page goes where none is: the kernel
        // takes an empty one away in a zap (Linux 6.14).
        self.zap.one(&(to..to + TABLE_SPAN));
        let (mut done, mut attempts) = (0, 0);
        while done < TABLE_SPAN {
            // SAFETY: the target is the window's, and nobody else uses the source.
            let progress = unsafe {
                self.move_some(
                    fd,
                    (to + done, from + done),
                    TABLE_SPAN - done,
                    Holes::Moved,
                )
            };
            done += progress.bytes;
            let Some(errno) = progress.stopped else {
                continue;
            };
            attempts += 1;
            match errno {
                libc::EAGAIN | libc::EBUSY if attempts < ATTEMPTS => std::thread::yield_now(),
                _ if done > 0 => break,
                libc::EAGAIN | libc::EBUSY | libc::EEXIST | libc::ENOMEM => return Moved::NotNow,
                _ => return Moved::Never,
            }
        }
        // It was split under our hands, and a page of it was in use.
        let rest = finish(TABLE_SPAN - done, |at, bytes| {
            let source = (from + done + at) as *const u8;
            // SAFETY: pages that have not moved are readable.
            unsafe { abi::copy(fd, to + done + at, source, bytes, true) }
        });
        match rest.and_then(|()| self.protect_row(window, to..to + TABLE_SPAN)) {
            Ok(()) => Moved::All,
            Err(_) => Moved::Lost,
        }
    }

    /// Protects memory that was moved to a window, or zeros of it. Where that cannot be, all of the window is made read-only.
    pub(super) fn protect_row(
        &self,
        window: &Reservation,
        range: Range<usize>,
    ) -> Result<(), MmuError> {
        match abi::protect(self.of(window), &range) {
            Ok(()) => Ok(()),
            Err(_) => mprotect(&window.range(), Protection::Read),
        }
    }

    /// See [`Mmu::split`](softfault_engine::mmu::Mmu::split): the kernel splits a huge page of which it moves a page.
    pub(super) fn split_row(&self, addr: usize) -> bool {
        let Some(aside) = self.rows.aside.get().and_then(Option::as_ref) else {
            return false;
        };
        let aside = aside.lock();
        let mut split = false;
        for _ in 0..ATTEMPTS {
            // SAFETY: the page is on its way out, and the place is our own.
            let moved = unsafe {
                self.move_some(self.of(&aside), (aside.addr, addr), PAGE_SIZE, Holes::Moved)
            };
            match moved {
                Progress { stopped: None, .. } => split = true,
                Progress {
                    stopped: Some(libc::EAGAIN | libc::EBUSY),
                    ..
                } => {
                    std::thread::yield_now();
                    continue;
                }
                Progress { .. } => {}
            }
            break;
        }
        if split {
            self.zap
                .zap(from_ref(&(aside.addr..aside.addr + PAGE_SIZE)));
        }
        split
    }
}

/// True if writable memory is limited by RLIMIT_DATA: a window would count, although it is only read.
fn is_data_limited() -> bool {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: fills the structure.
    let answer: c_int = unsafe { libc::getrlimit(libc::RLIMIT_DATA, &mut limit) };
    answer != 0 || limit.rlim_cur != libc::RLIM_INFINITY
}
