//! The soft page tables by themselves: the cost of tables and the end of their lives,
//! addresses of windows; and accesses that stop half-way.

use crate::files::AlwaysInterrupted;
use softfault_engine::anon::Anonymous;
use softfault_engine::fault::{self, FaultError, NeverInterrupted, Stop, Stopped};
use softfault_engine::mm::{AddressSpace, Advice, Attributes, Backing, Protection};
use softfault_engine::mmu::{Access, MmuError, Reservation, SoftMmu, TABLE_SPAN, Zeroed};
use softfault_engine::{Mmu, PAGE_SIZE};
use softfault_oracle::{Rig, TestStore};
use std::collections::BTreeSet;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::slice::from_ref;

pub const GIB: usize = 1 << 30;

pub fn reserve(mmu: &SoftMmu, bytes: usize) -> Reservation {
    mmu.reserve(bytes, Protection::ReadWrite).unwrap()
}

/// Bytes of the addresses of windows that one processor makes.
const ARENA: usize = 1 << 40;

/// Windows that one processor has made, so that they have the tables above their leaves in common: the system may move this thread
/// in between.
fn reserve_together<const N: usize>(mmu: &SoftMmu, bytes: [usize; N]) -> [Reservation; N] {
    loop {
        let windows = bytes.map(|bytes| reserve(mmu, bytes));
        let arena = |window: &Reservation| window.addr / ARENA;
        if windows
            .iter()
            .all(|window| arena(window) == arena(&windows[0]))
        {
            return windows;
        }
        windows.into_iter().for_each(|window| mmu.release(window));
    }
}

fn pages(window: &Reservation, pages: Range<usize>) -> Range<usize> {
    window.addr + pages.start * PAGE_SIZE..window.addr + pages.end * PAGE_SIZE
}

pub fn byte(mmu: &SoftMmu, addr: usize) -> Option<u8> {
    let mut byte = 0;
    // SAFETY: a byte to write to.
    unsafe { mmu.read(addr, &mut byte, 1) }.then_some(byte)
}

fn copy(mmu: &SoftMmu, window: &Reservation, addr: usize, source: &[u8]) -> Result<(), MmuError> {
    // SAFETY: the source is as long as it says; the test keeps to the window.
    unsafe { mmu.copy((window, addr), source, Access::Writable) }
}

#[test]
fn tables_come_with_pages_and_go_with_them() {
    let mmu = SoftMmu::new();
    let window = reserve(&mmu, 4 * GIB);
    assert_eq!(mmu.table_pages(), 1, "the root");
    mmu.fill(&window, window.addr, PAGE_SIZE).unwrap();
    assert_eq!(mmu.table_pages(), 4, "one of each level");
    mmu.fill(&window, window.addr + PAGE_SIZE, PAGE_SIZE)
        .unwrap();
    assert_eq!(mmu.table_pages(), 4);
    mmu.zero(&window, window.addr + TABLE_SPAN, PAGE_SIZE)
        .unwrap();
    assert_eq!(mmu.table_pages(), 5, "another leaf");
    mmu.fill(&window, window.addr + 3 * GIB, PAGE_SIZE).unwrap();
    assert_eq!(
        mmu.table_pages(),
        7,
        "another leaf, and the tables above it"
    );
    assert_eq!(mmu.present_pages(), 4);
    mmu.zap(&[pages(&window, 0..1)]);
    assert_eq!(mmu.table_pages(), 7, "the leaf has a page left");
    mmu.zap(&[pages(&window, 1..2), pages(&window, 512..513)]);
    assert_eq!(mmu.table_pages(), 5, "two leaves went");
    assert_eq!(mmu.present_pages(), 1);
    mmu.release(window);
    assert_eq!(mmu.table_pages(), 1, "all that served the window");
}

#[test]
fn tables_that_serve_a_neighbour_stay() {
    let mmu = SoftMmu::new();
    // Too large for the windows of a processor alone: they are neighbours wherever this thread runs.
    let windows = [(); 3].map(|()| reserve(&mmu, GIB + TABLE_SPAN));
    for window in &windows {
        mmu.fill(window, window.addr, PAGE_SIZE).unwrap();
    }
    // They begin in three tables of level 1.
    assert_eq!(mmu.table_pages(), 2 + 3 + 3);
    let [below, middle, above] = windows;
    let addr = middle.addr;
    mmu.release(middle);
    // The table of the middle one is that of the end of the one below.
    assert_eq!(mmu.table_pages(), 2 + 3 + 2);
    assert_eq!(byte(&mmu, below.addr), Some(0));
    assert_eq!(byte(&mmu, above.addr), Some(0));
    assert_eq!(byte(&mmu, addr), None);
    mmu.release(above);
    assert_eq!(mmu.table_pages(), 2 + 2 + 1);
    mmu.release(below);
    assert_eq!(mmu.table_pages(), 1);
}

/// The tables above a processor's first small window stay for its next one, and are not counted when it has none.
#[test]
fn tables_above_a_small_window_stay() {
    let mmu = SoftMmu::new();
    for _ in 0..3 {
        let window = reserve(&mmu, TABLE_SPAN);
        mmu.fill(&window, window.addr, PAGE_SIZE).unwrap();
        assert_eq!(mmu.table_pages(), 4);
        mmu.release(window);
        assert_eq!((mmu.table_pages(), mmu.present_pages()), (1, 0));
    }
}

#[test]
fn a_sparse_terabyte_costs_only_its_used_part() {
    let mmu = SoftMmu::new();
    let window = reserve(&mmu, 1 << 40);
    for step in 0..64 {
        mmu.fill(&window, window.addr + step * 16 * GIB, PAGE_SIZE)
            .unwrap();
    }
    // The window crosses into a third table of level 2.
    assert!(mmu.table_pages() <= 1 + 3 + 64 + 64);
    assert_eq!(mmu.present_pages(), 64);
    mmu.release(window);
    assert_eq!(mmu.table_pages(), 1);
    assert_eq!(mmu.present_pages(), 0);
}

#[test]
fn windows_are_apart_and_their_addresses_are_used_again() {
    let mmu = SoftMmu::new();
    let sizes = [1, TABLE_SPAN, TABLE_SPAN + 1, 5 * TABLE_SPAN, PAGE_SIZE];
    let windows = reserve_together(&mmu, sizes);
    let mut spans = BTreeSet::new();
    for (window, bytes) in windows.iter().zip(sizes) {
        assert!(window.addr > 0 && window.addr.is_multiple_of(TABLE_SPAN));
        assert_eq!(window.bytes, bytes.next_multiple_of(PAGE_SIZE));
        let first = window.addr / TABLE_SPAN;
        for span in first..first + window.bytes.div_ceil(TABLE_SPAN) {
            assert!(spans.insert(span), "a leaf serves one window");
        }
    }
    // By the same processor.
    loop {
        let [first, second] = reserve_together(&mmu, [TABLE_SPAN + 1, TABLE_SPAN]);
        mmu.release(first.clone());
        let again = reserve(&mmu, 2 * TABLE_SPAN);
        let is_same = again.addr / ARENA == first.addr / ARENA;
        assert!(!is_same || again.addr == first.addr);
        mmu.release(second);
        mmu.release(again);
        if is_same {
            break;
        }
    }
    let too_much = mmu.reserve(1 << 47, Protection::Read);
    assert_eq!(too_much, Err(MmuError::NoMemory));
}

#[test]
fn existing_files_are_left_alone() {
    let mmu = SoftMmu::new();
    let window = mmu.reserve(64 * PAGE_SIZE, Protection::Read).unwrap();
    let source: Vec<u8> = (0..40).flat_map(|page| [page; PAGE_SIZE]).collect();
    mmu.zero(&window, window.addr + 3 * PAGE_SIZE, 2 * PAGE_SIZE)
        .unwrap();
    copy(&mmu, &window, window.addr, &source).unwrap();
    copy(&mmu, &window, window.addr, &source[PAGE_SIZE..]).unwrap();
    mmu.zero(&window, window.addr, 64 * PAGE_SIZE).unwrap();
    for page in 0..64 {
        let expected = match page {
            3 | 4 => 0,
            0..40 => page as u8,
            _ => 0,
        };
        assert_eq!(byte(&mmu, window.addr + page * PAGE_SIZE), Some(expected));
    }
    let all = window.range();
    mmu.zap(from_ref(&all));
    assert_eq!(byte(&mmu, window.addr + PAGE_SIZE), None);
}

#[test]
fn frames_run_out_and_come_back() {
    // The page of zeros, the root, three tables, and 27 pages.
    let mmu = SoftMmu::with_memory(32 * PAGE_SIZE).unwrap();
    let window = reserve(&mmu, TABLE_SPAN);
    for round in 0..3 {
        mmu.fill(&window, window.addr, 27 * PAGE_SIZE).unwrap();
        let more = window.addr + 27 * PAGE_SIZE;
        let refused = mmu.fill(&window, more, PAGE_SIZE);
        assert_eq!(refused, Err(MmuError::NoMemory), "round {round}");
        mmu.zap(&[pages(&window, 5..6)]);
        mmu.fill(&window, more, PAGE_SIZE).unwrap();
        let all = window.range();
        mmu.zap(from_ref(&all));
        assert_eq!(mmu.present_pages(), 0);
    }
}

#[test]
fn forks_share_frames_until_they_are_written_to() {
    // Room for the tables and one copy of the pages, and a bit.
    let mmu = SoftMmu::with_memory((2 + 4 + 40) * PAGE_SIZE).unwrap();
    let [parent, child] = reserve_together(&mmu, [TABLE_SPAN; 2]);
    copy(&mmu, &parent, parent.addr, &[7; 30 * PAGE_SIZE]).unwrap();
    mmu.zero(&parent, parent.addr + 100 * PAGE_SIZE, PAGE_SIZE)
        .unwrap();
    mmu.fork(&parent, parent.range(), &child).unwrap();
    assert_eq!(mmu.present_pages(), 2 * 31);
    for page in 0..30 {
        assert_eq!(byte(&mmu, child.addr + page * PAGE_SIZE), Some(7));
    }
    for page in 0..9 {
        mmu.make_writable(&child, child.addr + page * PAGE_SIZE)
            .unwrap();
    }
    mmu.make_writable(&child, child.addr + 100 * PAGE_SIZE)
        .unwrap();
    let refused = mmu.make_writable(&child, child.addr + 20 * PAGE_SIZE);
    assert_eq!(refused, Err(MmuError::NoMemory));
    // Pages that only one side has are not copied.
    for page in 0..9 {
        mmu.make_writable(&parent, parent.addr + page * PAGE_SIZE)
            .unwrap();
    }
    mmu.release(parent);
    for page in 9..30 {
        mmu.make_writable(&child, child.addr + page * PAGE_SIZE)
            .unwrap();
        assert_eq!(byte(&mmu, child.addr + page * PAGE_SIZE), Some(7));
    }
    // More shared pages than one shootdown is for.
    mmu.release(child);
    assert_eq!((mmu.present_pages(), mmu.table_pages()), (0, 1));
}

#[test]
fn many_shared_frames_are_zapped_on_both_sides() {
    const PAGES: usize = 500;
    let mmu = SoftMmu::with_memory((PAGES + 12) * PAGE_SIZE).unwrap();
    for _ in 0..3 {
        let parent = reserve(&mmu, TABLE_SPAN);
        mmu.fill(&parent, parent.addr, PAGES * PAGE_SIZE).unwrap();
        let child = reserve(&mmu, TABLE_SPAN);
        mmu.fork(&parent, parent.range(), &child).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| mmu.zap(from_ref(&parent.range())));
            scope.spawn(|| mmu.zap(from_ref(&child.range())));
        });
        mmu.release(parent);
        mmu.release(child);
        assert_eq!((mmu.present_pages(), mmu.table_pages()), (0, 1));
    }
}

#[test]
fn read_only_pages_become_writable() {
    // The tables of two windows, and 8 pages.
    let mmu = SoftMmu::with_memory((2 + 4 + 8) * PAGE_SIZE).unwrap();
    let [window, child] = reserve_together(&mmu, [TABLE_SPAN; 2]);
    let at = |page: usize| window.addr + page * PAGE_SIZE;
    let make_writable = |page| mmu.make_writable(&window, at(page));
    copy(&mmu, &window, at(0), &[1; 2 * PAGE_SIZE]).unwrap();
    assert_eq!(mmu.zero_page(&window, at(2)), Ok(Zeroed::Nothing));
    let before = bytes(&mmu, &window, at(0));
    mmu.protect(&[window.range()]);
    // Protected: the same frame. A hole: one of its own. Missing: still missing.
    (0..4).for_each(|page| make_writable(page).unwrap());
    assert_eq!(bytes(&mmu, &window, at(0)), before);
    assert_eq!(
        [0, 1, 2, 3].map(|page| byte(&mmu, at(page))),
        [Some(1), Some(1), Some(0), None]
    );
    assert_ne!(bytes(&mmu, &window, at(2)), bytes(&mmu, &window, at(1)));
    // Shared, and protected besides: a copy, for the first writer.
    mmu.fork(&window, window.range(), &child).unwrap();
    mmu.protect(&[window.range(), child.range()]);
    make_writable(0).unwrap();
    assert_ne!(bytes(&mmu, &window, at(0)), before);
    assert_eq!(bytes(&mmu, &child, child.addr), before);
    mmu.make_writable(&child, child.addr).unwrap();
    assert_eq!(
        bytes(&mmu, &child, child.addr),
        before,
        "nobody else has it"
    );
    // Out of frames: it stays as it was.
    while let Ok(()) = mmu.fill(&window, at(20 + mmu.present_pages()), PAGE_SIZE) {}
    let before = bytes(&mmu, &window, at(1));
    assert_eq!(make_writable(1), Err(MmuError::NoMemory));
    assert_eq!(bytes(&mmu, &window, at(1)), before);
    assert_eq!(byte(&mmu, at(1)), Some(1));
    mmu.release(child);
    make_writable(1).unwrap();
    assert_eq!(bytes(&mmu, &window, at(1)), before);
    mmu.release(window);
    assert_eq!((mmu.present_pages(), mmu.table_pages()), (0, 1));
}

/// Where a page's bytes are, which are those that are read.
fn bytes(mmu: &SoftMmu, window: &Reservation, addr: usize) -> *const u8 {
    let bytes = mmu.bytes(window, addr);
    // SAFETY: a page that is there.
    assert_eq!(Some(unsafe { *bytes }), byte(mmu, addr));
    bytes
}

/// Pages of all kinds over two tables and a bit, and the byte of each.
fn of_all_kinds(mmu: &SoftMmu, window: &Reservation) -> Vec<Option<u8>> {
    let mut expected = Vec::new();
    for page in 0..1100 {
        let addr = window.addr + page * PAGE_SIZE;
        let value = page as u8 | 1;
        expected.push(match page % 5 {
            0 | 1 if page / 256 != 1 => {
                copy(mmu, window, addr, &[value; PAGE_SIZE]).unwrap();
                Some(value)
            }
            2 if page % 25 == 2 => {
                mmu.zero_page(window, addr).unwrap();
                Some(0)
            }
            _ => None,
        });
        if page % 5 == 1 {
            mmu.protect(from_ref(&(addr..addr + PAGE_SIZE)));
        }
    }
    expected
}

fn shown(mmu: &SoftMmu, addr: usize, pages: usize) -> Vec<Option<u8>> {
    let addrs = (addr..).step_by(PAGE_SIZE).take(pages);
    addrs.map(|addr| byte(mmu, addr)).collect()
}

#[test]
fn moved_pages_are_the_same_and_missing_ones_are_missing() {
    for shift in [0, 1, 511] {
        let mmu = SoftMmu::new();
        let [from, to] = [(); 2].map(|()| reserve(&mmu, 4 * TABLE_SPAN));
        let expected = of_all_kinds(&mmu, &from);
        let frames = mmu.present_pages();
        let first = bytes(&mmu, &from, from.addr);
        let place = to.addr + shift * PAGE_SIZE;
        let moved = mmu.move_pages((&from, from.addr), (&to, place), 1100 * PAGE_SIZE);
        moved.unwrap();
        assert_eq!(shown(&mmu, place, 1100), expected);
        assert_eq!(shown(&mmu, from.addr, 1100), vec![None; 1100]);
        assert_eq!(mmu.present_pages(), frames);
        assert_eq!(bytes(&mmu, &to, place), first, "no byte was copied");
        // Within one window, in its own tables.
        let half = 1400 * PAGE_SIZE;
        mmu.move_pages((&to, place), (&to, place + half), 40 * PAGE_SIZE)
            .unwrap();
        assert_eq!(shown(&mmu, place + half, 40), expected[..40]);
        assert_eq!(shown(&mmu, place, 40), vec![None; 40]);
        mmu.release(from);
        mmu.release(to);
        assert_eq!((mmu.present_pages(), mmu.table_pages()), (0, 1));
    }
}

#[test]
fn a_move_that_fails_leaves_each_page_in_one_place() {
    for spare_tables in 0..3 {
        // One of each upper level, and a leaf each of three pages.
        let mmu = SoftMmu::with_memory((2 + 2 + 3 * 2 + spare_tables) * PAGE_SIZE).unwrap();
        let [from, to] = reserve_together(&mmu, [3 * TABLE_SPAN; 2]);
        for leaf in 0..3 {
            let addr = from.addr + leaf * TABLE_SPAN;
            copy(&mmu, &from, addr, &[leaf as u8 + 1; PAGE_SIZE]).unwrap();
        }
        let whole = 3 * TABLE_SPAN;
        let moved = mmu.move_pages((&from, from.addr), (&to, to.addr), whole);
        // All but the page for which there was no table any more.
        let partial = moved.unwrap_err();
        assert_eq!(partial.error, MmuError::NoMemory);
        assert_eq!(partial.moved, spare_tables * TABLE_SPAN);
        for leaf in 0..3 {
            let value = Some(leaf as u8 + 1);
            let (old, new) = match leaf < spare_tables {
                true => (None, value),
                false => (value, None),
            };
            assert_eq!(
                byte(&mmu, from.addr + leaf * TABLE_SPAN),
                old,
                "leaf {leaf}"
            );
            assert_eq!(byte(&mmu, to.addr + leaf * TABLE_SPAN), new, "leaf {leaf}");
        }
        mmu.release(from);
        mmu.release(to);
        assert_eq!((mmu.present_pages(), mmu.table_pages()), (0, 1));
    }
}

#[test]
fn cores_are_bounded_and_come_back() {
    let rig = Rig::new(4096);
    let cores: Vec<_> = std::iter::from_fn(|| rig.mmu.core()).collect();
    assert_eq!(cores.len(), 1024);
    drop(cores);
    assert!(rig.mmu.core().is_some());
    rig.finish();
}

#[test]
fn a_file_is_shown_at_several_addresses_of_several_spaces() {
    let rig = Rig::new(4096);
    let store = TestStore::new(64 << 12);
    let cache = rig.map(&store);
    let other = ManuallyDrop::new(rig.another_space());
    let show = |space: &AddressSpace, addr: usize, first: usize, count: usize| {
        let attributes = Attributes {
            backing: Backing::from(cache.clone()),
            pgoff: first as u64,
            protection: Protection::Read,
            ..Attributes::default()
        };
        let range = addr..addr + count * PAGE_SIZE;
        space.mmap(range, attributes).unwrap();
    };
    let (one, two) = (1 << 45, 5 << 40);
    show(&rig.space, one, 10, 20);
    show(&other, two, 0, 64);
    let in_other = |page: usize| {
        rig.with_core(|core| {
            let addr = two + page * PAGE_SIZE + 5;
            fault::touch(core, &other, addr, &NeverInterrupted)
        })
    };
    for page in 0..20 {
        let expected = store.byte(((10 + page) * PAGE_SIZE + 5) as u64);
        assert_eq!(rig.touch(one + page * PAGE_SIZE + 5), Ok(expected));
        assert_eq!(in_other(10 + page), Ok(expected));
    }
    assert_eq!(
        rig.mmu.present_pages(),
        cache.residency(cache.addresses()).mapped
    );
    // One address is taken away, the others stay, and none is mixed up.
    rig.unmap(one..one + 20 * PAGE_SIZE);
    assert_eq!(rig.touch(one + 5), Err(FaultError::NotMapped));
    assert_eq!(in_other(10), Ok(store.byte((10 * PAGE_SIZE + 5) as u64)));
    show(&rig.space, one, 0, 20);
    assert_eq!(rig.touch(one + 5), Ok(store.byte(5)));
    ManuallyDrop::into_inner(other).exit(|_, _| {});
    drop(cache);
    rig.finish();
}

#[test]
fn an_access_that_stops_says_how_far_it_got() {
    let rig = Rig::new(4096);
    let store = TestStore::with_queue(64 << 12, 8);
    let cache = rig.map(&store);
    let start = cache.addresses().start;
    rig.touch(start).unwrap();
    let error = |done, error| {
        Err(Stopped {
            done,
            why: Stop::Error(error),
        })
    };
    // A hole between two mappings.
    rig.unmap(start + 8 * PAGE_SIZE..start + 9 * PAGE_SIZE);
    let mut found = vec![0; 4 * PAGE_SIZE];
    let from = start + 6 * PAGE_SIZE + 100;
    rig.with_core(|core| {
        let read = fault::read_at(core, &rig.space, from, &mut found, &NeverInterrupted);
        assert_eq!(read, error(2 * PAGE_SIZE - 100, FaultError::NotMapped));
        for (at, byte) in found[..2 * PAGE_SIZE - 100].iter().enumerate() {
            assert_eq!(*byte, store.byte((6 * PAGE_SIZE + 100 + at) as u64));
        }
        let written = fault::write_at(core, &rig.space, from, &[1], &NeverInterrupted);
        assert_eq!(written, error(0, FaultError::Protection));
        let beyond = usize::MAX - 10;
        let read = fault::read_at(core, &rig.space, beyond, &mut [0; 40], &NeverInterrupted);
        assert_eq!(read, error(0, FaultError::NotMapped));
    });
    // A read under way that is waited for, and an interruption.
    rig.evict_all();
    let rest = start + 16 * PAGE_SIZE..start + 64 * PAGE_SIZE;
    rig.space.madvise(rest, Advice::Random).unwrap();
    rig.touch(start + 31 * PAGE_SIZE).unwrap();
    store.close();
    fault::prefetch(&cache, start + 32 * PAGE_SIZE..start + 48 * PAGE_SIZE);
    let mut found = vec![0; 40 * PAGE_SIZE];
    let from = start + 32 * PAGE_SIZE - 10;
    let read = rig
        .with_core(|core| fault::read_at(core, &rig.space, from, &mut found, &AlwaysInterrupted));
    let why = Stop::Interrupted;
    assert_eq!(read, Err(Stopped { done: 10, why }));
    store.open();
    rig.read(start + 9 * PAGE_SIZE, &mut found).unwrap();
    for (at, byte) in found.iter().enumerate() {
        assert_eq!(*byte, store.byte((9 * PAGE_SIZE + at) as u64));
    }
    drop(cache);
    rig.finish();
}

#[test]
fn a_write_goes_over_pages_and_mappings() {
    let rig = Rig::new(4096);
    let start = 3 << 40;
    for (part, count) in [(0, 3), (3, 2), (5, 600)] {
        let anon = Anonymous::new(rig.node.clone(), count * PAGE_SIZE).unwrap();
        let attributes = Attributes {
            backing: Backing::from(anon),
            protection: Protection::ReadWrite,
            ..Attributes::default()
        };
        let range = start + part * PAGE_SIZE..start + (part + count) * PAGE_SIZE;
        rig.space.mmap(range, attributes).unwrap();
    }
    for (at, bytes) in [
        (1, 3),
        (4095, 2),
        (2 * PAGE_SIZE + 7, 5 * PAGE_SIZE),
        (0, 8),
    ] {
        let text: Vec<u8> = (0..bytes).map(|byte| (byte * 31 + at) as u8).collect();
        rig.write(start + at, &text).unwrap();
        let mut found = vec![0; bytes];
        rig.read(start + at, &mut found).unwrap();
        assert_eq!(found, text);
    }
    rig.space.exit(|_, _| {});
    assert_eq!(rig.mmu.present_pages(), 0);
    rig.finish();
}
