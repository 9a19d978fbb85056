//! A huge page is moved, protected, and split.

use super::{page, real, resident_kb};
use crate::frames::AnonymousFrames;
use softfault_engine::PAGE_SIZE;
use softfault_engine::cache::FrameMemory;
use softfault_engine::mmu::{Mmu, Moved, TABLE_SPAN};
use std::slice::from_ref;

#[test]
fn a_row_is_moved_protected_and_split() {
    let mmu = real();
    let Some(window) = mmu.reserve_for_moves(TABLE_SPAN) else {
        return softfault_skip::skipped("kernel", "no UFFDIO_MOVE");
    };
    let pool = AnonymousFrames::new(TABLE_SPAN);
    let chunk = pool.provide(0).unwrap();
    // SAFETY: a chunk of our own.
    unsafe { chunk.as_ptr().write_bytes(7, TABLE_SPAN) };
    // SAFETY: as above, and nobody uses it.
    let moved = unsafe { mmu.move_in((&window, window.addr), chunk.as_ptr()) };
    if moved != Moved::All {
        return softfault_skip::skipped("kernel", format_args!("no huge page: {moved:?}"));
    }
    let all = window.addr..window.addr + TABLE_SPAN;
    let there = resident_kb(&window);
    assert_eq!(there, TABLE_SPAN >> 10);
    for at in 0..TABLE_SPAN / PAGE_SIZE {
        // SAFETY: a page that is there.
        let byte = unsafe { (page(&window, at) as *const u8).read_volatile() };
        assert_eq!(byte, 7);
    }
    let part = page(&window, 100)..page(&window, 116);
    assert!(mmu.split(&all, part.start));
    mmu.zap(from_ref(&part));
    assert_eq!(resident_kb(&window), (TABLE_SPAN - part.len()) >> 10);
    mmu.zap(from_ref(&all));
    pool.discard(0, chunk);
    mmu.release(window);
}

/// Memory without huge pages is left where it is.
#[test]
fn small_pages_are_not_moved() {
    let mmu = real();
    let Some(window) = mmu.reserve_for_moves(TABLE_SPAN) else {
        return softfault_skip::skipped("kernel", "no UFFDIO_MOVE");
    };
    let pool = AnonymousFrames::new(TABLE_SPAN);
    let chunk = pool.provide(0).unwrap();
    let advice = libc::MADV_NOHUGEPAGE;
    // SAFETY: a chunk of our own.
    unsafe {
        libc::madvise(chunk.as_ptr().cast(), TABLE_SPAN, advice);
        chunk.as_ptr().write_bytes(7, TABLE_SPAN);
    }
    // SAFETY: as above, and nobody uses it.
    let moved = unsafe { mmu.move_in((&window, window.addr), chunk.as_ptr()) };
    assert_eq!(moved, Moved::NotNow);
    // SAFETY: still ours.
    assert_eq!(unsafe { chunk.as_ptr().read() }, 7);
    pool.discard(0, chunk);
    mmu.release(window);
}
