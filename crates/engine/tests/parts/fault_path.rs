//! The fault path over the soft page tables, with a store whose reads the test
//! holds back.

use crate::files::{AlwaysInterrupted, pages, pin, random};
use crate::retry::at_its_retry;
use softfault_engine::PAGE_SIZE;
use softfault_engine::Store;
use softfault_engine::cache::{OnTruncate, PageCache};
use softfault_engine::fault::{self, Completion, FaultError, FaultFlags, Interrupt, Outcome};
use softfault_engine::mm::{Advice, Protection};
use softfault_oracle::{Rig, TestStore, byte_at};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

const PAGES: u64 = 2048;

#[test]
fn a_touch_reads_its_page_and_the_next_touch_finds_it() {
    let rig = Rig::new(PAGES);
    let store = TestStore::new(pages(64));
    let (cache, start) = random(&rig, &store);
    assert_eq!(
        rig.touch(start + 5 * PAGE_SIZE + 7),
        Ok(store.byte(pages(5) + 7))
    );
    assert_eq!(rig.fault(start + 5 * PAGE_SIZE), Outcome::Mapped);
    let stats = &rig.node.stats;
    assert_eq!((stats.major_faults.get(), stats.spurious.get()), (1, 1));
    assert_eq!(
        (stats.retry_mmap_drop.get(), stats.retry_io_miss.get()),
        (1, 0)
    );
    assert_eq!(store.reads(), vec![5..6; 1]);
    drop(cache);
    rig.finish();
}

#[test]
fn errors_are_values() {
    let rig = Rig::new(PAGES);
    let store = TestStore::new(pages(4) + 1);
    let cache = rig.map(&store);
    let (start, end) = (cache.addresses().start, cache.addresses().end);
    let not_mapped = Outcome::Error(FaultError::NotMapped);
    assert_eq!(rig.fault(end), not_mapped);
    let write = FaultFlags {
        write: true,
        ..FaultFlags::default()
    };
    let outcome = fault::handle(&rig.space, start, write, &fault::NeverInterrupted);
    assert_eq!(outcome, Outcome::Error(FaultError::Protection));
    let first = start..start + PAGE_SIZE;
    rig.space.mprotect(first.clone(), Protection::None).unwrap();
    assert_eq!(rig.fault(start), Outcome::Error(FaultError::Protection));
    rig.unmap(first);
    assert_eq!(rig.fault(start), not_mapped);
    assert_eq!(store.reads(), []);
    drop(cache);
    rig.finish();
}

#[test]
fn a_read_that_fails_is_told_once_and_tried_again() {
    let rig = Rig::new(PAGES);
    let store = TestStore::new(pages(64));
    let (cache, start) = random(&rig, &store);
    store.fail(3, Some(5));
    let addr = start + 3 * PAGE_SIZE;
    for _ in 0..3 {
        assert_eq!(rig.touch(addr), Err(FaultError::Io(5)));
        assert_eq!(cache.folio_count(), 0, "a failed folio was kept");
    }
    assert_eq!(rig.node.stats.read_errors.get(), 3);
    store.fail(3, None);
    assert_eq!(rig.touch(addr), Ok(store.byte(pages(3))));
    assert_eq!(store.reads().len(), 4);
    drop(cache);
    rig.finish();
}

#[test]
fn a_failed_read_ahead_is_nobodys_error() {
    let rig = Rig::new(PAGES);
    let store = TestStore::with_queue(pages(256), 64);
    let cache = rig.map(&store);
    let start = cache.addresses().start;
    store.fail(9, Some(5));
    fault::prefetch(&cache, start..start + 32 * PAGE_SIZE);
    store.reap(u64::MAX, &Completion(&rig.node), 0);
    assert_eq!(rig.touch(start + 20 * PAGE_SIZE), Ok(store.byte(pages(20))));
    assert_eq!(rig.touch(start + 9 * PAGE_SIZE), Err(FaultError::Io(5)));
    store.fail(9, None);
    assert_eq!(rig.touch(start + 9 * PAGE_SIZE), Ok(store.byte(pages(9))));
    drop(cache);
    rig.finish();
}

/// A device serves requests in turn: behind the read-ahead that it leads to, a touch would wait for megabytes.
/// A map of which page 21 cannot be read, and a touch reads the rest of its block.
fn sequential(rig: &Rig, queue: usize) -> (Arc<TestStore>, Arc<PageCache>, usize) {
    let store = TestStore::with_queue(pages(1024), queue);
    let cache = rig.map(&store);
    let all = cache.addresses();
    let start = all.start;
    rig.space.madvise(all, Advice::Sequential).unwrap();
    store.fail(21, Some(5));
    (store, cache, start)
}

/// The store fails a read as a whole, and the touch is of another page of it. Failed before: the touch had that page's error.
#[test]
fn a_page_that_cannot_be_read_is_no_error_of_its_neighbours() {
    for queue in [0, 64] {
        let rig = Rig::new(PAGES);
        let (store, cache, start) = sequential(&rig, queue);
        let at = |page: usize| start + page * PAGE_SIZE;
        assert_eq!(rig.touch(at(16)), Ok(store.byte(pages(16))));
        pin(&rig, &cache, at(17)..at(18));
        fault::unpin(&cache, at(17)..at(18));
        for page in 16..32 {
            let bytes = match page {
                21 => Err(FaultError::Io(5)),
                _ => Ok(store.byte(pages(page))),
            };
            assert_eq!(rig.touch(at(page)), bytes, "page {page}, queue {queue}");
        }
        drop(cache);
        rig.finish();
    }
}

/// Whether a fault has waited.
#[derive(Default)]
struct Waits(AtomicBool);

impl Interrupt for Waits {
    fn pending(&self) -> bool {
        self.0.store(true, Relaxed);
        false
    }
}

/// Nor is it one of a call that asks for a page alone, and finds what a touch has read.
#[test]
fn a_page_that_is_asked_for_has_its_own_error() {
    let rig = Rig::new(PAGES);
    let (store, cache, start) = sequential(&rig, 0);
    store.close();
    let (space, waits) = (&rig.space, &Waits::default());
    thread::scope(|scope| {
        let touch = scope.spawn(|| rig.touch(start + 16 * PAGE_SIZE));
        store.wait_blocked(1);
        let asked = FaultFlags {
            asked: 1,
            ..FaultFlags::default()
        };
        let asks = scope.spawn(move || fault::handle(space, start + 20 * PAGE_SIZE, asked, waits));
        while !waits.0.load(Relaxed) {
            thread::yield_now();
        }
        store.open();
        assert_eq!(asks.join().unwrap(), Outcome::Mapped);
        assert_eq!(touch.join().unwrap(), Ok(store.byte(pages(16))));
    });
    drop(cache);
    rig.finish();
}

/// Of a read that the fault has begun before its read-ahead, and that fails. Failed before: the touch was told to read-ahead again, which
/// planned the same pages for a new reader.
#[test]
fn a_touch_whose_read_fails_is_told_to_read_ahead_once() {
    let rig = Rig::new(PAGES);
    let (store, cache, start) = sequential(&rig, 64);
    assert_eq!(rig.touch(start + 16 * PAGE_SIZE), Ok(store.byte(pages(16))));
    let own: Vec<_> = (store.reads().into_iter())
        .filter(|read| read.contains(&16))
        .collect();
    assert_eq!(own, [16..32, 16..17]);
    drop(cache);
    rig.finish();
}

#[test]
fn the_touched_page_is_read_before_its_read_ahead() {
    let rig = Rig::new(PAGES);
    let store = TestStore::with_queue(pages(1024), 64);
    let cache = rig.map(&store);
    let start = cache.addresses().start;
    let all = start..start + 1024 * PAGE_SIZE;
    rig.space.madvise(all, Advice::Sequential).unwrap();
    // Of a read that fails, which nobody asked for as far as the store knows, the touch has the error.
    store.fail(300, Some(5));
    for _ in 0..2 {
        let before = store.reads().len();
        assert_eq!(rig.touch(start + 300 * PAGE_SIZE), Err(FaultError::Io(5)));
        let reads = store.reads().split_off(before);
        assert!(
            reads.first().is_some_and(|read| read.contains(&300)),
            "{reads:?}"
        );
    }
    store.fail(300, None);
    let before = store.reads().len();
    assert_eq!(
        rig.touch(start + 600 * PAGE_SIZE),
        Ok(store.byte(pages(600)))
    );
    let reads = store.reads().split_off(before);
    assert!(reads[0].contains(&600) && reads.len() > 1, "{reads:?}");
    let ahead: u64 = reads[1..].iter().map(|read| read.end - read.start).sum();
    assert!(ahead > 16, "{reads:?}");
    drop(cache);
    rig.finish();
}

#[test]
fn a_file_that_became_shorter_shows_its_bytes() {
    for on_truncate in [OnTruncate::Error, OnTruncate::Zeros] {
        let rig = Rig::new(PAGES);
        let store = TestStore::new(pages(64));
        let cache = rig.map_with(&store, on_truncate);
        let start = cache.addresses().start;
        rig.space
            .madvise(cache.addresses(), Advice::Sequential)
            .unwrap();
        // By somebody else: the cache is not told.
        store.set_len(pages(2) + 100);
        let beyond = |at: usize| match on_truncate {
            OnTruncate::Error => (rig.touch(at), Err(FaultError::BeyondEnd)),
            OnTruncate::Zeros => (rig.touch(at), Ok(0)),
        };
        for page in [9, 3, 40, 3] {
            let (found, expected) = beyond(start + page * PAGE_SIZE);
            assert_eq!(found, expected, "page {page}");
        }
        let last = start + 2 * PAGE_SIZE;
        assert_eq!(rig.touch(last + 99), Ok(byte_at(0, pages(2) + 99)));
        assert_eq!(rig.touch(last + 100), Ok(0));
        assert_eq!(rig.touch(last + PAGE_SIZE - 1), Ok(0));
        drop(cache);
        rig.finish();
    }
}

#[test]
fn holes_cost_no_read_and_no_frame() {
    let rig = Rig::new(PAGES);
    let store = TestStore::new(pages(3000));
    store.punch(0..2900);
    let cache = rig.map(&store);
    let start = cache.addresses().start;
    let before = rig.node.budget.charged();
    for page in (0..2900).rev().step_by(7) {
        assert_eq!(rig.touch(start + page * PAGE_SIZE + page), Ok(0));
    }
    assert_eq!(store.reads(), []);
    assert_eq!(rig.node.stats.bytes_read.get(), 0);
    // Six page tables and the window's own pages.
    let cost = rig.node.budget.charged() - before;
    assert!(cost <= 6 + 3, "{cost} pages for holes");
    assert_eq!(
        rig.touch(start + 2900 * PAGE_SIZE),
        Ok(store.byte(pages(2900)))
    );
    drop(cache);
    rig.finish();
}

#[test]
fn no_vma_lock_is_held_while_a_read_is_under_way() {
    let rig = Rig::new(PAGES);
    let store = TestStore::new(pages(64));
    let (cache, start) = random(&rig, &store);
    store.close();
    thread::scope(|scope| {
        let reader = scope.spawn(|| rig.fault(start));
        store.wait_blocked(1);
        // Both would wait for ever if the fault held its VMA.
        rig.unmap(start + 32 * PAGE_SIZE..start + 64 * PAGE_SIZE);
        rig.unmap(start..start + PAGE_SIZE);
        store.open();
        let outcome = reader.join().unwrap();
        assert_eq!(outcome, Outcome::Error(FaultError::NotMapped));
    });
    // Nobody came back for the folio: it can be evicted all the same.
    assert_eq!(cache.folio_count(), 1);
    rig.evict_all();
    assert_eq!(cache.folio_count(), 0);
    drop(cache);
    rig.finish();
}

#[test]
fn one_reads_and_the_others_wait() {
    const THREADS: u64 = 5;
    let rig = Rig::new(PAGES);
    let store = TestStore::new(pages(64));
    let (cache, start) = random(&rig, &store);
    store.close();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| assert_eq!(rig.touch(start), Ok(store.byte(0))));
        }
        store.wait_blocked(1);
        store.open();
    });
    let stats = &rig.node.stats;
    assert_eq!(store.reads(), vec![0..1; 1]);
    assert_eq!(stats.major_faults.get(), 1);
    assert_eq!(
        stats.retry_io_miss.get(),
        0,
        "each keeps the page that it waited for"
    );
    assert!(stats.retry_mmap_drop.get() <= THREADS);
    drop(cache);
    rig.finish();
}

#[test]
fn a_folio_that_went_before_the_retry_is_counted() {
    let rig = Rig::new(PAGES);
    let store = TestStore::new(pages(64));
    let (cache, start) = random(&rig, &store);
    store.close();
    at_its_retry(&rig, &store, start, |mmap| {
        // Waits for the read, whose folio is locked until it is over.
        cache.invalidate(start..start + PAGE_SIZE);
        assert_eq!(cache.folio_count(), 0);
        drop(mmap);
    });
    let stats = &rig.node.stats;
    assert_eq!(stats.retry_io_miss.get(), 1);
    assert_eq!(stats.retry_mmap_drop.get(), 2);
    assert_eq!(stats.major_faults.get(), 2);
    assert_eq!(store.reads(), [0..1, 0..1]);
    drop(cache);
    rig.finish();
}

#[test]
fn a_waiting_fault_can_be_interrupted() {
    let rig = Rig::new(PAGES);
    let store = TestStore::with_queue(pages(64), 8);
    let cache = rig.map(&store);
    let start = cache.addresses().start;
    store.close();
    fault::prefetch(&cache, start..start + 16 * PAGE_SIZE);
    let outcome = fault::handle(&rig.space, start, FaultFlags::default(), &AlwaysInterrupted);
    assert_eq!(outcome, Outcome::Interrupted);
    store.open();
    assert_eq!(rig.touch(start), Ok(store.byte(0)));
    drop(cache);
    rig.finish();
}

#[test]
fn a_cache_that_is_dropped_waits_for_its_reads() {
    let rig = Rig::new(PAGES);
    let store = TestStore::with_queue(pages(64), 8);
    let cache = rig.map(&store);
    let range = cache.addresses();
    store.close();
    fault::prefetch(&cache, range.clone());
    rig.unmap(range);
    thread::scope(|scope| {
        let dropper = scope.spawn(move || drop(cache));
        store.wait_blocked(1);
        assert!(!dropper.is_finished());
        store.open();
    });
    rig.finish();
}

#[test]
fn truncate_and_growth_show_the_file() {
    let rig = Rig::new(PAGES);
    let store = TestStore::new(pages(64));
    let cache = rig.map(&store);
    let start = cache.addresses().start;
    for page in 0..64 {
        rig.touch(start + page * PAGE_SIZE).unwrap();
    }
    let cut = pages(20) + 50;
    store.set_len(cut);
    cache.truncate(cut);
    assert_eq!(rig.touch(start + cut as usize - 1), Ok(byte_at(0, cut - 1)));
    assert_eq!(rig.touch(start + cut as usize), Ok(0));
    assert_eq!(
        rig.touch(start + 21 * PAGE_SIZE),
        Err(FaultError::BeyondEnd)
    );
    store.set_len(pages(100));
    cache.truncate(pages(100));
    assert_eq!(rig.touch(start + cut as usize - 1), Ok(byte_at(0, cut - 1)));
    assert_eq!(rig.touch(start + 63 * PAGE_SIZE), Ok(0));
    assert_eq!(cache.end(), pages(64), "no more than the window shows");
    drop(cache);
    rig.finish();
}
