//! Memory ends in the midst of several pages that are mapped at once, and another thread has written to the first of them by then.

use crate::over_soft::{handed_on_but_memory, is_there, pages_handed_on};
use crate::writable::{bytes, finish, write_back};
use softfault_engine::PAGE_SIZE;
use softfault_engine::anon::Anonymous;
use softfault_engine::fault;
use softfault_engine::mm::Protection;
use softfault_engine::mmu::{
    Access, Mmu, MmuError, PartialMove, Place, Reservation, SoftMmu, Zeroed,
};
use softfault_engine::page::FaultError;
use softfault_oracle::{Rig, TestStore, TestSwap, byte_at, private_copy};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The byte that another thread writes to a page as soon as it can.
const WRITTEN: u8 = 0xB5;
/// Where in the page.
const AT: usize = 8;

/// Page tables of a system that has memory for so many pages more.
struct Short {
    mmu: Arc<SoftMmu>,
    left: Arc<AtomicUsize>,
    /// Calls of `zap`.
    zaps: Arc<AtomicUsize>,
    can_protect: bool,
}

impl Short {
    /// Maps pages one by one. Those that come before memory ends are written to at once, if they may be.
    fn map(
        &self,
        pages: Range<usize>,
        window: &Reservation,
        access: Access,
        map: impl Fn(usize) -> Result<(), MmuError>,
    ) -> Result<(), MmuError> {
        for addr in pages.clone().step_by(PAGE_SIZE) {
            if is_there(&self.mmu, addr) {
                continue;
            }
            if self.left.load(Relaxed) == 0 {
                if access == Access::Writable && addr > pages.start {
                    let first = self.mmu.bytes(window, pages.start).cast_mut();
                    // SAFETY: in a page of the window, which this thread has just mapped.
                    unsafe { first.add(AT).write_volatile(WRITTEN) };
                }
                return Err(MmuError::NoMemory);
            }
            map(addr)?;
            self.left.fetch_sub(1, Relaxed);
        }
        Ok(())
    }
}

impl Mmu for Short {
    handed_on_but_memory!();
    pages_handed_on!();

    unsafe fn copy(&self, to: Place<'_>, of: *const [u8], access: Access) -> Result<(), MmuError> {
        let (window, start) = to;
        self.map(start..start + of.len(), window, access, |addr| {
            let from = of.cast::<u8>().wrapping_add(addr - start);
            let page = std::ptr::slice_from_raw_parts(from, PAGE_SIZE);
            // SAFETY: the caller's promise.
            unsafe { self.mmu.copy((window, addr), page, access) }
        })
    }

    fn fill(&self, window: &Reservation, start: usize, bytes: usize) -> Result<(), MmuError> {
        let fill = |addr| self.mmu.fill(window, addr, PAGE_SIZE);
        self.map(start..start + bytes, window, Access::Writable, fill)
    }

    fn protect(&self, ranges: &[Range<usize>]) {
        self.mmu.protect(ranges);
    }

    fn zap(&self, ranges: &[Range<usize>]) {
        self.zaps.fetch_add(1, Relaxed);
        self.mmu.zap(ranges);
    }

    fn can_protect(&self) -> bool {
        self.can_protect
    }

    fn is_missing(&self, addr: usize) -> bool {
        !is_there(&self.mmu, addr)
    }
}

fn rig(left: &Arc<AtomicUsize>, can_protect: bool) -> Rig {
    rig_with(left, &Arc::default(), can_protect)
}

fn rig_with(left: &Arc<AtomicUsize>, zaps: &Arc<AtomicUsize>, can_protect: bool) -> Rig {
    Rig::over(4096, &TestSwap::new(1000), |mmu| Short {
        mmu,
        left: left.clone(),
        zaps: zaps.clone(),
        can_protect,
    })
}

fn map(rig: &Rig, pages: usize) -> Arc<Anonymous> {
    let anon = Anonymous::new(rig.node.clone(), pages * PAGE_SIZE).unwrap();
    rig.map_anonymous(&anon);
    anon
}

#[test]
fn a_page_of_a_run_that_was_written_to_stays() {
    let left = Arc::new(AtomicUsize::new(usize::MAX));
    let rig = rig(&left, true);
    let anon = map(&rig, 512);
    let addr = |page: usize| anon.addresses().start + page * PAGE_SIZE;
    // Pages in a row, until a touch fills some beside its own.
    let mut touched = 0;
    while anon.resident_pages() < 100 {
        touched = anon.resident_pages();
        rig.write(addr(touched), &[1]).unwrap();
    }
    let (touched, resident) = (anon.resident_pages(), anon.resident_pages() - touched);
    assert!(resident > 8, "a run of {resident}");
    // Of the next run three get memory.
    left.store(3, Relaxed);
    let charged = rig.node.budget.charged();
    rig.write(addr(touched), &[2]).unwrap();
    assert_eq!(anon.resident_pages(), touched + 3);
    assert_eq!(rig.node.budget.charged(), charged + 3);
    assert_eq!(rig.touch(addr(touched)), Ok(2));
    assert_eq!(rig.touch(addr(touched) + AT), Ok(WRITTEN));
    let refused = rig.write(addr(touched + 3), &[3]);
    assert_eq!(refused, Err(FaultError::NoMemory));
    assert_eq!(anon.resident_pages(), touched + 3);
    assert_eq!(rig.node.budget.charged(), charged + 3);
    left.store(usize::MAX, Relaxed);
    rig.write(addr(touched + 3), &[3]).unwrap();
    rig.evict_all();
    assert_eq!(rig.touch(addr(touched)), Ok(2));
    assert_eq!(rig.touch(addr(touched) + AT), Ok(WRITTEN));
    assert_eq!(rig.touch(addr(touched + 3)), Ok(3));
    rig.unmap(anon.addresses());
    drop(anon);
    rig.finish();
}

#[test]
fn a_page_of_a_file_that_was_expected_to_be_written_to_and_was_stays() {
    let left = Arc::new(AtomicUsize::new(usize::MAX));
    let rig = rig(&left, true);
    let store = TestStore::with_queue(bytes(256), 4);
    let cache = rig.map_writable(&store);
    let addr = |page: usize| cache.addresses().start + page * PAGE_SIZE;
    // A writer in order, until pages are expected.
    let mut page = 0;
    while cache.dirty_pages() as usize <= page {
        rig.write(addr(page), &[1]).unwrap();
        page += 1;
    }
    let next = cache.dirty_pages() as usize;
    (page..next).for_each(|page| rig.write(addr(page), &[1]).unwrap());
    left.store(2, Relaxed);
    rig.write(addr(next), &[2]).unwrap();
    rig.write(addr(next + 1), &[2]).unwrap();
    let refused = rig.write(addr(next + 2), &[2]);
    assert_eq!(refused, Err(FaultError::NoMemory));
    assert_eq!(rig.touch(addr(next) + AT), Ok(WRITTEN));
    left.store(usize::MAX, Relaxed);
    rig.write(addr(next + 2), &[3]).unwrap();
    for page in next + 3..256 {
        assert_eq!(rig.touch(addr(page)), Ok(byte_at(0, bytes(page as u64))));
    }
    write_back(&cache, 0..256);
    rig.evict_all();
    let offset = |page| bytes(page as u64);
    assert_eq!(store.byte(offset(next) + AT as u64), WRITTEN);
    let written = [next - 1, next, next + 1, next + 2].map(|page| store.byte(offset(page)));
    assert_eq!(written, [1, 2, 2, 3]);
    assert_eq!(cache.dirty_pages(), 0);
    finish(rig, cache);
}

/// A zap is a TLB shootdown of all threads.
#[test]
fn whole_pages_that_were_not_all_written_are_zapped_once() {
    let (left, zaps) = (Arc::new(AtomicUsize::new(usize::MAX)), Arc::default());
    let rig = rig_with(&left, &zaps, true);
    let store = TestStore::new(bytes(256));
    let cache = rig.map_writable(&store);
    let start = cache.addresses().start;
    let (content, charged) = ([7; 8 * PAGE_SIZE], rig.node.budget.charged());
    // With and without other pages beneath the page table.
    for touched in [false, true] {
        if touched {
            rig.touch(start + 100 * PAGE_SIZE).unwrap();
        }
        left.store(3, Relaxed);
        let before = zaps.load(Relaxed);
        // SAFETY: the bytes can be read; the window is mapped.
        let written = unsafe { fault::write_whole(&cache, start, &raw const content[..]) };
        assert_eq!(written, 0);
        assert_eq!(zaps.load(Relaxed), before + 1);
        left.store(usize::MAX, Relaxed);
        assert_eq!(rig.touch(start), Ok(byte_at(0, 0)));
        rig.evict_all();
    }
    assert_eq!(rig.node.budget.charged(), charged);
    finish(rig, cache);
}

#[test]
fn a_page_of_a_private_copy_that_was_written_to_stays() {
    for can_protect in [true, false] {
        let left = Arc::new(AtomicUsize::new(usize::MAX));
        let rig = rig(&left, can_protect);
        let store = TestStore::with_queue(bytes(64), 4);
        let copy = private_copy(rig.node.clone(), 64 * PAGE_SIZE, &store, 0);
        let addr = |page: usize| copy.addresses().start + page * PAGE_SIZE;
        rig.map_anonymous(&copy);
        // In order: what comes next is read ahead, in folios of several pages.
        let mut page = 0;
        while copy.resident_pages() < page + 3 {
            assert_eq!(rig.touch(addr(page)), Ok(byte_at(0, bytes(page as u64))));
            page += 1;
        }
        let mut first = copy.resident_pages();
        left.store(1, Relaxed);
        while rig.touch(addr(first)).is_ok() {
            first += 1;
            assert!(first < 64, "a folio of several pages");
        }
        left.store(usize::MAX, Relaxed);
        let mut written = 0;
        for page in 0..64 {
            assert_eq!(rig.touch(addr(page)), Ok(byte_at(0, bytes(page as u64))));
            let other = byte_at(0, bytes(page as u64) + AT as u64);
            let shown = rig.touch(addr(page) + AT).unwrap();
            written += usize::from(shown == WRITTEN && other != WRITTEN);
            assert!(shown == other || shown == WRITTEN);
        }
        assert_eq!(written, usize::from(!can_protect));
        rig.unmap(copy.addresses());
        drop(copy);
        rig.finish();
    }
}
