//! Anonymous memory over the soft page tables, verb by verb.

use softfault_engine::PAGE_SIZE;
use softfault_engine::anon::Anonymous;
use softfault_engine::budget::{Budget, FLOOR};
use softfault_engine::fault::{self, FaultError, NeverInterrupted, Stop};
use softfault_engine::mm::ForkError;
use softfault_engine::mm::{AddressSpace, Attributes, Backing, MmError, Protection};
use softfault_engine::mmu::TABLE_SPAN;
use softfault_engine::policy::Policies;
use softfault_oracle::{Rig, TestStore, TestSwap};
use std::ops::Range;
use std::sync::Arc;

const START: usize = 0x1234_5000_0000;
const TABLE_PAGES: usize = TABLE_SPAN / PAGE_SIZE;

fn addr(page: usize) -> usize {
    START + page * PAGE_SIZE
}

fn range(pages: Range<usize>) -> Range<usize> {
    addr(pages.start)..addr(pages.end)
}

fn anonymous(rig: &Rig, pages: usize) -> Arc<Anonymous> {
    Anonymous::new(rig.node.clone(), pages * PAGE_SIZE).unwrap()
}

fn attributes(anon: &Arc<Anonymous>, pgoff: u64) -> Attributes {
    Attributes {
        backing: Backing::from(anon.clone()),
        pgoff,
        protection: Protection::ReadWrite,
        ..Attributes::default()
    }
}

/// Maps so many pages at `START`, in the rig's own space.
fn map(rig: &Rig, pages: usize) -> Arc<Anonymous> {
    let anon = anonymous(rig, pages);
    let mapped = rig.space.mmap(range(0..pages), attributes(&anon, 0));
    mapped.unwrap();
    anon
}

fn read_in(rig: &Rig, space: &AddressSpace, addr: usize) -> Result<u8, FaultError> {
    let touched = rig.with_core(|core| fault::touch(core, space, addr, &NeverInterrupted));
    touched.map_err(|stopped| match stopped.why {
        Stop::Error(error) => error,
        Stop::Interrupted => panic!("by nobody"),
    })
}

fn write_in(rig: &Rig, space: &AddressSpace, addr: usize, byte: u8) -> Result<(), FaultError> {
    let bytes = [byte];
    let written =
        rig.with_core(|core| fault::write_at(core, space, addr, &bytes, &NeverInterrupted));
    written.map_err(|stopped| match stopped.why {
        Stop::Error(error) => error,
        Stop::Interrupted => panic!("by nobody"),
    })
}

#[test]
fn zeros_written_read_and_given_back() {
    let rig = Rig::new(4096);
    let before = rig.node.budget.charged();
    let anon = map(&rig, 1200);
    // The window's table, and the upper page table.
    assert_eq!(rig.node.budget.charged(), before + 2, "nothing was touched");
    assert_eq!(rig.touch(addr(7)), Ok(0));
    // Its page table, and the page of words; zeros are for nothing.
    assert_eq!(rig.node.budget.charged(), before + 4);
    let text: Vec<u8> = (0..3 * PAGE_SIZE).map(|at| ((at * 7) >> 3) as u8).collect();
    rig.write(addr(600) + 1000, &text).unwrap();
    let mut found = vec![0; text.len()];
    rig.read(addr(600) + 1000, &mut found).unwrap();
    assert_eq!(found, text);
    assert_eq!(rig.touch(addr(600) + 999), Ok(0));
    assert_eq!(anon.resident_pages(), 1 + 4);
    // Four pages now, two tables, and two pages of words.
    assert_eq!(rig.node.budget.charged(), before + 4 + 2 + 2 + 2);
    assert!(anon.is_resident(anon.addresses().start + 7 * PAGE_SIZE));
    assert!(!anon.is_resident(anon.addresses().start + 9 * PAGE_SIZE));
    assert_eq!(rig.touch(addr(7)), Ok(0));
    rig.unmap(range(0..1200));
    assert_eq!(anon.resident_pages(), 0);
    assert_eq!(rig.touch(addr(7)), Err(FaultError::NotMapped));
    drop(anon);
    assert_eq!(rig.node.budget.charged(), before);
    rig.finish();
}

#[test]
fn parts_that_are_unmapped_are_paid_back_and_begin_as_zeros_again() {
    let rig = Rig::new(8192);
    let before = rig.node.budget.charged();
    let pages = 4 * TABLE_PAGES;
    let anon = map(&rig, pages);
    for page in 0..pages {
        rig.write(addr(page), &[page as u8 | 1]).unwrap();
    }
    let full = rig.node.budget.charged();
    // One whole table, and halves of its neighbours.
    let gone = TABLE_PAGES / 2..5 * TABLE_PAGES / 2;
    rig.unmap(range(gone.clone()));
    assert_eq!(full - rig.node.budget.charged(), 2 * TABLE_PAGES as u64 + 1);
    for page in 0..pages {
        let expected = match gone.contains(&page) {
            true => Err(FaultError::NotMapped),
            false => Ok(page as u8 | 1),
        };
        assert_eq!(rig.touch(addr(page)), expected, "{page}");
    }
    // The same pages again, at the same place.
    let again = attributes(&anon, gone.start as u64);
    rig.space.mmap(range(gone.clone()), again).unwrap();
    assert_eq!(rig.space.map_count(), 1, "all is one again");
    for page in gone {
        assert_eq!(rig.touch(addr(page)), Ok(0));
    }
    rig.space.exit(|_, _| {});
    drop(anon);
    assert_eq!(rig.node.budget.charged(), before);
    rig.finish();
}

#[test]
fn a_page_is_shown_at_one_place_and_in_one_space() {
    let rig = Rig::new(2048);
    let anon = map(&rig, 20);
    let elsewhere = range(100..105);
    let shown = rig.space.mmap(elsewhere.clone(), attributes(&anon, 18));
    assert_eq!(shown, Err(MmError::Overflow));
    let shown = rig.space.mmap(elsewhere.clone(), attributes(&anon, 10));
    assert_eq!(shown, Err(MmError::Overlap));
    rig.unmap(range(10..15));
    let shown = rig.space.mmap(elsewhere, attributes(&anon, 10));
    assert_eq!(shown, Ok(()));
    let other = rig.another_space();
    let shown = std::panic::AssertUnwindSafe(|| other.mmap(range(0..5), attributes(&anon, 10)));
    assert!(std::panic::catch_unwind(shown).is_err());
    drop(anon);
    drop(other);
    rig.finish();
}

#[test]
fn protections_hold_from_the_moment_mprotect_returns() {
    let rig = Rig::new(2048);
    let anon = map(&rig, 30);
    rig.write(addr(0), &[1; 30 * PAGE_SIZE]).unwrap();
    rig.protect(range(10..20), Protection::Read);
    rig.protect(range(20..25), Protection::None);
    for page in 0..30 {
        let (read, write) = match page {
            10..20 => (Ok(1), Err(FaultError::Protection)),
            20..25 => (Err(FaultError::Protection), Err(FaultError::Protection)),
            _ => (Ok(1), Ok(())),
        };
        assert_eq!(rig.touch(addr(page)), read, "{page}");
        assert_eq!(rig.write(addr(page), &[2]), write, "{page}");
    }
    rig.protect(range(0..30), Protection::ReadWrite);
    assert_eq!(rig.space.map_count(), 1);
    for page in 0..30 {
        let expected = if (10..25).contains(&page) { 1 } else { 2 };
        assert_eq!(rig.touch(addr(page)), Ok(expected));
        assert_eq!(rig.write(addr(page), &[3]), Ok(()));
    }
    drop(anon);
    rig.finish();
}

#[test]
fn a_moved_mapping_has_its_bytes_and_no_others() {
    let rig = Rig::new(2048);
    let anon = map(&rig, 40);
    for page in 0..40 {
        rig.write(addr(page), &[page as u8 + 1]).unwrap();
    }
    let resident = anon.resident_pages();
    let charged = rig.node.budget.charged();
    rig.protect(range(12..15), Protection::Read);
    // So that a core knows where the page is.
    assert_eq!(rig.touch(addr(10)), Ok(11));
    rig.space.mremap(range(10..20), addr(100)).unwrap();
    assert_eq!(anon.resident_pages(), resident);
    assert_eq!(rig.node.budget.charged(), charged, "nothing was copied");
    for page in 10..20 {
        assert_eq!(rig.touch(addr(page)), Err(FaultError::NotMapped));
        assert_eq!(rig.touch(addr(page + 90)), Ok(page as u8 + 1));
        let written = rig.write(addr(page + 90), &[page as u8 + 101]);
        assert_eq!(written.is_err(), (12..15).contains(&page));
    }
    rig.space.validate(&rig.space.mmap_lock().read());
    let refused = |pages: Range<usize>, to: usize| rig.space.mremap(range(pages), to);
    assert_eq!(refused(5..15, addr(200)), Err(MmError::Unmapped));
    assert_eq!(refused(0..5, addr(98)), Err(MmError::Overlap));
    assert_eq!(refused(0..8, addr(4)), Err(MmError::Overlap));
    assert_eq!(refused(0..8, addr(0)), Err(MmError::Overlap));
    assert_eq!(refused(0..8, addr(200) + 5), Err(MmError::Misaligned));
    assert_eq!(refused(3..3, addr(200)), Err(MmError::Empty));
    assert_eq!(
        refused(0..8, usize::MAX - PAGE_SIZE + 1),
        Err(MmError::Overflow)
    );
    assert_eq!(rig.touch(addr(3)), Ok(4));
    // Back to where it came from: one VMA but for the protection.
    rig.space.mremap(range(100..110), addr(10)).unwrap();
    assert_eq!(rig.space.map_count(), 3);
    rig.protect(range(0..40), Protection::ReadWrite);
    assert_eq!(rig.space.map_count(), 1);
    for page in 0..40 {
        let moved = (10..12).contains(&page) || (15..20).contains(&page);
        let expected = page as u8 + if moved { 101 } else { 1 };
        assert_eq!(rig.touch(addr(page)), Ok(expected));
    }
    drop(anon);
    rig.finish();
}

#[test]
fn a_fork_is_a_snapshot_and_so_is_its_fork() {
    let rig = Rig::new(8192);
    let before = rig.node.budget.charged();
    let pages = TABLE_PAGES + 100;
    drop(map(&rig, pages));
    for page in (0..pages).step_by(2) {
        rig.write(addr(page), &[1]).unwrap();
    }
    let one = rig.node.budget.charged() - before;
    let child = rig.another_space();
    rig.space.fork(&child).unwrap();
    assert_eq!(
        rig.node.budget.charged() - before,
        2 * one,
        "paid for at once"
    );
    assert_eq!(child.map_count(), rig.space.map_count());
    // Each writes bytes that the other must not see.
    for page in (0..pages).step_by(4) {
        rig.write(addr(page), &[2]).unwrap();
        write_in(&rig, &child, addr(page) + 1, 3).unwrap();
    }
    let grandchild = rig.another_space();
    child.fork(&grandchild).unwrap();
    assert_eq!(rig.node.budget.charged() - before, 3 * one);
    for page in (0..pages).step_by(8) {
        write_in(&rig, &grandchild, addr(page), 4).unwrap();
        write_in(&rig, &child, addr(page) + 2, 5).unwrap();
    }
    let expect = |space: &AddressSpace, page: usize, bytes: [u8; 3]| {
        for (place, byte) in bytes.into_iter().enumerate() {
            let found = read_in(&rig, space, addr(page) + place);
            assert_eq!(found, Ok(byte), "page {page}, byte {place}");
        }
    };
    for page in 0..pages {
        let (own, childs, grandchilds) = match page % 8 {
            0 => ([2, 0, 0], [1, 3, 5], [4, 3, 0]),
            4 => ([2, 0, 0], [1, 3, 0], [1, 3, 0]),
            2 | 6 => ([1, 0, 0], [1, 0, 0], [1, 0, 0]),
            _ => continue,
        };
        expect(&rig.space, page, own);
        expect(&child, page, childs);
        expect(&grandchild, page, grandchilds);
    }
    assert_eq!(
        rig.node.budget.charged() - before,
        3 * one,
        "no copy was new"
    );
    // The one in the middle goes first.
    child.exit(|_, _| {});
    assert_eq!(rig.node.budget.charged() - before, 2 * one);
    expect(&grandchild, 8, [4, 3, 0]);
    rig.space.exit(|_, _| {});
    expect(&grandchild, 4, [1, 3, 0]);
    expect(&grandchild, 2, [1, 0, 0]);
    grandchild.exit(|_, _| {});
    assert_eq!(rig.node.budget.charged(), before);
    drop((child, grandchild));
    rig.finish();
}

#[test]
fn a_forked_space_has_the_parents_mappings_of_everything() {
    let rig = Rig::new(4096);
    let store = TestStore::new(50 << 12);
    let cache = rig.map(&store);
    let file = cache.addresses();
    let anon = map(&rig, 60);
    rig.write(addr(0), &[9; 60 * PAGE_SIZE]).unwrap();
    rig.protect(range(20..30), Protection::Read);
    rig.space.mremap(range(40..50), addr(80)).unwrap();
    let child = rig.another_space();
    rig.space.fork(&child).unwrap();
    rig.space.validate(&rig.space.mmap_lock().read());
    child.validate(&child.mmap_lock().read());
    // The file is the same one: read once for both.
    let byte = rig.touch(file.start + 5000);
    let reads = rig.node.stats.major_faults.get();
    assert_eq!(read_in(&rig, &child, file.start + 5000), byte);
    assert_eq!(rig.node.stats.major_faults.get(), reads);
    assert_eq!(read_in(&rig, &child, addr(85)), Ok(9));
    assert_eq!(
        write_in(&rig, &child, addr(25), 1),
        Err(FaultError::Protection)
    );
    assert_eq!(read_in(&rig, &child, addr(45)), Err(FaultError::NotMapped));
    // The child's pieces are of one window: moved back they are one again.
    child.mremap(range(80..90), addr(40)).unwrap();
    child
        .mprotect(range(20..30), Protection::ReadWrite)
        .unwrap();
    assert_eq!(child.map_count(), 2);
    child.exit(|_, _| {});
    drop((child, cache, anon));
    rig.finish();
}

#[test]
fn a_fork_that_cannot_be_paid_for_leaves_nothing() {
    let rig = Rig::new(4096);
    let free = rig.node.budget.free() as usize;
    let pages = free / 2 + 50;
    let anon = map(&rig, pages);
    rig.write(addr(0), &vec![7; pages * PAGE_SIZE]).unwrap();
    let charged = rig.node.budget.charged();
    let vmas = rig.slabs.vmas_in_use();
    let child = rig.another_space();
    assert_eq!(rig.space.fork(&child), Err(ForkError::Budget));
    assert_eq!(rig.node.budget.charged(), charged);
    assert_eq!((child.map_count(), rig.slabs.vmas_in_use()), (0, vmas));
    for page in 0..pages {
        assert_eq!(rig.touch(addr(page)), Ok(7));
        rig.write(addr(page), &[8]).unwrap();
    }
    // With less it goes, into the same child.
    rig.unmap(range(0..200));
    assert_eq!(rig.space.fork(&child), Ok(()));
    assert_eq!(read_in(&rig, &child, addr(300)), Ok(8));
    child.exit(|_, _| {});
    drop((child, anon));
    rig.finish();
}

#[test]
fn where_nothing_can_be_evicted_a_touch_ends() {
    let rig = Rig::new(2048);
    let pages = 3000;
    let anon = map(&rig, pages);
    let mut touched = 0;
    let error = loop {
        match rig.write(addr(touched), &[1]) {
            Ok(()) => touched += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error, FaultError::NoMemory);
    assert!(touched > 500, "{touched}");
    assert_eq!(anon.resident_pages(), touched);
    let budget = &rig.node.budget;
    assert!(
        budget.charged() <= budget.limit() && (FLOOR..FLOOR + 6).contains(&budget.free()),
        "{budget:?}"
    );
    // Present pages stay, and pages that are given back can be had again.
    assert_eq!(rig.touch(addr(touched / 2)), Ok(1));
    rig.unmap(range(0..100));
    assert_eq!(rig.write(addr(touched), &[1]), Ok(()));
    drop(anon);
    rig.finish();
}

#[test]
fn files_make_room_and_keep_a_floor() {
    let rig = Rig::new(2048);
    let store = TestStore::new(900 << 12);
    let cache = rig.map(&store);
    let file = cache.addresses();
    for page in file.clone().step_by(PAGE_SIZE) {
        rig.touch(page).unwrap();
    }
    let anon = map(&rig, 3000);
    let mut touched = 0;
    while rig.write(addr(touched), &[1]).is_ok() {
        touched += 1;
    }
    assert!(touched > 500, "{touched}");
    assert!(rig.node.stats.evicted.get() > 500);
    // The rest beside private memory is enough for all pages of the file, one after another.
    for _ in 0..2 {
        for page in file.clone().step_by(PAGE_SIZE) {
            assert!(rig.touch(page).is_ok());
        }
        assert_eq!(rig.write(addr(touched), &[1]), Err(FaultError::NoMemory));
    }
    drop((anon, cache));
    rig.finish();
}

#[test]
fn anonymous_memory_takes_from_a_neighbour_under_one_budget() {
    let parent = Budget::new(3000);
    let one = Rig::within(2500, &parent);
    let store = TestStore::new(2000 << 12);
    let cache = one.map(&store);
    for page in cache.addresses().step_by(PAGE_SIZE) {
        one.touch(page).unwrap();
    }
    let two = Rig::within(2500, &parent);
    let anon = map(&two, 1000);
    two.write(addr(0), &[1; 1000 * PAGE_SIZE]).unwrap();
    assert!(parent.peak() <= 3000, "{parent:?}");
    drop(anon);
    two.finish();
    drop(cache);
    one.finish();
    assert_eq!(parent.charged(), 0);
}

/// Windows that go leave their places to others, and the hand goes on from where it was: it comes to all that are left.
#[test]
fn reclaim_comes_to_all_windows_that_are_left() {
    const COUNT: usize = 9;
    const PAGES: usize = 40;
    for stop in 0..COUNT {
        let swap = TestSwap::new(COUNT * PAGES);
        let rig = Rig::with_swap(2048, Policies::default(), &swap);
        let make = |_| {
            let anon = Anonymous::new(rig.node.clone(), PAGES * PAGE_SIZE).unwrap();
            rig.map_anonymous(&anon);
            let pages = anon.addresses().step_by(PAGE_SIZE);
            pages.for_each(|addr| rig.write(addr, &[1]).unwrap());
            anon
        };
        let mut windows: Vec<_> = (0..COUNT).map(make).collect();
        // The hand stops in one window or another.
        rig.node.reclaim(1 + stop * PAGES);
        for place in [4, 7, 0, 2] {
            let anon = windows.remove(place);
            rig.unmap(anon.addresses());
            drop(anon);
        }
        rig.evict_all();
        assert!(windows.iter().all(|anon| anon.resident_pages() == 0));
        for anon in windows {
            rig.unmap(anon.addresses());
        }
        rig.finish();
    }
}
