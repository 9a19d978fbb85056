//! Pages that a device may be writing to: the kernel has pinned them, for a read past the page cache or by io_uring.
//!
//! A device would go on writing to an evicted page, and the bytes would be lost. Only UFFDIO_MOVE says whether a page is pinned: it
//! moves no pinned page. So pages that were written to swap are moved to a window of our own, and zapped there. A device that
//! was done before that may have begun before the write, and have written after it: a checksum from before the write tells,
//! and the page goes back.
//!
//! It also does not move a page that was shared with a child of fork, and was not written to since: no
//! device writes to such a page, but it cannot be told from a pinned one. So once the process has forked, there are no more looks.
//!
//! Nor does it move pages between mappings of different kinds. Where the program has locked a part (`mlock(2)`), our window is locked
//! for the move, or the one page that is moved, if the program may lock no more (`RLIMIT_MEMLOCK`). If not even that is left, the locked page
//! stays: the program has locked much, and what it locks it wants to stay. A part that may not be written to cannot be looked at: its pages stay for a
//! few passes, and go if their bytes are still the same. They cannot stay for ever, as whole heaps are such parts (collectors find writes so).

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

/// How often a page stays that cannot be looked at. Not for ever: all that a program has may be such pages, and the budget holds.
const PASSES: u8 = 4;
/// Pages that cannot be looked at and are told apart. Where there are more, some stay for fewer passes.
const TOLD_APART: usize = 4096;

/// The state of the looks for pins.
#[derive(Default)]
pub(super) struct Pins {
    /// Made when memory that can be written to is first reserved; `None` where it cannot be.
    buffer: OnceLock<Option<Mutex<EvictionBuffer>>>,
    /// The process has forked, or is a child. Relaxed: set while nothing is evicted.
    is_shared: AtomicBool,
}

/// Where pages are moved to.
struct EvictionBuffer {
    window: Reservation,
    /// It may be locked, as the program's pages are.
    is_locked: bool,
    /// Passes of pages with their bytes, by a hash of both.
    passes: Box<[u8]>,
    /// A page to copy to.
    page: Box<[u8]>,
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
            self.pins.buffer.get_or_init(|| {
                let made = self.reserve(PAGES * PAGE_SIZE, Protection::ReadWrite);
                let buffer = made.ok().map(|window| EvictionBuffer {
                    window,
                    is_locked: false,
                    passes: vec![0; TOLD_APART].into(),
                    page: vec![0; PAGE_SIZE].into(),
                });
                buffer.map(Mutex::new)
            });
        }
    }

    pub(super) fn can_see_pins(&self) -> bool {
        let buffer = self.pins.buffer.get().and_then(Option::as_ref);
        buffer.is_some() && !self.pins.is_shared.load(Relaxed)
    }

    /// See [`Mmu::spare_pinned`].
    pub(super) fn move_unpinned(&self, pages: &mut [WrittenPage]) {
        let Some(buffer) = self.pins.buffer.get().and_then(Option::as_ref) else {
            return;
        };
        let buffer = &mut *buffer.lock();
        for pages in pages.chunks_mut(PAGES) {
            let start = buffer.window.addr;
            let place = |at: usize| start + at * PAGE_SIZE;
            let (mut at, mut most) = (0, PAGES);
            while at < pages.len() {
                let run = run(&pages[at..], most);
                let count = run.len() / PAGE_SIZE;
                let (bytes, errno) = self.move_away(&pages[at].window, run, place(at));
                let moved = bytes / PAGE_SIZE;
                for page in &mut pages[at..at + moved] {
                    let from = place(at);
                    // Nobody reaches it any more. A device may have gone on until it was moved.
                    if sum(from) != page.sum {
                        page.stays = true;
                        self.move_back(page, &buffer.window, from);
                    }
                    at += 1;
                }
                match errno {
                    None => most = (2 * most).min(PAGES),
                    // The kernel moves within one mapping: the program has split the window's.
                    Some(libc::EINVAL) if count - moved > 1 => most = (count - moved) / 2,
                    Some(libc::EINVAL) if is_locked(pages[at].addr) != is_locked(place(at)) => {
                        if !buffer.turn(place(at)) {
                            pages[at].stays = true;
                            at += 1;
                        }
                    }
                    Some(errno) => {
                        pages[at].stays = match errno {
                            // The program has thrown it away.
                            libc::ENOENT => false,
                            libc::EBUSY => true,
                            _ => self.is_unmovable(buffer, &pages[at]),
                        };
                        at += 1;
                    }
                }
            }
            self.zap.zap(from_ref(&buffer.window.range()));
        }
        // It would count against the program's limit.
        buffer.unlock();
    }

    /// True if a page stays that the kernel does not move, pinned or not. A device that was to write to it has done so after some
    /// passes, and then its bytes are others than those before.
    #[cold]
    fn is_unmovable(&self, buffer: &mut EvictionBuffer, page: &WrittenPage) -> bool {
        // SAFETY: a page of our own.
        match unsafe { self.looks.copy_out(page.addr, buffer.page.as_mut_ptr()) } {
            Ok(true) => {}
            Ok(false) => return false,
            Err(_) => return true,
        }
        if sum(buffer.page.as_ptr().addr()) != page.sum {
            return true;
        }
        let hash = (page.sum ^ page.addr as u64).wrapping_mul(MULTIPLIER) >> 32;
        let passes = &mut buffer.passes[hash as usize % TOLD_APART];
        *passes = (*passes + 1) % PASSES;
        *passes != 0
    }

    /// Moves a page back to where it was, which nobody has filled.
    fn move_back(&self, page: &WrittenPage, buffer: &Reservation, from: usize) {
        let to = (&page.window, page.addr);
        let moved = self.move_pages((buffer, from), to, PAGE_SIZE);
        // Its table is there, or there is memory for one; else the bytes are lost.
        assert!(moved.is_ok(), "a page that goes back: {moved:?}");
    }
}

impl EvictionBuffer {
    /// Has the window, or at least a page of it, locked if that was not, or the other way round. False: the program has locked as much as
    /// it may.
    #[cold]
    fn turn(&mut self, page: usize) -> bool {
        let was_locked = is_locked(page);
        self.is_locked = true;
        self.unlock();
        if !was_locked {
            self.is_locked = lock(self.window.range()) || lock(page..page + PAGE_SIZE);
        }
        // By the kernel's own word: where a filter answers for it, the page would be moved again and again.
        is_locked(page) != was_locked
    }

    /// As `munlock(2)`.
    fn unlock(&mut self) {
        if core::mem::take(&mut self.is_locked) {
            let Range { start, end } = self.window.range();
            // SAFETY: of a window of our own; no byte changes.
            unsafe { sync::system_call!(libc::SYS_munlock, start, end - start) };
        }
    }
}

/// As `mlock2(2)` with `MLOCK_ONFAULT`. False where it is refused.
fn lock(part: Range<usize>) -> bool {
    const ONFAULT: usize = 1;
    // SAFETY: of a window of our own; no byte changes, and no page is brought in.
    unsafe { sync::system_call!(libc::SYS_mlock2, part.start, part.len(), ONFAULT) == 0 }
}

/// True of a page that is locked: the kernel gives no such page its advice, which changes nothing but the order in which it would reclaim.
#[cold]
fn is_locked(page: usize) -> bool {
    // SAFETY: no byte changes, and no page goes.
    let advised =
        unsafe { sync::system_call!(libc::SYS_madvise, page, PAGE_SIZE, libc::MADV_COLD) };
    advised != 0 && crate::errno::errno() == libc::EINVAL
}

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// A checksum of a page that is there.
pub(super) fn sum(page: usize) -> u64 {
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

/// The first pages of some that follow each other in a window, `most` at most.
fn run(pages: &[WrittenPage], most: usize) -> Range<usize> {
    let first = &pages[0];
    let follows = |&(at, page): &(usize, &WrittenPage)| {
        page.window.addr == first.window.addr && page.addr == first.addr + at * PAGE_SIZE
    };
    let pages = pages.iter().take(most).enumerate();
    let count = pages.take_while(follows).count();
    first.addr..first.addr + count * PAGE_SIZE
}
