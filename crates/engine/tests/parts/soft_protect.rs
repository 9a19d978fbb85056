//! Write protection of soft page tables, while cores write.

use softfault_engine::PAGE_SIZE;
use softfault_engine::mmu::soft::cores::{CoreHandle, Cores};
use softfault_engine::mmu::soft::frames::Frames;
use softfault_engine::mmu::soft::tables::{ENTRIES, Tables};
use softfault_engine::mmu::soft::tlb::{Tlb, TlbKey, Transfer};
use softfault_oracle::Finally;
use std::cell::UnsafeCell;
use std::slice::from_ref;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

const PAGES: usize = 32;
/// Pages that are taken out at a time.
const RUN: usize = 8;
const WRITERS: usize = 2;
const ROUNDS: usize = 2000;

const LOCKED: u32 = 1;
const PRESENT: u32 = 2;

/// Pages that are taken out and come back while cores count in them.
struct Counters {
    tables: Tables<ENTRIES>,
    words: [AtomicU32; PAGES],
    /// The bytes of pages that are out. Under the page's lock.
    saved: [UnsafeCell<[u8; PAGE_SIZE]>; PAGES],
    made_writable: AtomicU32,
}

// SAFETY: saved bytes are used under locks.
unsafe impl Sync for Counters {}

struct Core {
    handle: CoreHandle,
    tlb: Tlb,
}

impl Counters {
    fn new() -> Self {
        let frames = Frames::new(1024 * PAGE_SIZE, 2).unwrap();
        Self {
            tables: Tables::new(frames, Cores::new(WRITERS)).unwrap(),
            words: [const { AtomicU32::new(0) }; PAGES],
            saved: [const { UnsafeCell::new([0; PAGE_SIZE]) }; PAGES],
            made_writable: AtomicU32::new(0),
        }
    }

    fn lock(&self, page: usize) -> u32 {
        loop {
            // Acquire pairs with the Release of `unlock`.
            let before = self.words[page].fetch_or(LOCKED, Ordering::Acquire);
            if before & LOCKED == 0 {
                return before;
            }
            std::thread::yield_now();
        }
    }

    fn unlock(&self, page: usize, now: u32) {
        self.words[page].store(now, Ordering::Release);
    }

    fn fault(&self, page: usize) {
        let addr = page * PAGE_SIZE;
        if self.lock(page) == 0 {
            let saved = self.saved[page].get().cast();
            // SAFETY: a page to copy from, under its lock.
            unsafe { self.tables.copy(addr..addr + PAGE_SIZE, saved, true) }.unwrap();
        } else {
            self.tables.make_writable(addr).unwrap();
            self.made_writable.fetch_add(1, Ordering::Relaxed);
        }
        self.unlock(page, PRESENT);
    }

    /// One load or store of a core's; faults until it is done.
    fn access(&self, core: &mut Core, addr: usize, word: &mut [u8; 8], store: bool) {
        let Core { handle, tlb } = core;
        let place = TlbKey { space: 1, addr };
        while !self.tables.hit(handle, tlb, place, transfer(word, store))
            && !(self.tables).miss(handle, tlb, place, addr, true, transfer(word, store))
        {
            self.fault(addr / PAGE_SIZE);
        }
    }

    fn load(&self, core: &mut Core, addr: usize) -> u64 {
        let mut word = [0; 8];
        self.access(core, addr, &mut word, false);
        u64::from_ne_bytes(word)
    }

    /// Takes the present ones of a run out, or all but that.
    fn evict(&self, run: usize, zap: bool) {
        let pages = run * RUN..(run + 1) * RUN;
        let before: Vec<u32> = pages.clone().map(|page| self.lock(page)).collect();
        let range = pages.start * PAGE_SIZE..pages.end * PAGE_SIZE;
        self.tables.protect(from_ref(&range));
        for (page, &before) in pages.clone().zip(&before) {
            if before & PRESENT != 0 {
                let bytes = self.tables.bytes(page * PAGE_SIZE);
                // SAFETY: a page that is there, and under its lock.
                unsafe { bytes.copy_to(self.saved[page].get().cast(), PAGE_SIZE) };
            }
        }
        // A writer that was not excluded has its turn.
        (0..4).for_each(|_| std::thread::yield_now());
        if zap {
            self.tables.zap(&[range]);
        }
        for (page, &before) in pages.zip(&before) {
            self.unlock(page, if zap { 0 } else { before });
        }
    }
}

fn transfer(word: &mut [u8; 8], store: bool) -> Transfer<'_> {
    match store {
        true => Transfer::Store(word),
        false => Transfer::Load(word),
    }
}

/// Where a writer counts in a page.
fn counter(page: usize, writer: usize) -> usize {
    page * PAGE_SIZE + writer * size_of::<u64>()
}

#[test]
fn no_write_is_lost_to_an_eviction() {
    let counters = Counters::new();
    let stop = AtomicBool::new(false);
    let laps = [const { AtomicU64::new(0) }; WRITERS];
    std::thread::scope(|threads| {
        let (counters, stop, laps) = (&counters, &stop, &laps);
        let write = |writer: usize| {
            let mut core = Core {
                handle: counters.tables.cores().add_core().unwrap(),
                tlb: Tlb::default(),
            };
            let mut wrote = [0; PAGES];
            while !stop.load(Ordering::Relaxed) {
                for (page, wrote) in wrote.iter_mut().enumerate() {
                    for _ in 0..8 {
                        // By the bytes that are there: a lost write stays lost.
                        let now = counters.load(&mut core, counter(page, writer)) + 1;
                        let addr = counter(page, writer);
                        counters.access(&mut core, addr, &mut now.to_ne_bytes(), true);
                        *wrote += 1;
                    }
                }
                laps[writer].fetch_add(1, Ordering::Relaxed);
                std::thread::yield_now();
            }
            for (page, &wrote) in wrote.iter().enumerate() {
                let now = counters.load(&mut core, counter(page, writer));
                assert_eq!(now, wrote, "page {page}, writer {writer}");
            }
        };
        for writer in 0..WRITERS {
            threads.spawn(move || write(writer));
        }
        let _end = Finally(|| stop.store(true, Ordering::Relaxed));
        for round in 0..ROUNDS {
            counters.evict(round % (PAGES / RUN), round % 3 != 0);
            // All pages come back, so that the next ones can be written to.
            for laps in laps {
                let before = laps.load(Ordering::Relaxed);
                while laps.load(Ordering::Relaxed) == before && !stop.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
            }
        }
    });
    assert!(counters.made_writable.load(Ordering::Relaxed) > 0);
}
