//! Pages that a device may be writing to: the kernel has pinned them, for a read past the page cache or by io_uring.
//!
//! A device would go on writing to an evicted page, and the bytes would be lost. Only UFFDIO_MOVE says whether a page is pinned: it
//! moves no pinned page. So pages that were written to swap are moved to a window of our own, and zapped there. A device that
//! was done before that may have begun before the write, and have written after it: a checksum from before the write tells,
//! and the page goes back.
//!
//! It also does not move a page that was shared with a child of fork, and was not written to since: no
//! device writes to such a page, but it cannot be told from a pinned one. So once the process has forked, there are no more looks.

use super::mmu::UffdMmu;
use core::ops::Range;
use core::slice::from_ref;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use softfault_engine::PAGE_SIZE;
use softfault_engine::lock::Mutex;
use softfault_engine::mm::Protection;
use softfault_engine::mmu::{Mmu, Reservation, WrittenPage};
use std::sync::OnceLock;

/// Pages that are moved before they are zapped.
const PAGES: usize = 384;

/// The state of the looks for pins.
#[derive(Default)]
pub(super) struct Pins {
    /// Where pages are moved to. Made when memory that can be written to is first reserved; `None` where it cannot be.
    aside: OnceLock<Option<Mutex<Reservation>>>,
    /// The process has forked, or is a child. Relaxed: set while nothing is evicted.
    is_shared: AtomicBool,
}

impl Pins {
    /// Pages may be shared with a child from now on.
    pub(super) fn share(&self) {
        self.is_shared.store(true, Relaxed);
    }
}

impl UffdMmu {
    /// Makes the means to look. Not in a fault.
    pub fn prepare_pins(&self) {
        if self.faults() == super::Faults::Messages && self.offers().moves {
            self.pins.aside.get_or_init(|| {
                let made = self.reserve(PAGES * PAGE_SIZE, Protection::ReadWrite);
                made.ok().map(Mutex::new)
            });
        }
    }

    pub(super) fn can_see_pins(&self) -> bool {
        let aside = self.pins.aside.get().and_then(Option::as_ref);
        aside.is_some() && !self.pins.is_shared.load(Relaxed)
    }

    /// See [`Mmu::spare_pinned`].
    pub(super) fn move_unpinned(&self, pages: &mut [WrittenPage]) {
        let Some(aside) = self.pins.aside.get().and_then(Option::as_ref) else {
            return;
        };
        let aside = aside.lock();
        for pages in pages.chunks_mut(PAGES) {
            let place = |at: usize| aside.addr + at * PAGE_SIZE;
            let mut at = 0;
            while at < pages.len() {
                let run = run(&pages[at..]);
                let (bytes, errno) = self.move_away(&pages[at].window, run, place(at));
                for _ in 0..bytes / PAGE_SIZE {
                    // Nobody reaches it any more. A device may have gone on until it was moved.
                    if sum(place(at)) != pages[at].sum {
                        pages[at].stays = true;
                        self.move_back(&pages[at], &aside, place(at));
                    }
                    at += 1;
                }
                if let Some(errno) = errno {
                    // At any other error it can be zapped where it is.
                    pages[at].stays = errno == libc::EBUSY;
                    at += 1;
                }
            }
            self.zap.zap(from_ref(&aside.range()));
        }
    }

    /// Moves a page back to where it was, which nobody has filled.
    fn move_back(&self, page: &WrittenPage, aside: &Reservation, from: usize) {
        let to = (&page.window, page.addr);
        let moved = self.move_pages((aside, from), to, PAGE_SIZE);
        // Its table is there, or there is memory for one; else the bytes are lost.
        assert!(moved.is_ok(), "a page that goes back: {moved:?}");
    }
}

/// A checksum of a page that is there.
pub(super) fn sum(page: usize) -> u64 {
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut lanes = [1_u64, 2, 3, 4];
    for at in (0..PAGE_SIZE).step_by(32) {
        for (lane, number) in lanes.iter_mut().zip(0..) {
            let word = (page + at + number * 8) as *const u64;
            // SAFETY: within a page that is there, and that a device may write to.
            let word = unsafe { word.read_volatile() };
            *lane = (lane.rotate_left(23) ^ word).wrapping_mul(MULTIPLIER);
        }
    }
    let mix = |sum: u64, lane: u64| (sum.rotate_left(29) ^ lane).wrapping_mul(MULTIPLIER);
    lanes.into_iter().fold(0, mix)
}

/// The first pages of some that follow each other in a window.
fn run(pages: &[WrittenPage]) -> Range<usize> {
    let first = &pages[0];
    let follows = |&(at, page): &(usize, &WrittenPage)| {
        page.window.addr == first.window.addr && page.addr == first.addr + at * PAGE_SIZE
    };
    let count = pages.iter().enumerate().take_while(follows).count();
    first.addr..first.addr + count * PAGE_SIZE
}
