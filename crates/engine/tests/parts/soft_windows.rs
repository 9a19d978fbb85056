//! The addresses of windows over soft page tables, and the tables above them.

use crate::soft_mmu::{GIB, byte, reserve};
use softfault_engine::PAGE_SIZE;
use softfault_engine::mmu::{Mmu, SoftMmu};
use softfault_oracle::run_on;

/// The tables above an arena's first place stay when its window goes. They are counted while windows further up need them.
#[test]
fn tables_below_the_first_small_window_are_not_counted() {
    let mmu = SoftMmu::new();
    // In one processor's arena, of which the first takes a GiB.
    assert!((0..1024).any(run_on), "a processor to run on");
    let windows = [(); 2].map(|()| reserve(&mmu, GIB));
    for window in &windows {
        mmu.fill(window, window.addr, PAGE_SIZE).unwrap();
    }
    let [below, above] = windows;
    assert_eq!(mmu.table_pages(), 1 + 1 + 2 + 2);
    mmu.release(below);
    assert_eq!(mmu.table_pages(), 1 + 1 + 1 + 1);
    mmu.release(above);
    assert_eq!(mmu.table_pages(), 1);
}

/// Addresses that no part of the windows has.
#[test]
fn there_are_no_windows_past_the_end() {
    let mmu = SoftMmu::new();
    for addr in [(1 << 47) - 1, 1 << 47, usize::MAX] {
        assert_eq!(byte(&mmu, addr), None);
    }
}
