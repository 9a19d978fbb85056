//! Rows: memory that was read ahead goes to the window as it is, 2 MiB at a time, and goes from there as a whole, or split. Every
//! test ends with the assertion that the budget was never exceeded and that nothing is charged any more. Moved memory is
//! overwritten in its old place, so a reader there is found out.

use crate::files::{pages, pin};
use softfault_engine::PAGE_SIZE;
use softfault_engine::cache::PageCache;
use softfault_engine::fault;
use softfault_engine::mm::Protection;
use softfault_engine::mmu::soft::SoftMoves;
use softfault_engine::mmu::{Moved, TABLE_SPAN};
use softfault_engine::policy::{MapBy, Policies};
use softfault_oracle::{Random, Rig, TestStore};
use std::sync::Arc;
use std::thread;

const BUDGET: u64 = 32768;
const FILE: usize = 2 * BUDGET as usize;
const ROW: usize = TABLE_SPAN / PAGE_SIZE;

fn scene() -> (Rig, Arc<TestStore>, Arc<PageCache>) {
    let policies = Policies {
        map_by: MapBy::Move,
        ..Policies::default()
    };
    let rig = Rig::with_policies(BUDGET, policies);
    let store = TestStore::with_queue(pages(FILE), 256);
    let cache = rig.map(&store);
    (rig, store, cache)
}

fn check(rig: &Rig, store: &TestStore, cache: &PageCache, page: usize) {
    let found = rig.touch(cache.addresses().start + page * PAGE_SIZE + page % PAGE_SIZE);
    assert_eq!(
        found,
        Ok(store.byte(pages(page) + (page % PAGE_SIZE) as u64)),
        "{page}"
    );
}

fn scan(rig: &Rig, store: &TestStore, cache: &PageCache) {
    (0..FILE).for_each(|page| check(rig, store, cache, page));
}

/// The first page of a row that was moved last.
fn moved_row(rig: &Rig, store: &TestStore, cache: &PageCache) -> usize {
    let mut rows = rig.node.stats.thp_moved.get();
    let mut last = None;
    for page in 0..FILE {
        check(rig, store, cache, page);
        let moved = rig.node.stats.thp_moved.get();
        if moved > rows {
            (rows, last) = (moved, Some(page));
        }
        if last.is_some_and(|first| page > FILE / 2 && page == first + ROW - 1) {
            break;
        }
    }
    let first = last.expect("a row is moved");
    assert_eq!(first % ROW, 0, "at its first touch");
    first
}

#[test]
fn a_scan_moves_rows_and_splits_none() {
    let (rig, store, cache) = scene();
    scan(&rig, &store, &cache);
    let stats = &rig.node.stats;
    let rows = stats.thp_moved.get() as usize;
    assert!(rows > 12, "{rows} rows of {FILE} pages");
    assert_eq!(stats.thp_split.get(), 0);
    assert_eq!(stats.thp_move_failed.get(), 0);
    drop(cache);
    rig.finish();
}

#[test]
fn by_default_nothing_is_moved() {
    let rig = Rig::new(BUDGET);
    let store = TestStore::with_queue(pages(FILE), 256);
    let cache = rig.map(&store);
    scan(&rig, &store, &cache);
    assert_eq!(rig.node.stats.thp_moved.get(), 0);
    drop(cache);
    rig.finish();
}

/// A row that cannot be moved is copied; pages that were lost on the way are read again.
#[test]
fn moves_that_fail_show_the_same_bytes() {
    for moved in [Moved::NotNow, Moved::Never, Moved::Lost] {
        let (rig, store, cache) = scene();
        rig.mmu.set_moves(SoftMoves {
            moved,
            splits: true,
        });
        for page in 0..FILE {
            check(&rig, &store, &cache, page);
            if rig.node.stats.thp_lost.get() == 1 {
                rig.mmu.set_moves(SoftMoves {
                    moved: Moved::All,
                    splits: true,
                });
            }
        }
        let refused = rig.node.stats.thp_move_failed.get();
        match moved {
            Moved::NotNow => assert!(refused > 1, "{refused}"),
            Moved::Never => assert_eq!(refused, 1),
            _ => assert_eq!(rig.node.stats.thp_lost.get(), 1),
        }
        drop(cache);
        rig.finish();
    }
}

/// A pinned page stays where it is, and all others of its row go.
#[test]
fn a_row_with_a_pinned_page_is_split() {
    for splits in [true, false] {
        let (rig, store, cache) = scene();
        let first = moved_row(&rig, &store, &cache);
        rig.mmu.set_moves(SoftMoves {
            moved: Moved::All,
            splits,
        });
        let at = cache.addresses().start + (first + 100) * PAGE_SIZE;
        pin(&rig, &cache, at..at + PAGE_SIZE);
        rig.evict_all();
        let there = (0..ROW).filter(|page| {
            let page = cache.addresses().start + (first + page) * PAGE_SIZE;
            cache.residency(page..page + PAGE_SIZE).mapped == 1
        });
        // A piece that cannot be split goes as a whole, or stays.
        let there = there.count();
        match splits {
            true => assert!((1..=16).contains(&there), "{there}"),
            false => assert_eq!(there, ROW),
        }
        assert_eq!(rig.node.stats.thp_split.get(), u64::from(splits));
        check(&rig, &store, &cache, first + 100);
        fault::unpin(&cache, at..at + PAGE_SIZE);
        rig.evict_all();
        scan(&rig, &store, &cache);
        drop(cache);
        rig.finish();
    }
}

/// Far more folios than one batch of reclaim has room for: one that fills in the middle of a row leaves the row to the next.
#[test]
fn no_row_is_split_where_everything_is_evicted() {
    let (rig, store, cache) = scene();
    scan(&rig, &store, &cache);
    rig.evict_all();
    let stats = &rig.node.stats;
    assert!(stats.thp_moved.get() > 12);
    assert_eq!(stats.thp_split.get(), 0);
    let all = cache.addresses();
    assert_eq!(cache.residency(all).mapped, 0);
    drop(cache);
    rig.finish();
}

#[test]
fn a_part_of_a_row_is_cut_off_or_invalidated() {
    for splits in [true, false] {
        let (rig, store, cache) = scene();
        let first = moved_row(&rig, &store, &cache);
        rig.mmu.set_moves(SoftMoves {
            moved: Moved::All,
            splits,
        });
        let from = cache.addresses().start + (first + 40) * PAGE_SIZE;
        cache.invalidate(from..from + 3 * PAGE_SIZE);
        for page in first..first + ROW {
            check(&rig, &store, &cache, page);
        }
        let end = first + 77;
        cache.truncate(pages(end));
        for page in first..end {
            check(&rig, &store, &cache, page);
        }
        assert!(
            rig.touch(cache.addresses().start + end * PAGE_SIZE)
                .is_err()
        );
        drop(cache);
        rig.finish();
    }
}

/// A write to a map that is only read is an error, whether its pages were moved or not.
#[test]
fn a_moved_page_may_not_be_written_to() {
    let (rig, store, cache) = scene();
    let first = moved_row(&rig, &store, &cache);
    let at = cache.addresses().start + first * PAGE_SIZE;
    assert!(rig.write(at, &[1]).is_err());
    check(&rig, &store, &cache, first);
    rig.protect(at..at + PAGE_SIZE, Protection::Read);
    drop(cache);
    rig.finish();
}

/// Scans from several places, and others that touch, invalidate and pin the pages that they move. The timing of the others decides
/// whether a row stays whole until its first touch: there are rounds until one was moved.
#[test]
fn rows_are_moved_and_evicted_by_many_threads() {
    let (rig, store, cache) = scene();
    let rounds = (0..100).take_while(|&round| {
        many_threads(&rig, &store, &cache, round);
        rig.node.stats.thp_moved.get() == 0
    });
    assert!(rounds.count() < 100, "a row is moved");
    drop(cache);
    rig.finish();
}

fn many_threads(rig: &Rig, store: &TestStore, cache: &Arc<PageCache>, round: u64) {
    thread::scope(|scope| {
        for number in 0..4 {
            scope.spawn(move || {
                let start = number * FILE / 4;
                for page in (start..FILE).chain(0..start).take(FILE / 2) {
                    check(rig, store, cache, page);
                }
            });
        }
        scope.spawn(move || {
            let mut random = Random::new(7 + round);
            for _ in 0..300 {
                let page = random.below(FILE - 40);
                let at = cache.addresses().start + page * PAGE_SIZE;
                let range = at..at + 40 * PAGE_SIZE;
                match random.below(3) {
                    0 => cache.invalidate(range),
                    1 => {
                        pin(rig, cache, range.clone());
                        check(rig, store, cache, page + 20);
                        fault::unpin(cache, range);
                    }
                    _ => check(rig, store, cache, page),
                }
            }
        });
    });
}
