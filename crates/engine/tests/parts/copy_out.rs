//! Bytes that are written to a file are copied out of the window before: by few calls, and without what the program has thrown away.

use crate::over_soft::{handed_on, is_there, pages_handed_on, throw_away};
use crate::writable::{bytes, finish, write_back};
use softfault_engine::PAGE_SIZE;
use softfault_engine::mm::Protection;
use softfault_engine::mmu::{
    Access, Mmu, MmuError, PartialMove, Place, Reservation, SoftMmu, Zeroed,
};
use softfault_oracle::{Rig, TestStore, TestSwap, byte_at};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Page tables that copy many pages by one call, up to the first that is missing.
struct Copying {
    mmu: Arc<SoftMmu>,
    calls: Arc<AtomicUsize>,
}

impl Mmu for Copying {
    handed_on!();
    pages_handed_on!();

    unsafe fn copy_out(&self, _: &Reservation, addr: usize, to: *mut u8) -> Result<bool, i32> {
        self.calls.fetch_add(1, Relaxed);
        // SAFETY: the caller's promise.
        Ok(unsafe { self.mmu.read(addr, to, PAGE_SIZE) })
    }

    unsafe fn copy_out_all(&self, _: &Reservation, ranges: &[Range<usize>], to: *mut u8) -> usize {
        self.calls.fetch_add(1, Relaxed);
        let pages = ranges
            .iter()
            .flat_map(|range| range.clone().step_by(PAGE_SIZE));
        let copied = pages.enumerate().take_while(|&(at, addr)| {
            // SAFETY: the caller's promise.
            unsafe { self.mmu.read(addr, to.add(at * PAGE_SIZE), PAGE_SIZE) }
        });
        copied.count()
    }

    fn is_missing(&self, addr: usize) -> bool {
        !is_there(&self.mmu, addr)
    }
}

fn rig(calls: &Arc<AtomicUsize>) -> Rig {
    let calls = calls.clone();
    Rig::over(4096, &TestSwap::new(8), |mmu| Copying { mmu, calls })
}

#[test]
fn pages_are_copied_by_few_calls() {
    let calls = Arc::default();
    let rig = rig(&calls);
    let store = TestStore::new(bytes(512));
    let cache = rig.map_writable(&store);
    let start = cache.addresses().start;
    // Not in order: each is a folio of its own, and nothing is expected.
    let written = (0..512).step_by(2);
    for page in written.clone().rev() {
        rig.write(start + page * PAGE_SIZE, &[1]).unwrap();
    }
    calls.store(0, Relaxed);
    write_back(&cache, 0..512);
    let writes = store.writes();
    assert!(writes.iter().copied().eq(written.map(|page| page as u64)));
    // A call for each batch of copies, of 32 pages under this budget.
    assert!(calls.load(Relaxed) <= writes.len() / 16, "{calls:?}");
    finish(rig, cache);
}

#[test]
fn pages_that_are_gone_keep_no_others_from_being_written() {
    let calls = Arc::default();
    let rig = rig(&calls);
    let store = TestStore::new(bytes(64));
    let cache = rig.map_writable(&store);
    let start = cache.addresses().start;
    for page in (0..64).rev() {
        rig.write(start + page * PAGE_SIZE, &[page as u8 | 128])
            .unwrap();
    }
    let gone = [0, 7, 8, 31, 32, 63];
    gone.iter()
        .for_each(|&page| throw_away(&rig, start, page..page + 1));
    write_back(&cache, 0..64);
    assert_eq!(cache.dirty_pages(), 0);
    for page in 0..64 {
        let is_gone = gone.contains(&page);
        assert_eq!(
            store.writes().contains(&(page as u64)),
            !is_gone,
            "page {page}"
        );
        if !is_gone {
            assert_eq!(
                store.byte(bytes(page as u64)),
                page as u8 | 128,
                "page {page}"
            );
        }
    }
    finish(rig, cache);
}

/// Failed before: a write of the bytes that a page had before others wrote to the file passed for none, and was lost. Its folio
/// had kept them, to see by a comparison which pages were written to.
#[test]
fn a_write_of_the_old_bytes_to_a_page_that_was_gone_is_written_back() {
    for was_written in [false, true] {
        let rig = rig(&Arc::default());
        let store = TestStore::with_queue(bytes(256), 4);
        let cache = rig.map_writable(&store);
        let start = cache.addresses().start;
        let addr = |page: usize| start + page * PAGE_SIZE;
        // A writer in order, until more is dirty than was written to: the rest of a folio is expected to be.
        let mut page = 0;
        while cache.dirty_pages() as usize <= page {
            rig.write(addr(page), &[1]).unwrap();
            page += 1;
        }
        let gone = page + 1;
        if was_written {
            rig.write(addr(gone), &[1]).unwrap();
        }
        store.rewrite(7);
        throw_away(&rig, start, gone..gone + 1);
        let at = |byte: usize| bytes(gone as u64) + byte as u64;
        assert_eq!(rig.touch(addr(gone)), Ok(byte_at(7, at(0))));
        let old: Vec<u8> = (0..PAGE_SIZE).map(|byte| byte_at(0, at(byte))).collect();
        rig.write(addr(gone), &old).unwrap();
        write_back(&cache, 0..256);
        assert!((0..PAGE_SIZE).all(|byte| store.byte(at(byte)) == old[byte]));
        // What was written to the pages before it is there as well, and nothing to those behind it.
        let written = (0..page).chain([gone]).map(|page| page as u64);
        assert_eq!(store.writes(), written.collect::<Vec<_>>());
        assert_eq!(cache.dirty_pages(), 0);
        finish(rig, cache);
    }
}

/// The window cannot be protected as a whole, more often than its epochs can be told apart.
#[test]
fn a_page_is_not_taken_for_protected_where_protecting_fails() {
    let rig = rig(&Arc::default());
    let store = TestStore::new(bytes(4));
    let cache = rig.map_writable(&store);
    let start = cache.addresses().start;
    for _ in 0..(1 << 15) + 1 {
        assert!(!cache.protect_window());
    }
    rig.write(start, &[1]).unwrap();
    write_back(&cache, 0..4);
    rig.write(start, &[2]).unwrap();
    assert_eq!(cache.dirty_pages(), 1);
    write_back(&cache, 0..4);
    assert_eq!(store.byte(0), 2);
    finish(rig, cache);
}
