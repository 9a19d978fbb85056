//! First touches of private memory that run on.

use softfault_engine::PAGE_SIZE;
use softfault_engine::anon::Anonymous;
use softfault_engine::budget::FLOOR;
use softfault_engine::mm::{Advice, Attributes, Backing, Protection};
use softfault_engine::mmu::TABLE_SPAN;
use softfault_oracle::Rig;
use std::ops::Range;
use std::sync::Arc;

const START: usize = 0x1234_5000_0000;
const TABLE_PAGES: usize = TABLE_SPAN / PAGE_SIZE;

fn addr(page: usize) -> usize {
    START + page * PAGE_SIZE
}

fn map(rig: &Rig, pages: usize, advice: Advice) -> Arc<Anonymous> {
    let anon = Anonymous::new(rig.node.clone(), pages * PAGE_SIZE).unwrap();
    let attributes = Attributes {
        backing: Backing::from(anon.clone()),
        protection: Protection::ReadWrite,
        advice,
        ..Attributes::default()
    };
    rig.space.mmap(addr(0)..addr(pages), attributes).unwrap();
    anon
}

fn write(rig: &Rig, pages: impl IntoIterator<Item = usize>) {
    for page in pages {
        rig.write(addr(page), &[page as u8 | 1]).unwrap();
    }
}

/// Faults, and pages that they filled beside.
fn counts(rig: &Rig) -> (u64, u64) {
    let stats = &rig.node.stats;
    (stats.anonymous_faults.get(), stats.filled_ahead.get())
}

fn gone(rig: Rig, anon: Arc<Anonymous>, pages: Range<usize>) {
    rig.unmap(addr(pages.start)..addr(pages.end));
    drop(anon);
    rig.finish();
}

#[test]
fn pages_that_are_written_in_order_take_a_fault_for_many() {
    let rig = Rig::new(8192);
    let before = rig.node.budget.charged();
    let pages = 6 * TABLE_PAGES;
    let anon = map(&rig, pages, Advice::Normal);
    write(&rig, 0..pages);
    let (faults, ahead) = counts(&rig);
    assert_eq!(faults + ahead, pages as u64);
    // 8 pages alone; then an eighth more each, up to 64 at once and the rest of the page table.
    assert!(faults < 160, "{faults} faults");
    assert_eq!(anon.resident_pages(), pages);
    for page in 0..pages {
        assert_eq!(rig.touch(addr(page)), Ok(page as u8 | 1));
    }
    rig.unmap(addr(0)..addr(pages));
    drop(anon);
    assert_eq!(rig.node.budget.charged(), before);
    rig.finish();
}

#[test]
fn pages_that_are_written_anywhere_are_filled_alone() {
    let rig = Rig::new(8192);
    let pages = 4 * TABLE_PAGES;
    let anon = map(&rig, pages, Advice::Normal);
    // A stride that passes every page once, and ends before runs of eight come together.
    let some = (0..pages / 2).map(|touch| touch * 1021 % pages);
    write(&rig, some);
    assert_eq!(anon.resident_pages(), pages / 2);
    assert_eq!(counts(&rig).1, 0);
    gone(rig, anon, 0..pages);
}

#[test]
fn at_most_an_eighth_of_a_run_is_filled_in_vain() {
    for length in 1..300 {
        let rig = Rig::new(4096);
        let anon = map(&rig, 2 * TABLE_PAGES, Advice::Normal);
        // In the middle of a page table, so that nothing but the run ends it.
        write(&rig, 100..100 + length);
        let vain = anon.resident_pages() - length;
        assert!(vain * 8 <= length, "{vain} pages behind {length}");
        gone(rig, anon, 0..2 * TABLE_PAGES);
    }
}

#[test]
fn advice_says_how_many() {
    let rig = Rig::new(4096);
    let anon = map(&rig, 256, Advice::Random);
    write(&rig, 0..128);
    assert_eq!((anon.resident_pages(), counts(&rig).1), (128, 0));
    rig.unmap(addr(0)..addr(256));
    drop(anon);
    let anon = map(&rig, 256, Advice::Sequential);
    write(&rig, [0]);
    assert_eq!(anon.resident_pages(), 2);
    write(&rig, 2..3);
    assert_eq!(anon.resident_pages(), 5, "as many as lie before");
    gone(rig, anon, 0..256);
}

#[test]
fn a_run_ends_where_its_mapping_does() {
    let rig = Rig::new(4096);
    let anon = map(&rig, 300, Advice::Normal);
    // Half of the window may only be read, and a part of it is nobody's.
    rig.protect(addr(100)..addr(200), Protection::Read);
    rig.unmap(addr(250)..addr(300));
    write(&rig, 0..100);
    assert_eq!(anon.resident_pages(), 100);
    write(&rig, 200..250);
    assert_eq!(anon.resident_pages(), 150);
    rig.protect(addr(100)..addr(200), Protection::ReadWrite);
    gone(rig, anon, 0..250);
}

#[test]
fn where_memory_is_short_the_page_that_is_touched_is_enough() {
    let rig = Rig::new(4096);
    let anon = map(&rig, 300, Advice::Sequential);
    // 40 pages for faults, and nothing that can be evicted.
    let kept = rig.node.budget.limit() - rig.node.budget.charged() - FLOOR - 40;
    assert!(rig.node.budget.try_charge(kept, FLOOR));
    let mut written = 0;
    while rig.node.budget.limit() - rig.node.budget.charged() > FLOOR {
        rig.write(addr(written), &[1]).unwrap();
        written += 1;
    }
    // The last page that the budget had was given, though a run would have wanted more.
    assert_eq!(rig.node.budget.limit() - rig.node.budget.charged(), FLOOR);
    assert!(anon.resident_pages() >= written);
    rig.node.budget.uncharge(kept);
    gone(rig, anon, 0..300);
}

/// Maps a small memory, writes to some pages and unmaps: the faults, the pages filled beside, and those filled for nothing.
fn small(rig: &Rig, size: usize, pages: &[usize]) -> (u64, u64, usize) {
    let before = counts(rig);
    let anon = map(rig, size, Advice::Normal);
    write(rig, pages.iter().copied());
    let vain = anon.resident_pages() - pages.len();
    let after = counts(rig);
    for page in 0..size {
        let byte = if pages.contains(&page) {
            page as u8 | 1
        } else {
            0
        };
        assert_eq!(rig.touch(addr(page)), Ok(byte));
    }
    rig.unmap(addr(0)..addr(size));
    drop(anon);
    (after.0 - before.0, after.1 - before.1, vain)
}

#[test]
fn small_mappings_that_are_written_alike_are_filled_at_their_first_write() {
    let rig = Rig::new(4096);
    let before = rig.node.budget.charged();
    let pages = [0, 4, 5, 12];
    for _ in 0..8 {
        assert_eq!(small(&rig, 16, &pages), (4, 0, 0));
    }
    assert_eq!(small(&rig, 16, &pages), (1, 3, 0));
    assert_eq!(small(&rig, 16, &pages), (4, 0, 0), "one is looked at");
    let faults: u64 = (0..1000).map(|_| small(&rig, 16, &pages).0).sum();
    assert!(faults < 1200, "{faults} faults of 1000 mappings");
    // Where the first write is to another page, or the size is another, nothing is known.
    assert_eq!(small(&rig, 16, &[1, 4]), (2, 0, 0));
    assert_eq!(small(&rig, 32, &pages), (4, 0, 0));
    assert_eq!(rig.node.budget.charged(), before);
    rig.finish();
}

#[test]
fn at_most_an_eighth_of_small_mappings_is_filled_in_vain() {
    for before in [1, 8, 9, 50, 700] {
        let rig = Rig::new(4096);
        for _ in 0..before {
            assert_eq!(small(&rig, 16, &[0, 4, 8, 12]).2, 0);
        }
        // The first page alone from now on.
        let vain: usize = (0..300).map(|_| small(&rig, 16, &[0]).2).sum();
        assert!(vain * 8 <= 3 * before, "{vain} after {before}");
        rig.finish();
    }
}

#[test]
fn a_small_mapping_that_is_not_whole_is_not_filled() {
    let rig = Rig::new(4096);
    for _ in 0..100 {
        small(&rig, 16, &[0, 4, 8, 12]);
    }
    for hole in [4..5, 15..16] {
        let anon = map(&rig, 16, Advice::Normal);
        rig.unmap(addr(hole.start)..addr(hole.end));
        write(&rig, [0]);
        assert_eq!(anon.resident_pages(), 1);
        rig.unmap(addr(0)..addr(16));
        drop(anon);
    }
    let anon = map(&rig, 16, Advice::Random);
    write(&rig, [0]);
    assert_eq!(anon.resident_pages(), 1, "each page alone, as was said");
    gone(rig, anon, 0..16);
}
