//! A window that was given back is as good as new.

use super::served::serve;
use super::{copy, page, present, real, reserve, write};
use softfault_engine::mmu::{Access, Mmu, Zeroed};
use std::slice::from_ref;

#[test]
fn a_spare_window_remembers_no_protection() {
    let mmu = real();
    let window = reserve(&mmu, 16);
    let addr = window.addr;
    for at in 0..8 {
        copy(&mmu, &window, at, 1, Access::ReadOnly).unwrap();
    }
    for at in 8..12 {
        let zeroed = mmu.zero_page(&window, page(&window, at));
        assert_eq!(zeroed, Ok(Zeroed::Nothing));
    }
    mmu.protect(from_ref(&window.range()));
    mmu.release(window);
    let window = reserve(&mmu, 16);
    assert_eq!(window.addr, addr, "the spare one");
    assert!(!present(&window).contains(&true));
    let faults = serve(&window, |_, _| ());
    for at in 0..16 {
        copy(&mmu, &window, at, 2, Access::Writable).unwrap();
        write(&window, at, 3);
    }
    assert_eq!(faults.take(), (0, 0));
    mmu.protect(from_ref(&window.range()));
    mmu.make_writable(&window, page(&window, 3)).unwrap();
    write(&window, 3, 4);
    assert_eq!(faults.take(), (0, 0), "and it can be protected again");
}
