//! Looks at pages that nobody serves: none may wait, however faults arrive.

use super::{copy, page, reserve, without};
use crate::Faults;
use crate::uffd::UffdMmu;
use softfault_engine::PAGE_SIZE;
use softfault_engine::mmu::{Access, Mmu};
use std::ops::Range;
use std::slice::from_ref;

#[test]
fn missing_pages_are_seen_without_a_fault() {
    for faults in [Faults::Signals, Faults::Threads, Faults::Messages] {
        match UffdMmu::new(faults) {
            Ok(mmu) => looks(&mmu),
            Err(errno) => softfault_skip::skipped("messages", format_args!("errno {errno}")),
        }
    }
}

fn looks(mmu: &UffdMmu) {
    assert!(mmu.can_copy_out());
    let window = reserve(mmu, 3);
    let (mut out, other) = ([0_u8; PAGE_SIZE], [4_u8; PAGE_SIZE]);
    copy(mmu, &window, 1, 5, Access::Writable).unwrap();
    let mut copied = |at| {
        // SAFETY: a page to copy to.
        unsafe { mmu.copy_out(&window, page(&window, at), out.as_mut_ptr()) }
    };
    assert_eq!([0, 1, 2].map(&mut copied), [Ok(false), Ok(true), Ok(false)]);
    assert_eq!(out, [5; PAGE_SIZE]);
    assert_eq!(
        [0, 1, 2].map(|at| mmu.is_missing(page(&window, at))),
        [true, false, true]
    );
    let mut many = vec![0_u8; 3 * PAGE_SIZE];
    copy(mmu, &window, 0, 6, Access::Writable).unwrap();
    let mut copied = |pages: &[Range<usize>]| {
        let range = |pages: &Range<usize>| page(&window, pages.start)..page(&window, pages.end);
        let ranges: Vec<_> = pages.iter().map(range).collect();
        // SAFETY: as many pages to copy to as are there.
        unsafe { mmu.copy_out_all(&window, &ranges, many.as_mut_ptr()) }
    };
    match mmu.faults() {
        Faults::Messages => assert_eq!(copied(from_ref(&(0..2))), 0, "page by page"),
        _ => {
            assert_eq!(
                [
                    copied(&[2..3, 0..1]),
                    copied(&[0..1, 1..2]),
                    copied(from_ref(&(0..3)))
                ],
                [0, 2, 2]
            );
            assert!(
                many[..PAGE_SIZE] == [6; PAGE_SIZE]
                    && many[PAGE_SIZE..2 * PAGE_SIZE] == [5; PAGE_SIZE]
            );
        }
    }
    mmu.zap(from_ref(&(page(&window, 0)..page(&window, 1))));
    let mut almost = out;
    almost[PAGE_SIZE - 1] = 4;
    // SAFETY: pages to compare with.
    let same = |at, with: &[u8]| unsafe { mmu.is_same(&window, page(&window, at), with.as_ptr()) };
    assert!(same(1, &out));
    assert!(!same(1, &almost) && !same(1, &other) && !same(0, &out));
    // The first and the third page are missing, and the second is the same, or may be.
    let three = |second: &[u8]| [&other[..], second, &other[..]].concat();
    // SAFETY: three pages to compare with.
    let may_be = |with: &[u8]| unsafe { mmu.may_be_same(window.addr, 0b111, with.as_ptr()) };
    assert!(may_be(&three(&out)) & 0b10 != 0 && may_be(&three(&almost)) & 0b10 != 0);
    if mmu.faults() != Faults::Messages {
        assert_eq!((may_be(&three(&out)), may_be(&three(&other))), (0b10, 0));
    }
    // Pages that the program may not read are there all the same.
    // SAFETY: a window of the test's own.
    unsafe { libc::mprotect(window.addr as *mut _, window.bytes, libc::PROT_NONE) };
    assert!(mmu.is_missing(page(&window, 0)) && !mmu.is_missing(page(&window, 1)));
    // SAFETY: as above.
    unsafe { libc::madvise(window.addr as *mut _, window.bytes, libc::MADV_DONTNEED) };
    assert!(mmu.is_missing(page(&window, 1)));
    mmu.release(window);
}

/// The kernel's own mincore(2) says of such a page what it says of one that is not there.
#[test]
fn a_page_in_the_systems_swap_is_not_missing() {
    let swaps = std::fs::read_to_string("/proc/swaps").unwrap_or_default();
    if swaps.lines().count() < 2 {
        return softfault_skip::skipped("swap", "the machine has no swap of its own");
    }
    for faults in [Faults::Signals, Faults::Threads, Faults::Messages] {
        match UffdMmu::new(faults) {
            Ok(mmu) => [mmu, without(|_| {}, false)].iter().for_each(swapped),
            Err(errno) => softfault_skip::skipped("messages", format_args!("errno {errno}")),
        }
    }
}

fn swapped(mmu: &UffdMmu) {
    let window = reserve(mmu, 2);
    let mut out = [0_u8; PAGE_SIZE];
    let protect = |to| {
        // SAFETY: a window of the test's own.
        let answer = unsafe { libc::mprotect(window.addr as *mut _, window.bytes, to) };
        assert_eq!(answer, 0);
    };
    copy(mmu, &window, 0, 5, Access::Writable).unwrap();
    let swapped = (0..1000).any(|_| {
        // SAFETY: as above; fills the byte.
        unsafe {
            let mut there = 0;
            libc::madvise(window.addr as *mut _, window.bytes, libc::MADV_PAGEOUT);
            libc::mincore(window.addr as *mut _, PAGE_SIZE, &mut there) == 0 && there & 1 == 0
        }
    });
    if swapped {
        protect(libc::PROT_NONE);
        let is_missing = [0, 1].map(|at| mmu.is_missing(page(&window, at)));
        assert_eq!(is_missing, [false, true], "{:?}", mmu.faults());
        // SAFETY: a page to copy to.
        let copied = unsafe { mmu.copy_out(&window, page(&window, 0), out.as_mut_ptr()) };
        // Through /proc/self/mem a protection does not matter.
        match mmu.faults() {
            Faults::Messages => assert_eq!((copied, out[0]), (Ok(true), 5)),
            _ => assert_eq!(copied, Err(libc::EFAULT)),
        }
        protect(libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: a page of the window.
        let byte = unsafe { (window.addr as *const u8).read_volatile() };
        assert_eq!(byte, 5);
    } else {
        softfault_skip::skipped("swap", "the kernel swaps no page out");
    }
    mmu.release(window);
}
