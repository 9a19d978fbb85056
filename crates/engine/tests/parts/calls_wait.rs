//! Page tables whose pages no system call may read, since it would wait for one that the program has thrown away: pages
//! are copied before they are written, and missing pages are left out.

use crate::over_soft::{handed_on, is_there, throw_away};
use crate::writable::{bytes, finish};
use softfault_engine::PAGE_SIZE;
use softfault_engine::anon::Anonymous;
use softfault_engine::mm::Protection;
use softfault_engine::mmu::{
    Access, Mmu, MmuError, PartialMove, Place, Reservation, SoftMmu, Zeroed,
};
use softfault_oracle::{Rig, TestStore, TestSwap, byte_at};
use std::ops::Range;
use std::sync::Arc;

/// Page tables that hand no page to a call.
struct Waiting {
    mmu: Arc<SoftMmu>,
    copies: bool,
}

impl Mmu for Waiting {
    handed_on!();
    fn calls_wait(&self) -> bool {
        self.copies
    }

    fn can_copy_out(&self) -> bool {
        self.copies
    }

    unsafe fn copy_out(&self, _: &Reservation, addr: usize, to: *mut u8) -> Result<bool, i32> {
        // SAFETY: the caller's promise.
        Ok(unsafe { self.mmu.read(addr, to, PAGE_SIZE) })
    }

    unsafe fn is_same(&self, window: &Reservation, addr: usize, page: *const u8) -> bool {
        // SAFETY: the caller's promise.
        !self.is_missing(addr) && unsafe { self.mmu.is_same(window, addr, page) }
    }

    fn bytes(&self, window: &Reservation, addr: usize) -> *const u8 {
        assert!(!self.copies, "a call would wait for {addr:#x}");
        self.mmu.bytes(window, addr)
    }

    fn is_missing(&self, addr: usize) -> bool {
        !is_there(&self.mmu, addr)
    }

    fn move_pages(&self, from: Place<'_>, to: Place<'_>, bytes: usize) -> Result<(), PartialMove> {
        self.mmu.move_pages(from, to, bytes)
    }
}

fn rig(swap: &Arc<TestSwap>, copies: bool) -> Rig {
    Rig::over(2048, swap, |mmu| Waiting { mmu, copies })
}

#[test]
fn pages_for_swap_are_copied() {
    const PAGES: usize = 100;
    let swap = TestSwap::new(1000);
    let rig = rig(&swap, true);
    let anon = Anonymous::new(rig.node.clone(), PAGES * PAGE_SIZE).unwrap();
    let start = anon.addresses().start;
    rig.map_anonymous(&anon);
    for page in 0..PAGES {
        rig.write(start + page * PAGE_SIZE, &[page as u8 + 1])
            .unwrap();
    }
    let gone = [0..3, 30..40, 97..100];
    for gone in &gone {
        throw_away(&rig, start, gone.clone());
    }
    rig.evict_all();
    let slots = rig.node.swap.as_ref().unwrap().slots.used();
    assert_eq!((anon.resident_pages(), slots), (0, 84));
    for page in 0..PAGES {
        let kept = !gone.iter().any(|gone| gone.contains(&page));
        let byte = u8::from(kept) * (page as u8 + 1);
        assert_eq!(rig.touch(start + page * PAGE_SIZE), Ok(byte), "page {page}");
    }
    rig.unmap(anon.addresses());
    drop(anon);
    rig.finish();
}

#[test]
fn pages_evicted_to_a_file_are_copied() {
    let rig = rig(&TestSwap::new(8), true);
    let store = TestStore::new(bytes(256));
    let cache = rig.map_writable(&store);
    let start = cache.addresses().start;
    // Not in order: nothing is expected.
    let written = (0..256).step_by(3);
    for page in written.clone().rev() {
        rig.write(start + page * PAGE_SIZE, &[1]).unwrap();
    }
    throw_away(&rig, start, 100..140);
    rig.evict_all();
    assert_eq!((cache.dirty_pages(), cache.folio_count()), (0, 0));
    let kept = written.filter(|page| !(100..140).contains(page));
    assert!(store.writes().into_iter().eq(kept.map(|page| page as u64)));
    for page in [102, 120, 138] {
        assert_eq!(
            rig.touch(start + page * PAGE_SIZE),
            Ok(byte_at(0, bytes(page as u64))),
            "as the file has it"
        );
    }
    finish(rig, cache);
}

/// Where it could not be seen in the end which pages were written to, none is mapped to be written to before its first write.
#[test]
fn nothing_is_expected_where_nothing_is_copied() {
    let rig = rig(&TestSwap::new(8), false);
    let store = TestStore::with_queue(bytes(256), 4);
    let cache = rig.map_writable(&store);
    let start = cache.addresses().start;
    for page in 0..100 {
        rig.write(start + page * PAGE_SIZE, &[page as u8 | 128])
            .unwrap();
        assert_eq!(cache.dirty_pages(), page as u64 + 1);
    }
    rig.evict_all();
    assert!(store.writes().into_iter().eq(0..100));
    finish(rig, cache);
}
