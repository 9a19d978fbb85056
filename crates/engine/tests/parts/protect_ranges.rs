//! Which ranges of private memory are protected before their pages are written to swap.

use crate::over_soft::{handed_on_but_memory, pages_handed_on};
use softfault_engine::PAGE_SIZE;
use softfault_engine::anon::Anonymous;
use softfault_engine::mm::Protection;
use softfault_engine::mmu::{
    Access, Mmu, MmuError, PartialMove, Place, Reservation, SoftMmu, Zeroed,
};
use softfault_oracle::{Rig, TestSwap};
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// The pages of each range, one after the other.
type Protected = Arc<Mutex<Vec<usize>>>;

/// Page tables that note what is protected.
struct Noting {
    mmu: Arc<SoftMmu>,
    protected: Protected,
}

impl Mmu for Noting {
    handed_on_but_memory!();
    pages_handed_on!();

    unsafe fn copy(&self, to: Place<'_>, of: *const [u8], access: Access) -> Result<(), MmuError> {
        // SAFETY: the caller's promise.
        unsafe { self.mmu.copy(to, of, access) }
    }

    fn fill(&self, window: &Reservation, addr: usize, bytes: usize) -> Result<(), MmuError> {
        self.mmu.fill(window, addr, bytes)
    }

    fn protect(&self, ranges: &[Range<usize>]) {
        let pages = ranges.iter().map(|range| range.len() / PAGE_SIZE);
        self.protected.lock().unwrap().extend(pages);
        self.mmu.protect(ranges);
    }

    fn zap(&self, ranges: &[Range<usize>]) {
        self.mmu.zap(ranges);
    }
}

/// Failed before: two pages and all that is between them were one range, however far apart they are. Where a part of such a range is
/// not the window's any more, its pages are protected one by one.
#[test]
fn pages_far_apart_are_not_protected_as_one_range() {
    const PAGES: usize = 1 << 16;
    let protected = Protected::default();
    let rig = Rig::over(4096, &TestSwap::new(64), |mmu| Noting {
        mmu,
        protected: protected.clone(),
    });
    let anon = Anonymous::new(rig.node.clone(), PAGES * PAGE_SIZE).unwrap();
    rig.map_anonymous(&anon);
    for page in [0, 10, 11, PAGES - 1] {
        let addr = anon.addresses().start + page * PAGE_SIZE;
        rig.write(addr, &[1]).unwrap();
    }
    rig.space.page_out(anon.addresses()).unwrap();
    assert_eq!(*protected.lock().unwrap(), [12, 1]);
    rig.unmap(anon.addresses());
    drop(anon);
    rig.finish();
}
