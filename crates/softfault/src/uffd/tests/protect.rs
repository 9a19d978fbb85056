//! Protected pages are not written to.

use super::served::serve;
use super::{copy, of, page, read, real, reserve, without, write};
use crate::uffd::UffdMmu;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use softfault_engine::PAGE_SIZE;
use softfault_engine::mm::Protection;
use softfault_engine::mmu::{Access, Mmu, MmuError, Reservation, Zeroed};
use softfault_oracle::Finally;
use std::slice::from_ref;
use std::sync::Arc;

#[test]
fn a_write_to_a_protected_page_is_a_fault() {
    let mmu = Arc::new(real());
    assert!(mmu.can_protect());
    let window = reserve(&mmu, 8);
    let faults = {
        let (mmu, window) = (mmu.clone(), window.clone());
        serve(&window.clone(), move |addr, _| {
            mmu.make_writable(&window, addr).unwrap()
        })
    };
    copy(&mmu, &window, 0, 1, Access::Writable).unwrap();
    copy(&mmu, &window, 1, 2, Access::ReadOnly).unwrap();
    copy(&mmu, &window, 3, 3, Access::Writable).unwrap();
    write(&window, 0, 10);
    assert_eq!(faults.take(), (0, 0));
    assert_eq!(read(&window, 1), of(2));
    assert_eq!(faults.take(), (0, 0), "reading is allowed");
    write(&window, 1, 11);
    assert_eq!(faults.take(), (0, 1), "mapped for reading");
    write(&window, 1, 12);
    assert_eq!(faults.take(), (0, 0), "and made writable");
    // Two ranges, with a missing page among them.
    mmu.protect(&[
        page(&window, 0)..page(&window, 2),
        page(&window, 2)..page(&window, 5),
    ]);
    for at in [0, 1, 3] {
        write(&window, at, 20 + at as u64);
        assert_eq!(faults.take(), (0, 1), "page {at}");
        assert_eq!(
            // SAFETY: the page is there.
            unsafe { *mmu.bytes(&window, page(&window, at)) },
            20 + at as u8
        );
    }
    // Missing pages were not marked in any way.
    copy(&mmu, &window, 2, 5, Access::Writable).unwrap();
    write(&window, 2, 9);
    assert_eq!(faults.take(), (0, 0));
}

#[test]
fn a_protected_page_that_goes_leaves_no_mark() {
    let mmu = real();
    let window = reserve(&mmu, 4);
    let faults = serve(&window, |_, _| ());
    for at in 0..3 {
        copy(&mmu, &window, at, 1, Access::ReadOnly).unwrap();
    }
    mmu.zap(&[
        page(&window, 0)..page(&window, 1),
        page(&window, 2)..page(&window, 3),
    ]);
    for at in [0, 2] {
        copy(&mmu, &window, at, 2, Access::Writable).unwrap();
        write(&window, at, 3);
    }
    assert_eq!(faults.take(), (0, 0));
}

#[test]
fn system_calls_read_protected_pages() {
    let mmu = real();
    let window = reserve(&mmu, 2);
    copy(&mmu, &window, 0, b'x', Access::ReadOnly).unwrap();
    let mut ends = [0; 2];
    // SAFETY: makes two descriptors; the page is there; a buffer of its length.
    unsafe {
        assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC), 0);
        let wrote = libc::write(ends[1], window.addr as *const _, PAGE_SIZE);
        assert_eq!(wrote, PAGE_SIZE as isize);
        let got = libc::read(ends[0], window.addr as *mut _, PAGE_SIZE);
        assert_eq!(
            (got, crate::errno::errno()),
            (-1, libc::EFAULT),
            "and do not write to it"
        );
        for end in ends {
            libc::close(end);
        }
    }
    assert_eq!(read(&window, 0), of(b'x'));
}

#[test]
fn without_protection_all_that_is_mapped_is_writable() {
    let mmu = without(|offers| offers.protect = false, true);
    assert!(!mmu.can_protect());
    let window = reserve(&mmu, 4);
    let read_only = copy(&mmu, &window, 0, 1, Access::ReadOnly);
    assert_eq!(read_only, Err(MmuError::Closed(libc::ENOSYS)));
    assert_eq!(mmu.zero_page(&window, window.addr), Ok(Zeroed::Memory));
    write(&window, 0, 1);
    mmu.make_writable(&window, window.addr).unwrap();
    // A window that is only read needs none.
    let window = mmu.reserve(PAGE_SIZE, Protection::Read).unwrap();
    copy(&mmu, &window, 0, 1, Access::ReadOnly).unwrap();
    assert_eq!(read(&window, 0), of(1));
}

const PAGES: usize = 32;
/// Pages that are taken out at a time.
const RUN: usize = 8;
const WRITERS: usize = 2;
const ROUNDS: usize = 300;
/// Writes to a page before the next page.
const WRITES: usize = 32;

const LOCKED: u32 = 1;
const PRESENT: u32 = 2;

/// Pages that are taken out and come back while threads count in them.
struct Counters {
    mmu: UffdMmu,
    window: Reservation,
    words: [AtomicU32; PAGES],
    /// The bytes of each page that is out. Under the page's lock.
    saved: [UnsafeCell<[u8; PAGE_SIZE]>; PAGES],
    made_writable: AtomicU32,
}

// SAFETY: the saved bytes are used under locks.
unsafe impl Sync for Counters {}

impl Counters {
    fn lock(&self, at: usize) -> u32 {
        loop {
            // Acquire pairs with the Release of `unlock`.
            let before = self.words[at].fetch_or(LOCKED, Ordering::Acquire);
            if before & LOCKED == 0 {
                return before;
            }
            std::thread::yield_now();
        }
    }

    fn unlock(&self, at: usize, now: u32) {
        self.words[at].store(now, Ordering::Release);
    }

    /// In the handler.
    fn fault(&self, addr: usize, write: bool) {
        let at = (addr - self.window.addr) / PAGE_SIZE;
        match self.lock(at) {
            0 => {
                // SAFETY: under the page's lock.
                unsafe {
                    let to = (&self.window, addr);
                    let mapped = self.mmu.copy(to, self.saved[at].get(), Access::Writable);
                    mapped.unwrap();
                }
            }
            _ if write => {
                self.mmu.make_writable(&self.window, addr).unwrap();
                self.made_writable.fetch_add(1, Ordering::Relaxed);
            }
            _ => {}
        }
        self.unlock(at, PRESENT);
    }

    /// Takes the present ones of a run out, or all but that.
    fn evict(&self, run: usize, zap: bool) {
        let pages = run * RUN..(run + 1) * RUN;
        let before: Vec<u32> = pages.clone().map(|at| self.lock(at)).collect();
        let range = page(&self.window, pages.start)..page(&self.window, pages.end);
        self.mmu.protect(from_ref(&range));
        for (at, &before) in pages.clone().zip(&before) {
            if before & PRESENT != 0 {
                let bytes = self.mmu.bytes(&self.window, page(&self.window, at));
                // SAFETY: a page that is there, and under the page's lock.
                unsafe { bytes.copy_to(self.saved[at].get().cast(), PAGE_SIZE) };
            }
        }
        // A writer that was not excluded has its turn.
        (0..4).for_each(|_| std::thread::yield_now());
        if zap {
            self.mmu.zap(&[range]);
        }
        for (at, &before) in pages.zip(&before) {
            self.unlock(at, if zap { 0 } else { before });
        }
    }

    fn counter(&self, at: usize, writer: usize) -> &AtomicU64 {
        let addr = page(&self.window, at) + writer * size_of::<u64>();
        // SAFETY: memory of the window, or a fault that is served.
        unsafe { AtomicU64::from_ptr(addr as *mut u64) }
    }
}

#[test]
fn no_write_is_lost_to_an_eviction() {
    let mmu = real();
    let window = reserve(&mmu, PAGES);
    let counters: &Counters = Box::leak(Box::new(Counters {
        mmu,
        window,
        words: [const { AtomicU32::new(0) }; PAGES],
        saved: [const { UnsafeCell::new([0; PAGE_SIZE]) }; PAGES],
        made_writable: AtomicU32::new(0),
    }));
    let faults = serve(&counters.window, |addr, write| counters.fault(addr, write));
    let stop = AtomicBool::new(false);
    let laps = [const { AtomicU64::new(0) }; WRITERS];
    let wrote: Vec<[u64; PAGES]> = std::thread::scope(|threads| {
        let writers = (0..WRITERS).map(|writer| {
            let (stop, laps) = (&stop, &laps);
            threads.spawn(move || {
                let mut wrote = [0; PAGES];
                while !stop.load(Ordering::Relaxed) {
                    for (at, wrote) in wrote.iter_mut().enumerate() {
                        let counter = counters.counter(at, writer);
                        for _ in 0..WRITES {
                            // By the present bytes: lost bytes stay lost.
                            let before = counter.load(Ordering::Relaxed);
                            counter.store(before + 1, Ordering::Relaxed);
                            *wrote += 1;
                        }
                    }
                    laps[writer].fetch_add(1, Ordering::Relaxed);
                    std::thread::yield_now();
                }
                wrote
            })
        });
        let writers: Vec<_> = writers.collect();
        let end = Finally(|| stop.store(true, Ordering::Relaxed));
        for round in 0..ROUNDS {
            counters.evict(round % (PAGES / RUN), round % 3 != 0);
            // All pages come back, so that the next ones can be written to.
            for laps in &laps {
                let before = laps.load(Ordering::Relaxed);
                while laps.load(Ordering::Relaxed) < before + 1 {
                    std::thread::yield_now();
                }
            }
        }
        drop(end);
        writers
            .into_iter()
            .map(|writer| writer.join().unwrap())
            .collect()
    });
    for (writer, wrote) in wrote.iter().enumerate() {
        for (at, &wrote) in wrote.iter().enumerate() {
            let now = counters.counter(at, writer).load(Ordering::Relaxed);
            assert_eq!(now, wrote, "page {at}, writer {writer}");
        }
    }
    let (_, writes) = faults.take();
    assert!(writes > 0 && counters.made_writable.load(Ordering::Relaxed) > 0);
}
