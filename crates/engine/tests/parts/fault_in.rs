//! Many ranges at once: reads are in flight together, each page is read once, present pages cost no fault,
//! and each range has the error of its own first page.

use crate::files::{pages, random};
use softfault_engine::PAGE_SIZE;
use softfault_engine::anon::{Anonymous, PrivateFile};
use softfault_engine::cache::{OnTruncate, PageCache};
use softfault_engine::fault::{self, FaultError, FaultInMany, Interrupt, NeverInterrupted};
use softfault_engine::fault::{FaultInError, Pin, Populated};
use softfault_engine::mm::{AddressSpace, Advice, Attributes, Backing, Protection};
use softfault_engine::policy::Policies;
use softfault_oracle::{Random, Rig, TestStore, TestSwap};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

const PAGES: u64 = 2048;
const FILE: usize = 4096;

/// Brings ranges of pages behind `start` in; returns the errors of those that did not come.
fn bring_in(rig: &Rig, start: usize, ranges: &[Range<usize>]) -> BTreeMap<usize, FaultInError> {
    let mut many = many(start, ranges);
    assert!(many.run(&rig.space, &NeverInterrupted));
    many.failed().collect()
}

fn many(start: usize, ranges: &[Range<usize>]) -> FaultInMany {
    let bytes =
        |pages: &Range<usize>| start + pages.start * PAGE_SIZE..start + pages.end * PAGE_SIZE;
    let all = ranges.iter().map(bytes).enumerate();
    FaultInMany::new(all.collect(), false)
}

/// So many pages, none next to another, in no order.
fn scattered(count: usize) -> Vec<Range<usize>> {
    let page = |i: usize| i * 1021 % FILE / 2 * 2;
    (0..count).map(|i| page(i)..page(i) + 1).collect()
}

fn faults(rig: &Rig) -> u64 {
    let stats = &rig.node.stats;
    stats.major_faults.get() + stats.minor_faults.get() + stats.spurious.get()
}

fn finish(rig: Rig, cache: Arc<PageCache>) {
    rig.unmap(cache.addresses());
    drop(cache);
    rig.finish();
}

#[test]
fn scattered_pages_are_read_together_and_once() {
    let rig = Rig::new(PAGES);
    let store = TestStore::with_queue(pages(FILE), 64);
    let (cache, start) = random(&rig, &store);
    let ranges = scattered(300);
    store.close();
    thread::scope(|scope| {
        scope.spawn(|| assert_eq!(bring_in(&rig, start, &ranges), BTreeMap::new()));
        // As many as the device takes: before, one was waited for after the other.
        store.wait_blocked(64);
        store.open();
    });
    let mut wanted: Vec<Range<u64>> = (ranges.iter())
        .map(|pages| pages.start as u64..pages.end as u64)
        .collect();
    let mut read = store.reads();
    wanted.sort_by_key(|pages| pages.start);
    read.sort_by_key(|pages| pages.start);
    assert_eq!(read, wanted);
    // Reads of ours are nobody's pattern, and nobody's misses.
    assert!(rig.node.stats.readahead_used.get() == 0);

    let before = faults(&rig);
    assert_eq!(bring_in(&rig, start, &ranges), BTreeMap::new());
    assert_eq!(faults(&rig), before, "a present page costs a look");
    assert_eq!(store.reads().len(), 300);
    for pages in ranges {
        let at = pages.start * PAGE_SIZE;
        assert_eq!(rig.touch(start + at), Ok(store.byte(at as u64)));
    }
    finish(rig, cache);
}

/// Each range is told of once, in the order of addresses, while others are being read; those that failed are not.
#[test]
fn ranges_are_told_of_as_they_arrive() {
    let rig = Rig::new(PAGES);
    let store = TestStore::with_queue(pages(FILE), 64);
    let (cache, start) = random(&rig, &store);
    let mut ranges = scattered(300);
    ranges.extend([ranges[7].clone(), 9..9]);
    let failing = ranges[20].clone();
    store.fail(failing.start as u64, Some(5));
    let mut told = Vec::new();
    let mut reads_at_first = 0;
    let mut arrived = |place: usize| {
        if told.is_empty() {
            reads_at_first = store.reads().len();
            // What a caller does with the pages may make them go, and read them again.
            rig.evict_all();
        }
        let at = ranges[place].start * PAGE_SIZE;
        assert_eq!(rig.touch(start + at), Ok(store.byte(at as u64)));
        told.push(place);
    };
    let mut many = many(start, &ranges);
    assert!(many.run_each(&rig.space, &NeverInterrupted, &mut arrived));
    let failed: Vec<usize> = many.failed().map(|(place, _)| place).collect();
    assert_eq!(failed, [20]);
    assert!(reads_at_first < 300, "{reads_at_first}");
    assert!(told.is_sorted_by_key(|&place| ranges[place].start));
    told.sort_unstable();
    let all: Vec<usize> = (0..ranges.len()).filter(|&place| place != 20).collect();
    assert_eq!(told, all);
    finish(rig, cache);
}

#[test]
fn files_are_read_together() {
    let rig = Rig::new(PAGES);
    let stores = [(); 3].map(|()| TestStore::with_queue(pages(FILE), 8));
    let caches = [0, 1, 2].map(|file| random(&rig, &stores[file]));
    // Of each file in turn, as many as its device takes at a time and more.
    let ranges = (0..36).map(|i| {
        let start = caches[i % 3].1 + (i / 3) * 40 * PAGE_SIZE;
        (i, start..start + PAGE_SIZE)
    });
    let mut many = FaultInMany::new(ranges.collect(), false);
    stores.iter().for_each(|store| store.close());
    thread::scope(|scope| {
        let many = &mut many;
        let (space, none) = (&rig.space, NeverInterrupted);
        scope.spawn(move || assert!(many.run(space, &none)));
        // Reads of all files are in flight before the first of any has come.
        stores.iter().for_each(|store| store.wait_blocked(8));
        stores.iter().for_each(|store| store.open());
    });
    assert_eq!(many.failed().count(), 0);
    for ((cache, _), store) in caches.into_iter().zip(&stores) {
        assert_eq!(store.reads().len(), 12);
        rig.unmap(cache.addresses());
        drop(cache);
    }
    rig.finish();
}

#[test]
fn ranges_overlap_touch_repeat_and_have_no_pages() {
    let rig = Rig::new(PAGES);
    let store = TestStore::with_queue(pages(FILE), 64);
    let (cache, start) = random(&rig, &store);
    let (end, begin) = (4, 9);
    let (a, b) = (5..5, begin..end);
    let ranges = [100..140, 3..7, 130..150, 150..152, 3..7, a, b, 6..7, 0..1];
    assert_eq!(bring_in(&rig, start, &ranges), BTreeMap::new());
    let read: u64 = store
        .reads()
        .iter()
        .map(|pages| pages.end - pages.start)
        .sum();
    assert_eq!(read, 52 + 4 + 1, "{:?}", store.reads());
    let residency = cache.residency(start + 100 * PAGE_SIZE..start + 152 * PAGE_SIZE);
    assert_eq!(residency.mapped, 52);
    // Bytes, not pages: a range has the pages that its bytes are in.
    let bytes = (
        start + 200 * PAGE_SIZE - 1..start + 200 * PAGE_SIZE + 1,
        start + 1..start + 1,
    );
    let mut many = FaultInMany::new(vec![(0, bytes.0), (1, bytes.1)], false);
    assert!(many.run(&rig.space, &NeverInterrupted));
    let residency = cache.residency(start + 199 * PAGE_SIZE..start + 201 * PAGE_SIZE);
    assert_eq!(residency.mapped, 2);
    finish(rig, cache);
}

#[test]
fn neighbours_share_a_read() {
    let rig = Rig::new(PAGES);
    let store = TestStore::with_queue(pages(FILE), 64);
    let (cache, start) = random(&rig, &store);
    let ranges: Vec<Range<usize>> = (0..256).map(|page| page..page + 1).collect();
    assert_eq!(bring_in(&rig, start, &ranges), BTreeMap::new());
    let reads = store.reads().len();
    assert!(reads <= 256 / 16, "{reads} reads");
    finish(rig, cache);
}

#[test]
fn a_failing_page_is_the_error_of_the_ranges_that_have_it() {
    for queue in [0, 3, 64] {
        let rig = Rig::new(PAGES);
        let store = TestStore::with_queue(pages(FILE), queue);
        let (cache, start) = random(&rig, &store);
        store.fail(20, Some(5));
        store.fail(35, Some(61));
        let ranges = [0..64, 16..20, 20..21, 21..35, 30..40, 36..64, 10..22];
        let (eio, enodata) = (
            FaultInError::Error(FaultError::Io(5)),
            FaultInError::Error(FaultError::Io(61)),
        );
        let failed = bring_in(&rig, start, &ranges);
        let expected = [(0, eio), (2, eio), (4, enodata), (6, eio)];
        assert_eq!(failed, expected.into(), "queue {queue}");
        for page in (16..20).chain(21..35).chain(36..64) {
            assert!(
                cache
                    .residency(start + page * PAGE_SIZE..start + page * PAGE_SIZE + 1)
                    .mapped
                    == 1
            );
        }
        store.fail(20, None);
        store.fail(35, None);
        assert_eq!(
            bring_in(&rig, start, &ranges),
            BTreeMap::new(),
            "it is read again"
        );
        finish(rig, cache);
    }
}

#[test]
fn a_dead_disk_is_asked_once_a_range() {
    let rig = Rig::new(PAGES);
    let store = TestStore::new(pages(FILE));
    let (cache, start) = random(&rig, &store);
    (0..FILE as u64).for_each(|page| store.fail(page, Some(5)));
    let failed = bring_in(&rig, start, &[0..2000, 0..FILE, 2000..2001]);
    assert_eq!(failed.len(), 3);
    assert!(store.reads().len() <= 8, "{:?}", store.reads());
    finish(rig, cache);
}

#[test]
fn ranges_of_several_mappings_and_of_none() {
    let rig = Rig::new(PAGES);
    let store = TestStore::with_queue(pages(FILE), 64);
    let (cache, start) = random(&rig, &store);
    let at = |page: usize| start + page * PAGE_SIZE;
    rig.protect(at(8)..at(10), Protection::None);
    rig.unmap(at(20)..at(24));
    rig.space
        .madvise(at(40)..at(50), Advice::Sequential)
        .unwrap();
    let ranges = [
        0..8,
        7..9,
        10..20,
        18..21,
        24..60,
        23..24,
        FILE..FILE + 1,
        30..45,
    ];
    let protection = FaultInError::Error(FaultError::Protection);
    let not_mapped = FaultInError::Error(FaultError::NotMapped);
    let expected = [
        (1, protection),
        (3, not_mapped),
        (5, not_mapped),
        (6, not_mapped),
    ];
    assert_eq!(bring_in(&rig, start, &ranges), expected.into());
    rig.unmap(at(0)..at(20));
    rig.unmap(at(24)..at(FILE));
    drop(cache);
    rig.finish();
}

#[test]
fn ranges_that_are_larger_than_the_budget_come_and_go() {
    let rig = Rig::new(PAGES);
    let store = TestStore::with_queue(pages(FILE), 64);
    let (cache, start) = random(&rig, &store);
    let all = 0..FILE;
    assert_eq!(bring_in(&rig, start, &[all, 7..9]), BTreeMap::new());
    // None was dropped between its read and its mapping: each page was read once.
    let read: u64 = store
        .reads()
        .iter()
        .map(|pages| pages.end - pages.start)
        .sum();
    assert_eq!(read, FILE as u64);
    // `finish` asserts that the budget was kept.
    finish(rig, cache);
}

/// A thread that something else wants, from some moment on.
#[derive(Default)]
struct Wanted(AtomicBool);

impl Interrupt for Wanted {
    fn pending(&self) -> bool {
        self.0.load(Relaxed)
    }
}

#[test]
fn an_interrupted_caller_goes_on_without_reading_twice() {
    let rig = Rig::new(PAGES);
    let store = TestStore::with_queue(pages(FILE), 32);
    let (cache, start) = random(&rig, &store);
    let ranges = scattered(100);
    let wanted = Wanted::default();
    store.close();
    thread::scope(|scope| {
        let run = scope.spawn(|| {
            let mut many = many(start, &ranges);
            assert!(!many.run(&rig.space, &wanted), "it was interrupted");
            wanted.0.store(false, Relaxed);
            store.open();
            assert!(many.run(&rig.space, &wanted));
            assert_eq!(many.failed().next(), None);
        });
        store.wait_blocked(32);
        wanted.0.store(true, Relaxed);
        run.join().unwrap();
    });
    assert_eq!(store.reads().len(), 100);
    finish(rig, cache);
}

#[test]
fn a_caller_past_its_deadline_gets_the_present_pages() {
    let rig = Rig::new(PAGES);
    let store = TestStore::with_queue(pages(FILE), 32);
    let (cache, start) = random(&rig, &store);
    let there: Vec<Range<usize>> = (0..40).map(|i| i * 50..i * 50 + 2).collect();
    assert_eq!(bring_in(&rig, start, &there), BTreeMap::new());
    store.close();
    let absent = (0..40).map(|i| i * 50 + 1..i * 50 + 3);
    let ranges: Vec<Range<usize>> = there.iter().cloned().chain(absent).collect();
    let wanted = Wanted::default();
    thread::scope(|scope| {
        let run = scope.spawn(|| {
            let mut many = many(start, &ranges);
            assert!(!many.run(&rig.space, &wanted));
            many.stop_waiting();
            assert!(many.run(&rig.space, &wanted));
            let failed: BTreeMap<usize, FaultInError> = many.failed().collect();
            let expected = (40..80).map(|place| (place, FaultInError::TimedOut));
            assert_eq!(failed, expected.collect());
        });
        store.wait_blocked(32);
        wanted.0.store(true, Relaxed);
        run.join().unwrap();
    });
    let begun = store.reads().len();
    store.open();
    // Nobody waits, and nothing is lost.
    assert_eq!(bring_in(&rig, start, &ranges), BTreeMap::new());
    assert!(store.reads().len() >= begun);
    finish(rig, cache);
}

/// Wants its thread once so many reads were begun.
struct After<'a>(&'a TestStore, usize);

impl Interrupt for After<'_> {
    fn pending(&self) -> bool {
        self.0.reads().len() >= self.1
    }
}

/// Where the store takes no reads, the caller does them itself. Failed before: all of those that were in line, 97 of them.
#[test]
fn no_read_starts_after_a_deadline_where_the_caller_reads() {
    let rig = Rig::new(PAGES);
    let store = TestStore::new(pages(FILE));
    let (cache, start) = random(&rig, &store);
    let ranges = scattered(100);
    let mut many = many(start, &ranges);
    let after = After(&store, 5);
    assert!(!many.run(&rig.space, &after));
    many.stop_waiting();
    assert!(many.run(&rig.space, &after));
    assert_eq!((many.failed().count(), store.reads().len()), (95, 5));
    finish(rig, cache);
}

/// The reads that a caller that brings `range` in by another verb has in flight at a time: as many reads of single
/// pages as the store takes. Failed before: one was waited for after the other.
fn reads_together(bring_in: impl Fn(&AddressSpace, &Arc<PageCache>, Range<usize>) + Sync) {
    let rig = Rig::new(PAGES);
    let store = TestStore::with_queue(pages(FILE), 12);
    // Every other page is a hole: no two can be read at once.
    (0..512).for_each(|page| store.punch(2 * page..2 * page + 1));
    let (cache, start) = random(&rig, &store);
    store.close();
    let range = start..start + 200 * PAGE_SIZE;
    thread::scope(|scope| {
        let done = scope.spawn(|| bring_in(&rig.space, &cache, range.clone()));
        store.wait_blocked(12);
        store.open();
        done.join().unwrap();
    });
    assert_eq!(store.reads().len(), 100);
    finish(rig, cache);
}

#[test]
fn populate_reads_ahead_of_itself() {
    reads_together(|space, _, range| {
        let done = fault::populate(space, range, false, &NeverInterrupted);
        assert_eq!(done, Populated::Done);
    });
}

#[test]
fn a_pin_reads_ahead_of_itself() {
    reads_together(|space, cache, range| {
        let pages = cache.admit_pin(&range).expect("room for a pin");
        let pin = fault::pin(space, cache, range.clone(), range.start, &NeverInterrupted);
        assert_eq!(pin, Pin::Done);
        fault::unpin(cache, range);
        cache.dismiss_pin(pages);
    });
}

fn map_private(rig: &Rig, anon: &Arc<Anonymous>) -> usize {
    let attributes = Attributes {
        backing: Backing::from(anon.clone()),
        protection: Protection::ReadWrite,
        ..Attributes::default()
    };
    rig.space.mmap(anon.addresses(), attributes).unwrap();
    anon.addresses().start
}

#[test]
fn pages_in_swap_come_back_together() {
    let swap = TestSwap::with_queue(1 << 13, 32);
    let rig = Rig::with_swap(PAGES, Policies::default(), &swap);
    let anon = Anonymous::new(rig.node.clone(), 2048 * PAGE_SIZE).unwrap();
    let start = map_private(&rig, &anon);
    for page in 0..2048 {
        rig.write(start + page * PAGE_SIZE, &[page as u8]).unwrap();
    }
    rig.evict_all();
    let ranges: Vec<Range<usize>> = (0..120).map(|i| i * 17..i * 17 + 1).collect();
    swap.close();
    thread::scope(|scope| {
        let run = scope.spawn(|| bring_in(&rig, start, &ranges));
        swap.wait_blocked(16);
        swap.open();
        assert_eq!(run.join().unwrap(), BTreeMap::new());
    });
    let before = faults(&rig);
    assert_eq!(bring_in(&rig, start, &ranges), BTreeMap::new());
    assert_eq!(faults(&rig), before);
    for pages in ranges {
        assert_eq!(
            rig.touch(start + pages.start * PAGE_SIZE),
            Ok(pages.start as u8)
        );
    }
    rig.unmap(anon.addresses());
    drop(anon);
    rig.finish();
}

#[test]
fn a_locked_part_of_a_private_file_is_read_together() {
    let rig = Rig::new(PAGES);
    let store = TestStore::with_queue(pages(256), 16);
    (0..128).for_each(|page| store.punch(2 * page..2 * page + 1));
    let private_file = PrivateFile {
        store: store.clone(),
        offset: 0,
    };
    let bytes = 256 * PAGE_SIZE;
    let anon =
        Anonymous::of_file(rig.node.clone(), bytes, private_file, OnTruncate::Error).unwrap();
    let start = map_private(&rig, &anon);
    store.close();
    let range = start..start + 100 * PAGE_SIZE;
    thread::scope(|scope| {
        let lock = || fault::lock(&rig.space, range.clone(), true, &NeverInterrupted);
        let run = scope.spawn(lock);
        store.wait_blocked(16);
        store.open();
        assert_eq!(run.join().unwrap(), Populated::Done);
    });
    fault::unlock(&rig.space, range);
    rig.unmap(anon.addresses());
    drop(anon);
    rig.finish();
}

/// Ranges, holes and failing pages, drawn; budgets and queues of any size. The result of each range is
/// that of its own first failing page, whoever else has that page.
#[test]
fn drawn_ranges_have_the_errors_of_their_own_pages() {
    for seed in 0..96 {
        let mut random = Random::new(seed);
        let mut draw = |most: usize| random.below(most);
        let rig = Rig::new([2048, 4096, 8192][draw(3)]);
        let store = TestStore::with_queue(pages(1024), [0, 1, 7, 64][draw(4)]);
        let advice = [Advice::Normal, Advice::Random, Advice::Sequential][draw(3)];
        for _ in 0..draw(6) {
            let start = draw(1000) as u64;
            store.punch(start..start + draw(40) as u64);
        }
        let mut fails = BTreeMap::new();
        for _ in 0..draw(40) {
            let (page, errno) = (draw(1024), draw(130) as i32 + 1);
            store.fail(page as u64, Some(errno));
            fails.insert(page, errno);
        }
        // The file has become shorter, and nobody has said so.
        let len = if draw(3) == 0 { 700 } else { 1024 };
        store.set_len(pages(len));
        let cache = PageCache::new(
            rig.node.clone(),
            store.clone(),
            pages(1024),
            OnTruncate::Error,
        );
        let cache = cache.unwrap();
        rig.map_window(&cache);
        let start = cache.addresses().start;
        rig.space.madvise(cache.addresses(), advice).unwrap();
        let count = draw(300);
        let ranges: Vec<Range<usize>> = (0..count)
            .map(|_| {
                let start = draw(1000);
                let most = [3, 24, 200][draw(3)];
                start..start + draw(most)
            })
            .map(|pages| pages.start..pages.end.min(1024))
            .collect();
        for round in 0..2 {
            let failed = bring_in(&rig, start, &ranges);
            for (place, pages) in ranges.iter().enumerate() {
                let expected = pages.clone().find_map(|page| match fails.get(&page) {
                    _ if is_hole(&store, page) => None,
                    Some(&errno) => Some(FaultInError::Error(FaultError::Io(errno))),
                    None if page >= len => Some(FaultInError::Error(FaultError::BeyondEnd)),
                    None => None,
                });
                let got = failed.get(&place).copied();
                assert_eq!(
                    got, expected,
                    "seed {seed}, round {round}, {pages:?} of {ranges:?}"
                );
            }
        }
        for (place, pages) in ranges
            .iter()
            .enumerate()
            .filter(|(_, pages)| !pages.is_empty())
        {
            let at = pages.start * PAGE_SIZE;
            if !bring_in(&rig, start, &ranges).contains_key(&place) {
                assert_eq!(rig.touch(start + at), Ok(store.byte(at as u64)));
            }
            if place > 4 {
                break;
            }
        }
        finish(rig, cache);
    }
}

fn is_hole(store: &TestStore, page: usize) -> bool {
    use softfault_engine::store::{Extent, Store};
    matches!(store.extent(pages(page)), Ok(Extent::Hole(_)))
}
