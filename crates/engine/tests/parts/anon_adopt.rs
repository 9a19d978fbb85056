//! A child of fork takes over private memory, and its budget may have no room for that.

use softfault_engine::PAGE_SIZE;
use softfault_engine::anon::{Anonymous, NotShown};
use softfault_engine::cache::OnTruncate;
use softfault_engine::mm::Protection;
use softfault_oracle::{Rig, run_on};

/// More than two page tables have.
const PAGES: usize = 1300;

/// Memory that is given up is paid back as far as it was paid for, and no further.
#[test]
fn memory_that_does_not_fit_is_given_up() {
    // The windows of both are at the same address.
    assert!((0..1024).any(run_on), "a processor to run on");
    let mut adopted = Vec::new();
    for free in [0, 100, 600, 1100, PAGES as u64, 2 * PAGES as u64] {
        let parents = Rig::new(4096);
        let memory = Anonymous::new(parents.node.clone(), PAGES * PAGE_SIZE).unwrap();
        parents.map_anonymous(&memory);
        for page in 0..PAGES {
            let addr = memory.addresses().start + page * PAGE_SIZE;
            parents.write(addr, &[1]).unwrap();
        }
        let childs = Rig::new(4096);
        let (node, budget) = (&childs.node, &childs.node.budget);
        let before = budget.charged();
        let others = budget.limit() - before - free;
        let window = node.mmu.reserve(PAGES * PAGE_SIZE, Protection::ReadWrite);
        let window = window.unwrap();
        assert_eq!(window.addr, memory.addresses().start);
        assert!(budget.try_charge(others, 0));
        let child = Anonymous::adopt(node.clone(), &memory, window, None, OnTruncate::Error);
        match child {
            Ok(child) => {
                assert!(budget.charged() >= before + others + PAGES as u64);
                drop(child);
                adopted.push(free);
            }
            Err(error) => assert_eq!(error, NotShown::Budget),
        }
        budget.uncharge(others);
        assert_eq!((budget.charged(), node.charged_pages()), (before, before));
        childs.finish();
        // The parent is another process, and goes on with its own.
        core::mem::forget((memory, parents));
    }
    assert_eq!(adopted, [2 * PAGES as u64]);
}
