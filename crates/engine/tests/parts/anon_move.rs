//! Private memory that moves to a longer window: bytes, states, slots and
//! charges.

use crate::failing::{Failing, NEVER};
use softfault_engine::PAGE_SIZE;
use softfault_engine::anon::{Anonymous, PageState};
use softfault_engine::budget::Budget;
use softfault_engine::cache::{Node, NodeOptions};
use softfault_engine::fault::{self, NeverInterrupted, Populated};
use softfault_engine::mm::{
    AddressSpace, Advice, Attributes, Backing, MmError, MoveError, Protection, VmaSlabs,
};
use softfault_engine::mmu::{MmuError, SoftMmu, TABLE_SPAN};
use softfault_engine::policy::Policies;
use softfault_oracle::{Rig, Still, TestFrames, TestSwap};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// More than a page table has.
const PAGES: usize = 1300;

fn rig() -> Rig {
    let swap = TestSwap::with_queue(4 * PAGES, 4);
    Rig::with_swap(4096, Policies::default(), &swap)
}

fn map(rig: &Rig) -> Arc<Anonymous> {
    let anon = Anonymous::new(rig.node.clone(), PAGES * PAGE_SIZE).unwrap();
    rig.map_anonymous(&anon);
    anon
}

fn at(anon: &Anonymous, pages: Range<usize>) -> Range<usize> {
    let start = anon.addresses().start;
    start + pages.start * PAGE_SIZE..start + pages.end * PAGE_SIZE
}

fn slots(rig: &Rig) -> u32 {
    rig.node.swap.as_ref().unwrap().slots.used()
}

/// Pages of every kind: the expected state of each, and its byte.
fn fill(rig: &Rig, anon: &Anonymous) -> Vec<u8> {
    let byte = |page: usize| match page % 7 {
        // Zeros without memory, and nothing at all.
        5 | 6 => 0,
        _ => (page % 250) as u8 + 1,
    };
    let start = |page: usize| at(anon, page..page + 1).start;
    for page in (0..PAGES).filter(|&page| byte(page) != 0) {
        rig.write(start(page), &[byte(page)]).unwrap();
    }
    let pages = |from: usize| (from..PAGES).step_by(7);
    // In swap, and back from there so late that they come clean.
    for page in pages(0).chain(pages(1)) {
        rig.space.page_out(at(anon, page..page + 1)).unwrap();
    }
    let other = map(rig);
    for _ in 0..4 * 4096 / PAGES + 2 {
        for page in 0..PAGES {
            rig.write(at(&other, page..page + 1).start, &[1]).unwrap();
        }
        rig.space.page_out(other.addresses()).unwrap();
    }
    rig.unmap(other.addresses());
    for page in pages(1).chain(pages(5)) {
        rig.touch(start(page)).unwrap();
    }
    for page in pages(2).step_by(3) {
        let range = at(anon, page..page + 1);
        let locked = fault::lock(&rig.space, range, true, &NeverInterrupted);
        assert_eq!(locked, Populated::Done);
    }
    (0..PAGES).map(byte).collect()
}

fn states(anon: &Anonymous) -> Vec<PageState> {
    let start = anon.addresses().start;
    let state = |page: usize| anon.page_state(start + page * PAGE_SIZE);
    (0..PAGES).map(state).collect()
}

#[track_caller]
fn check(rig: &Rig, anon: &Anonymous, bytes: &[u8]) {
    for (page, &byte) in bytes.iter().enumerate() {
        let start = at(anon, page..page + 1).start;
        let mut found = [0; 2];
        rig.read(start, &mut found).unwrap();
        assert_eq!(found, [byte, 0], "page {page}");
    }
}

fn unlock_all(rig: &Rig, anon: &Anonymous) {
    fault::unlock(&rig.space, at(anon, 0..PAGES));
}

/// Moves the mapping of `from` up to an address.
fn move_to(
    space: &AddressSpace,
    (from, end): (&Arc<Anonymous>, usize),
    to: &Arc<Anonymous>,
    bytes: usize,
) -> Result<(), MoveError> {
    let (old, new) = (from.addresses().start, to.addresses().start);
    let (from, to) = (from.clone().into(), to.clone().into());
    space.move_to((&from, old..end), (&to, new..new + bytes))
}

#[test]
fn each_page_is_unchanged() {
    let rig = rig();
    let before = rig.node.budget.charged();
    let old = map(&rig);
    let bytes = fill(&rig, &old);
    let advised = rig.space.madvise(at(&old, 100..700), Advice::Random);
    advised.unwrap();
    let (was, used, vmas) = (states(&old), slots(&rig), rig.space.map_count());
    assert!(was.iter().any(|state| state.is_zero()));
    assert!(was.iter().any(|state| state.is_clean() && !state.is_zero()));
    assert!(was.iter().any(|state| state.is_swapped()));
    assert!(was.iter().any(|state| state.stays()));
    let (charged, residents) = (rig.node.budget.charged(), old.resident_pages());
    let present = rig.mmu.present_pages();

    let new = old.longer(2 * PAGES * PAGE_SIZE).unwrap();
    let moved = (2 * PAGES - 5) * PAGE_SIZE;
    let end = old.addresses().end;
    move_to(&rig.space, (&old, end), &new, moved).unwrap();
    assert_eq!(states(&new), was);
    assert_eq!(states(&old), [PageState::ABSENT; PAGES]);
    assert_eq!((old.resident_pages(), new.resident_pages()), (0, residents));
    assert_eq!((old.swap_slots(), slots(&rig)), (0, used));
    assert_eq!(rig.mmu.present_pages(), present);
    assert_eq!(rig.space.map_count(), vmas);
    // Tables of the old window are paid back with it, and nobody has it any more.
    assert!(Anonymous::is_unused(&old));
    drop(old);
    assert_eq!(rig.node.budget.charged(), charged);

    check(&rig, &new, &bytes);
    let last = new.addresses().start + moved - 1;
    assert_eq!(rig.touch(last), Ok(0));
    assert!(rig.touch(last + 1).is_err());
    rig.evict_all();
    let stay = |anon: &Anonymous| anon.count_pages(at(anon, 0..PAGES), |state| state.stays());
    assert_eq!(stay(&new), was.iter().filter(|state| state.stays()).count());
    check(&rig, &new, &bytes);
    for page in 0..PAGES {
        rig.write(at(&new, page..page + 1).start, &[9]).unwrap();
    }
    check(&rig, &new, &[9; PAGES]);
    unlock_all(&rig, &new);
    rig.unmap(new.addresses());
    drop(new);
    assert!(rig.node.budget.charged() <= before + 8, "words of slots");
    rig.finish();
}

#[test]
fn a_map_without_room_or_with_a_hole_stays_in_place() {
    let rig = rig();
    let old = map(&rig);
    let bytes = fill(&rig, &old);
    let new = old.longer(2 * PAGES * PAGE_SIZE).unwrap();
    let end = old.addresses().end;
    // All that could go is locked.
    let locked = fault::lock(&rig.space, old.addresses(), true, &NeverInterrupted);
    assert_eq!(locked, Populated::Done);
    let was = states(&old);
    let mut taken = 0;
    while rig.node.budget.try_charge(1, 0) {
        taken += 1;
    }
    let refused = move_to(&rig.space, (&old, end), &new, PAGES * PAGE_SIZE);
    assert_eq!(refused, Err(MoveError::Budget));
    assert_eq!(states(&old), was);
    assert_eq!(new.resident_pages(), 0);
    rig.node.budget.uncharge(taken);
    check(&rig, &old, &bytes);

    let beyond = old.longer(PAGES * PAGE_SIZE).unwrap();
    for (end, bytes, error) in [
        (end, (PAGES - 1) * PAGE_SIZE, MmError::Overflow),
        (end, (PAGES + 1) * PAGE_SIZE, MmError::Overflow),
        (end - 10 * PAGE_SIZE, PAGES * PAGE_SIZE, MmError::Unmapped),
    ] {
        let refused = move_to(&rig.space, (&old, end), &beyond, bytes);
        assert_eq!(refused, Err(MoveError::Mappings(error)));
    }
    check(&rig, &old, &bytes);
    unlock_all(&rig, &old);
    drop((new, beyond, old));
    rig.finish();
}

/// Whatever is left of the budget: all page tables of the new window are paid for, or none. Nothing can be evicted.
#[test]
fn a_move_without_memory_for_all_tables_is_refused() {
    const SPANS: usize = 16;
    const SPAN: usize = TABLE_SPAN / PAGE_SIZE;
    let rig = rig();
    let mut home = Anonymous::new(rig.node.clone(), SPANS * TABLE_SPAN).unwrap();
    rig.map_anonymous(&home);
    for span in 0..SPANS {
        let page = at(&home, span * SPAN..span * SPAN + 1);
        rig.write(page.start, &[span as u8 + 1]).unwrap();
        let locked = fault::lock(&rig.space, page, true, &NeverInterrupted);
        assert_eq!(locked, Populated::Done);
    }
    let (mut moved, mut refused) = (0, 0);
    for free in 60..140 {
        let new = home.longer(2 * SPANS * TABLE_SPAN).unwrap();
        let mut taken = 0;
        while rig.node.budget.try_charge(1, free) {
            taken += 1;
        }
        let end = home.addresses().start + SPANS * TABLE_SPAN;
        let answer = move_to(&rig.space, (&home, end), &new, SPANS * TABLE_SPAN);
        rig.node.budget.uncharge(taken);
        match answer {
            Ok(()) => {
                moved += 1;
                home = new;
            }
            Err(error) => {
                assert_eq!(error, MoveError::Budget, "{free} pages");
                refused += 1;
            }
        }
        for span in 0..SPANS {
            let mut found = [0];
            rig.read(at(&home, span * SPAN..span * SPAN + 1).start, &mut found)
                .unwrap();
            assert_eq!(found, [span as u8 + 1], "{free} pages, span {span}");
        }
    }
    assert!(moved > 0 && refused > 0, "{moved} moved, {refused} refused");
    fault::unlock(&rig.space, at(&home, 0..SPANS * SPAN));
    rig.unmap(at(&home, 0..SPANS * SPAN));
    drop(home);
    rig.finish();
}

/// A move that ends somewhere in the middle: all goes back.
#[test]
fn pages_that_cannot_be_moved_go_back() {
    let mmu = Arc::new(SoftMmu::new());
    let failing = Arc::new(Failing {
        mmu: mmu.clone(),
        left: AtomicUsize::new(NEVER),
        in_vain: AtomicUsize::new(0),
    });
    let frames = TestFrames::new(1 << 10);
    let (tables, clock) = (failing.clone(), Arc::new(Still));
    let (budget, options) = (Budget::new(2048), NodeOptions::default());
    let node = Node::new(budget, tables, frames, clock.clone(), options).unwrap();
    let before = node.budget.charged();
    let space = AddressSpace::new(VmaSlabs::new(64), clock).unwrap();
    let mut core = mmu.core().unwrap();

    let mut home = Anonymous::new(node.clone(), PAGES * PAGE_SIZE).unwrap();
    let attributes = Attributes {
        backing: Backing::from(home.clone()),
        protection: Protection::ReadWrite,
        ..Attributes::default()
    };
    space.mmap(home.addresses(), attributes).unwrap();
    let mut bytes = [0_u8; PAGES];
    let write = |home: &Anonymous, core: &mut _, bytes: &mut [u8], step: usize| {
        for page in (0..PAGES).step_by(step) {
            bytes[page] = bytes[page].wrapping_add(step as u8);
            let start = at(home, page..page + 1).start;
            fault::write_at(core, &space, start, &[bytes[page]], &NeverInterrupted).unwrap();
        }
    };
    write(&home, &mut core, &mut bytes, 2);
    let (mut failed, mut went) = (0, 0);
    for left in [0, 1, 300, 512, 600, 1023, 1024, 1200, 1299, 1300, 5000] {
        let was = states(&home);
        let charged = node.budget.charged();
        let new = home.longer(2 * PAGES * PAGE_SIZE).unwrap();
        failing.left.store(left, Ordering::Relaxed);
        let end = home.addresses().start + PAGES * PAGE_SIZE;
        let moved = move_to(&space, (&home, end), &new, PAGES * PAGE_SIZE);
        match moved {
            Ok(()) => {
                went += 1;
                home = new;
            }
            Err(error) => {
                assert_eq!(error, MoveError::Mmu(MmuError::NoMemory));
                failed += 1;
                assert_eq!(new.resident_pages(), 0);
                drop(new);
                assert_eq!(node.budget.charged(), charged);
            }
        }
        assert_eq!(states(&home), was);
        for (page, &byte) in bytes.iter().enumerate() {
            let (start, mut found) = (at(&home, page..page + 1).start, [0]);
            fault::read_at(&mut core, &space, start, &mut found, &NeverInterrupted).unwrap();
            assert_eq!(found, [byte], "page {page}");
        }
        write(&home, &mut core, &mut bytes, 9);
    }
    assert_eq!((failed, went), (9, 2));
    space.exit(|_, _| {});
    drop(home);
    assert_eq!(failing.in_vain.load(Ordering::Relaxed), 0);
    assert_eq!(mmu.present_pages(), 0);
    assert_eq!(node.budget.charged(), before);
}

/// Failed before: pages that had moved and gone back stayed protected, and a system call on a locked one would have failed.
#[test]
fn locked_pages_are_writable_after_a_move_that_failed() {
    let rig = Rig::over(4096, &TestSwap::new(8), |mmu| Failing {
        mmu,
        left: AtomicUsize::new(700),
        in_vain: AtomicUsize::new(0),
    });
    let old = map(&rig);
    let locked = at(&old, 0..800);
    let done = fault::lock(&rig.space, locked.clone(), true, &NeverInterrupted);
    assert_eq!(done, Populated::Done);
    let new = old.longer(PAGES * PAGE_SIZE).unwrap();
    let end = old.addresses().end;
    let moved = move_to(&rig.space, (&old, end), &new, PAGES * PAGE_SIZE);
    assert_eq!(moved, Err(MoveError::Mmu(MmuError::NoMemory)));
    drop(new);
    for start in locked.step_by(PAGE_SIZE) {
        rig.write(start, &[1]).unwrap();
    }
    // Of writes to protected pages.
    let faults = rig.node.swap.as_ref().unwrap().stats.write_faults.get();
    assert_eq!(faults, 0);
    unlock_all(&rig, &old);
    rig.unmap(old.addresses());
    drop(old);
    rig.finish();
}

/// A thread that has all batches, and waits for the folios of pages that are read.
#[test]
fn read_ahead_waits_for_no_batch() {
    // So much that read-ahead has a share of it.
    let swap = TestSwap::with_queue(16 * PAGES, 256);
    let rig = Rig::with_swap(12 * PAGES as u64, Policies::default(), &swap);
    let maps: Vec<_> = (0..14).map(|_| map(&rig)).collect();
    for anon in &maps {
        for page in 0..PAGES {
            rig.write(at(anon, page..page + 1).start, &[1]).unwrap();
        }
    }
    // Memory is full of mapped pages, and the first are in swap.
    let read = || rig.node.swap.as_ref().unwrap().stats.pages_in.get();
    let (batches, before) = (rig.node.stats.reclaim_batches.get(), read());
    let stopped = rig.node.stop_eviction();
    rig.space.will_need(at(&maps[0], 0..PAGES)).unwrap();
    assert!(
        rig.node.stats.reclaim_batches.get() > batches,
        "room was to be had"
    );
    drop(stopped);
    for page in 0..PAGES {
        assert_eq!(rig.touch(at(&maps[0], page..page + 1).start), Ok(1));
    }
    assert!(read() > before);
    for anon in maps {
        rig.unmap(anon.addresses());
    }
    rig.finish();
}

#[test]
fn others_evict_and_advise_meanwhile() {
    let rig = rig();
    let mut anon = map(&rig);
    let bytes = fill(&rig, &anon);
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                rig.evict_all();
            }
        });
        scope.spawn(|| {
            // Wherever it is.
            while !ends.load(Ordering::Relaxed) {
                let (mut from, all) = (0, 1 << 44);
                while let Some(start) = rig.space.next_mapped(from).filter(|&start| start < all) {
                    let range = start..start + 64 * PAGE_SIZE;
                    let _ = rig.space.will_need(range.clone());
                    let _ = rig.space.cold(range.clone());
                    let _ = rig.space.page_out(range);
                    from = start + 100 * PAGE_SIZE;
                }
            }
        });
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..60 {
                let new = anon.longer(PAGES * PAGE_SIZE).unwrap();
                let end = anon.addresses().end;
                let moved = move_to(&rig.space, (&anon, end), &new, PAGES * PAGE_SIZE);
                moved.unwrap();
                let old = core::mem::replace(&mut anon, new);
                while !Anonymous::is_unused(&old) {
                    std::thread::yield_now();
                }
                drop(old);
                check(&rig, &anon, &bytes);
            }
        }));
        ends.store(true, Ordering::Relaxed);
        result.unwrap();
    });
    unlock_all(&rig, &anon);
    drop(anon);
    rig.finish();
}
