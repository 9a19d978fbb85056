//! Moved pages keep their bytes, and missing ones are missing.

use super::served::serve;
use super::{copy, of, page, present, read, real, reserve, resident_kb, without, write};
use crate::table::in_child::forked;
use crate::uffd::{UffdMmu, abi};
use softfault_engine::PAGE_SIZE;
use softfault_engine::mm::Protection;
use softfault_engine::mmu::{Access, Mmu, Reservation, Zeroed};
use std::slice::from_ref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

const PAGES: usize = 64;
/// Pages of each kind in a row.
const KIND: usize = 4;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Memory,
    Protected,
    Zeros,
    Missing,
}

fn kind(at: usize) -> Kind {
    [Kind::Memory, Kind::Protected, Kind::Zeros, Kind::Missing][at / KIND % 4]
}

fn byte(at: usize) -> u8 {
    100 + at as u8
}

/// A window with pages of all kinds.
fn filled(mmu: &UffdMmu) -> Reservation {
    let window = reserve(mmu, PAGES);
    for at in 0..PAGES {
        match kind(at) {
            Kind::Memory => copy(mmu, &window, at, byte(at), Access::Writable).unwrap(),
            Kind::Protected => copy(mmu, &window, at, byte(at), Access::ReadOnly).unwrap(),
            Kind::Zeros => {
                mmu.zero_page(&window, page(&window, at)).unwrap();
            }
            Kind::Missing => {}
        }
    }
    window
}

/// Moves all, to a place `shift` pages on, and looks at the result. Zeros that
/// cost memory before cost it afterwards, and no others.
fn moves(mmu: UffdMmu, zeros: Zeroed, shift: usize, before: impl FnOnce(&Reservation)) {
    let mmu = Arc::new(mmu);
    let from = filled(&mmu);
    let to = reserve(&mmu, PAGES + shift);
    let faults = {
        let (mmu, to) = (mmu.clone(), to.clone());
        serve(&to.clone(), move |addr, _| {
            mmu.make_writable(&to, addr).unwrap()
        })
    };
    before(&from);
    let cost = resident_kb(&from);
    let there = present(&from);
    let target = page(&to, shift);
    mmu.move_pages((&from, from.addr), (&to, target), PAGES * PAGE_SIZE)
        .unwrap();
    assert!(present(&from).iter().all(|&present| !present));
    assert!(!present(&to)[..shift].iter().any(|&present| present));
    assert_eq!(present(&to)[shift..], there);
    assert_eq!(resident_kb(&to), cost);
    for at in 0..PAGES {
        let kind = kind(at);
        if kind == Kind::Missing {
            continue;
        }
        let expected = if kind == Kind::Zeros { 0 } else { of(byte(at)) };
        assert_eq!(read(&to, shift + at), expected, "page {at}");
        assert_eq!(faults.take(), (0, 0));
        write(&to, shift + at, 1);
        let (reads, writes) = faults.take();
        let may_write = kind == Kind::Memory || kind == Kind::Zeros && zeros == Zeroed::Memory;
        assert!(
            reads == 0 && (writes == 1 || writes == 0 && may_write),
            "page {at}"
        );
        write(&to, shift + at, 2);
        assert_eq!((faults.take(), read(&to, shift + at)), ((0, 0), 2));
    }
}

#[test]
fn by_the_kernel() {
    moves(real(), Zeroed::Nothing, 0, |_| ());
    moves(real(), Zeroed::Nothing, 3, |_| ());
}

#[test]
fn by_copies() {
    let older = || without(|offers| offers.moves = false, true);
    moves(older(), Zeroed::Nothing, 0, |_| ());
    moves(older(), Zeroed::Nothing, 3, |_| ());
    moves(
        without(|offers| offers.moves = false, false),
        Zeroed::Memory,
        1,
        |_| (),
    );
}

#[test]
fn pages_that_a_child_shared_are_copied() {
    moves(real(), Zeroed::Nothing, 1, |window| {
        // SAFETY: advice about a mapping.
        unsafe { libc::madvise(window.addr as *mut _, window.bytes, libc::MADV_DOFORK) };
        forked(|| 0);
        // Those are the parent's own again, and move.
        write(window, 0, of(byte(0)));
        write(window, 2, of(byte(2)));
    });
}

#[test]
fn windows_of_any_descriptor() {
    let mmu = real();
    for _ in 0..40 {
        let [from, to] = [(); 2].map(|()| reserve(&mmu, 128 << 8));
        copy(&mmu, &from, 1, 9, Access::Writable).unwrap();
        mmu.move_pages((&from, from.addr), (&to, to.addr), from.bytes)
            .unwrap();
        assert_eq!(read(&to, 1), of(9));
        // Large ones are not kept: descriptors take turns.
        mmu.release(from);
        mmu.release(to);
    }
}

#[test]
fn pages_that_are_only_read_move_too() {
    let mmu = real();
    let [from, to] = [(); 2].map(|()| mmu.reserve(PAGES * PAGE_SIZE, Protection::Read).unwrap());
    copy(&mmu, &from, 0, 5, Access::ReadOnly).unwrap();
    mmu.zero(&from, page(&from, 20), PAGE_SIZE).unwrap();
    mmu.move_pages((&from, from.addr), (&to, to.addr), from.bytes)
        .unwrap();
    assert_eq!((read(&to, 0), read(&to, 20)), (of(5), 0));
    let there = present(&to).iter().filter(|&&present| present).count();
    assert_eq!((there, resident_kb(&to)), (2, PAGE_SIZE / 1024));
}

#[test]
fn a_move_that_fails_leaves_each_page_in_one_place() {
    for moves in [true, false] {
        let mmu = without(|offers| offers.moves = moves, true);
        let from = filled(&mmu);
        let to = reserve(&mmu, PAGES);
        // Half-way there is no window any more.
        let end = page(&to, PAGES / 2 + 1);
        // SAFETY: the end of a window that nobody uses.
        unsafe { libc::munmap(end as *mut _, to.range().end - end) };
        let moved = mmu.move_pages((&from, from.addr), (&to, to.addr), PAGES * PAGE_SIZE);
        let moved = moved.unwrap_err().moved / PAGE_SIZE;
        let rest = Reservation {
            bytes: end - to.addr,
            ..to.clone()
        };
        let mut arrived = present(&rest);
        arrived.resize(PAGES, false);
        for (at, (&left, &arrived)) in present(&from).iter().zip(&arrived).enumerate() {
            assert_eq!(kind(at) != Kind::Missing, left != arrived, "page {at}");
            assert!(!arrived || at < moved, "page {at}: {moved}");
            assert!(!left || at >= moved, "page {at}: {moved}");
            assert!(!(left && arrived), "page {at}");
            if left && kind(at) == Kind::Memory {
                assert_eq!(read(&from, at), of(byte(at)));
            }
        }
        mmu.zap(from_ref(&from.range()));
    }
}

/// The entry of the page changes all the time, so that the kernel has to begin the move once more now and then. Only a kernel that
/// answers EEXIST then (Linux 6.18) can show the difference.
#[test]
fn a_page_that_was_moved_counts_as_moved() {
    let mmu = real();
    if !mmu.offers().moves || !mmu.can_protect() {
        return softfault_skip::skipped("kernel", "UFFDIO_MOVE and write protection: Linux 6.8");
    }
    let from = reserve(&mmu, 1);
    // The kernel moves pages between windows of one descriptor.
    let mut others = std::iter::repeat_with(|| reserve(&mmu, 1));
    let to = others.find(|to| to.token == from.token).unwrap();
    let ends = AtomicBool::new(false);
    let wrong = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(Relaxed) {
                abi::protect(mmu.of(&from), &from.range()).unwrap();
                abi::unprotect(mmu.of(&from), &from.range()).unwrap();
            }
        });
        let wrong = (0..50_000).find_map(|_| {
            let copied = copy(&mmu, &from, 0, 7, Access::Writable);
            let (moved, errno) = mmu.move_away(&from, from.range(), to.addr);
            let there = [&from, &to].map(|window| present(window)[0]);
            mmu.zap(&[from.range(), to.range()]);
            let is_wrong = copied.is_err() || there != [moved == 0, moved > 0];
            is_wrong.then_some((copied, there, moved, errno))
        });
        ends.store(true, Relaxed);
        wrong
    });
    assert_eq!(
        wrong, None,
        "copied, is it in the old place and the new one, bytes moved, errno"
    );
}
