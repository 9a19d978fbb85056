//! Reclaim over the soft page tables. Every test ends with the assertion that
//! the budget was never exceeded and that nothing is charged any more.

use crate::files::{pages, pin, random};
use softfault_engine::PAGE_SIZE;
use softfault_engine::Store;
use softfault_engine::budget::{Budget, FLOOR};
use softfault_engine::cache::NodeError;
use softfault_engine::fault::{self, Completion, FaultError, NeverInterrupted, Pin};
use softfault_engine::mm::Advice;
use softfault_engine::mmu::TABLE_SPAN;
use softfault_oracle::{Random, Rig, TestStore};
use std::ops::Range;
use std::thread;

/// The least budget, in pages.
const LEAST: u64 = 2048;
const SPAN_PAGES: usize = TABLE_SPAN / PAGE_SIZE;

fn check(rig: &Rig, store: &TestStore, start: usize, page: usize) {
    let found = rig.touch(start + page * PAGE_SIZE + page % PAGE_SIZE);
    assert_eq!(
        found,
        Ok(store.byte(pages(page) + (page % PAGE_SIZE) as u64))
    );
}

#[test]
fn a_file_larger_than_the_budget_is_read_right() {
    for queue in [0, 64] {
        let rig = Rig::new(LEAST);
        let store = TestStore::with_queue(pages(6000), queue);
        let cache = rig.map(&store);
        let start = cache.addresses().start;
        for page in (0..6000).chain((0..6000).rev()) {
            check(&rig, &store, start, page);
        }
        assert!(rig.node.stats.evicted.get() > 6000);
        drop(cache);
        rig.finish();
    }
}

/// Small budgets, many threads: all come to their end, and afterwards reclaim
/// finds every folio, none is lost between the lists.
#[test]
fn many_threads_over_a_small_budget_all_make_progress() {
    for (threads, queue, punched) in [(48, 0, false), (48, 16, false), (12, 64, true)] {
        let rig = Rig::new(LEAST);
        let store = TestStore::with_queue(pages(9000), queue);
        if punched {
            store.punch(2000..5000);
        }
        let cache = rig.map(&store);
        let start = cache.addresses().start;
        thread::scope(|scope| {
            for thread in 0..threads {
                let (rig, store, cache) = (&rig, &store, &cache);
                scope.spawn(move || {
                    let mut random = Random::new(thread);
                    for round in 0..150 {
                        let page = random.below(9000);
                        match random.below(8) {
                            // A run, for read-ahead.
                            0 => (page..(page + 40).min(9000))
                                .for_each(|page| check(rig, store, start, page)),
                            1 if round % 16 == 1 => {
                                let from = start + page * PAGE_SIZE;
                                cache.invalidate(from..from + 50 * PAGE_SIZE);
                            }
                            2 => {
                                let from = start + page * PAGE_SIZE;
                                fault::prefetch(cache, from..from + 64 * PAGE_SIZE);
                            }
                            _ => check(rig, store, start, page),
                        }
                    }
                });
            }
        });
        store.reap(u64::MAX, &Completion(&rig.node), 0);
        rig.evict_all();
        assert_eq!(cache.folio_count(), 0, "folios that reclaim does not see");
        drop(cache);
        rig.finish();
    }
}

/// All the frames are in the hands of readers: the others wait for one, and do
/// not evict mapped pages over and over again.
#[test]
fn a_lack_of_frames_does_not_empty_the_budget() {
    const THREADS: usize = 60;
    let rig = Rig::new(LEAST);
    let store = TestStore::new(pages(9000));
    let cache = rig.map(&store);
    let range = cache.addresses();
    rig.space
        .madvise(range.clone(), Advice::Sequential)
        .unwrap();
    // Half of the mappable pages.
    for page in 0..400 {
        check(&rig, &store, range.start, page);
    }
    let before = rig.node.stats.evicted.get();
    store.close();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (rig, store) = (&rig, &store);
            scope.spawn(move || check(rig, store, range.start, 1000 + thread * 100));
        }
        store.wait_blocked(THREADS);
        store.open();
    });
    let evicted = rig.node.stats.evicted.get() - before;
    assert!(
        evicted <= 1024,
        "{evicted} pages evicted for {THREADS} folios"
    );
    drop(cache);
    rig.finish();
}

#[test]
fn a_page_in_every_table_pays_for_the_table_and_gets_it_back() {
    let rig = Rig::new(LEAST);
    let tables = 700;
    let store = TestStore::new(pages(tables * SPAN_PAGES));
    let (cache, start) = random(&rig, &store);
    check(&rig, &store, start, 0);
    let first = rig.node.budget.charged();
    for table in 1..100 {
        check(&rig, &store, start, table * SPAN_PAGES + table % 512);
    }
    assert_eq!(
        rig.node.budget.charged() - first,
        2 * 99,
        "a page and a table each"
    );
    assert_eq!(rig.mmu.present_pages(), 100);
    for table in 100..tables {
        check(&rig, &store, start, table * SPAN_PAGES + table % 512);
    }
    let full = rig.node.budget.charged();
    let present = rig.mmu.present_pages() as u64;
    rig.evict_all();
    assert_eq!(rig.mmu.present_pages(), 0);
    assert_eq!(full - rig.node.budget.charged(), 2 * present);
    drop(cache);
    rig.finish();
}

#[test]
fn many_tables_stay_in_the_budget() {
    let rig = Rig::new(LEAST);
    // 64 GiB, of which the store is asked for a page in every 2 MiB.
    let tables = 32_768;
    let store = TestStore::new(pages(tables * SPAN_PAGES));
    store.punch(0..(tables * SPAN_PAGES) as u64);
    let (cache, start) = random(&rig, &store);
    for table in 0..tables {
        assert_eq!(rig.touch(start + table * TABLE_SPAN), Ok(0));
    }
    assert!(rig.node.stats.evicted.get() > 0);
    drop(cache);
    rig.finish();
}

/// Pages that their owner threw away tell nothing of the memory there is: that they come back is no refault.
#[test]
fn pages_that_were_invalidated_are_not_refaulted() {
    let rig = Rig::new(LEAST);
    let store = TestStore::new(pages(300));
    let (cache, start) = random(&rig, &store);
    for _ in 0..2 {
        (0..300).for_each(|page| check(&rig, &store, start, page));
        cache.invalidate(cache.addresses());
    }
    assert_eq!(rig.node.stats.major_faults.get(), 600);
    assert_eq!(rig.node.stats.refaults.get(), 0);
    drop(cache);
    rig.finish();
}

/// Pages that come back soon after they were evicted survive a scan that is
/// larger than the budget.
#[test]
fn refaulted_folios_survive_a_scan() {
    let rig = Rig::new(LEAST);
    let store = TestStore::new(pages(20_000));
    let (cache, start) = random(&rig, &store);
    let hot = 0..300;
    let touch_hot = || {
        let before = rig.node.stats.major_faults.get();
        hot.clone()
            .for_each(|page| check(&rig, &store, start, page));
        rig.node.stats.major_faults.get() - before
    };
    assert_eq!(touch_hot(), 300);
    // Out of memory, with not much else in between.
    let mut next = 1000;
    let mut scan = |count: usize| {
        (next..next + count).for_each(|page| check(&rig, &store, start, page));
        next += count;
    };
    scan(1600);
    let again = touch_hot();
    assert!(
        again > 200,
        "only {again} of the hot pages had been evicted"
    );
    assert!(rig.node.stats.refaults.get() >= again / 2);
    scan(6000);
    let left = touch_hot();
    assert!(left <= 30, "{left} of 300 refaulted pages went with a scan");
    drop(cache);
    rig.finish();
}

#[test]
fn read_ahead_goes_first_once_it_is_stale() {
    let rig = Rig::new(LEAST);
    let store = TestStore::with_queue(pages(20_000), 256);
    let (cache, start) = random(&rig, &store);
    let ahead = start + 10_000 * PAGE_SIZE..start + 10_160 * PAGE_SIZE;
    fault::prefetch(&cache, ahead.clone());
    store.reap(u64::MAX, &Completion(&rig.node), 0);
    let cached = || cache.residency(ahead.clone()).cached;
    assert_eq!(cached(), 160);
    // Fresh: the mapped ones go, though there is more of them than fits.
    (0..300).for_each(|page| check(&rig, &store, start, page));
    rig.node.reclaim(64);
    assert_eq!(cached(), 160);
    assert!(cache.residency(start..start + 300 * PAGE_SIZE).mapped <= 236);
    // A quarter of the budget mapped since: nobody has come by.
    (300..300 + LEAST as usize / 4).for_each(|page| check(&rig, &store, start, page));
    let mapped = rig.mmu.present_pages();
    rig.node.reclaim(1);
    assert!(
        cached() < 160,
        "stale read-ahead stays while mapped pages go"
    );
    assert!(mapped - rig.mmu.present_pages() <= 64);
    // The caller asked for them: they are no read-ahead of the policy's.
    assert_eq!(rig.node.stats.readahead_dropped.get(), 0);
    drop(cache);
    rig.finish();
}

#[test]
fn memory_can_be_taken_and_given() {
    let rig = Rig::new(4 * LEAST);
    let store = TestStore::with_queue(pages(20_000), 64);
    let cache = rig.map(&store);
    let start = cache.addresses().start;
    for round in 0..3 {
        (0..9000).for_each(|page| check(&rig, &store, start, page));
        let resident = rig.mmu.present_pages();
        rig.set_memory(LEAST);
        assert!(rig.mmu.present_pages() < LEAST as usize, "round {round}");
        (0..9000).for_each(|page| check(&rig, &store, start, page));
        rig.set_memory(6 * LEAST);
        (0..9000).for_each(|page| check(&rig, &store, start, page));
        assert!(rig.mmu.present_pages() > resident);
        rig.set_memory(4 * LEAST);
    }
    let too_small = rig.node.set_memory(PAGE_SIZE * (LEAST as usize - 1));
    assert_eq!(too_small, Err(NodeError::BudgetTooSmall));
    let too_large = rig.node.set_memory(PAGE_SIZE * (17 * LEAST as usize));
    assert_eq!(too_large, Err(NodeError::BudgetTooLarge));
    drop(cache);
    rig.finish();
}

#[test]
fn set_memory_of_several_threads_adds_up() {
    let rig = Rig::new(2 * LEAST);
    thread::scope(|scope| {
        for thread in 0..4 {
            let rig = &rig;
            scope.spawn(move || {
                for round in 0..50 {
                    let pages = LEAST + (thread * 500 + round * 7) % (LEAST * 3);
                    rig.node.set_memory(pages as usize * PAGE_SIZE).unwrap();
                }
            });
        }
    });
    // Before the end, so that `finish` may see the old limit.
    rig.set_memory(4 * LEAST);
    rig.finish();
}

#[test]
fn memory_that_the_parent_has_not_is_refused_and_nothing_changes() {
    let parent = Budget::new(2 * LEAST);
    let rig = Rig::within(LEAST, &parent);
    let rest = parent.free();
    assert!(parent.try_charge(rest, 0));
    let before = rig.node.budget.charged();
    let refused = rig.node.set_memory(3 * LEAST as usize * PAGE_SIZE);
    assert_eq!(refused, Err(NodeError::NoMemory));
    assert_eq!(rig.node.budget.limit(), LEAST);
    assert_eq!(rig.node.budget.charged(), before);
    parent.uncharge(rest);
    rig.finish();
    assert_eq!(parent.charged(), 0);
}

#[test]
fn nested_budgets_keep_within_their_parent() {
    // Together they want a third more than there is.
    let parent = Budget::new(3 * LEAST);
    let rigs = [
        Rig::within(2 * LEAST, &parent),
        Rig::within(2 * LEAST, &parent),
    ];
    let stores = [TestStore::new(pages(6000)), TestStore::new(pages(6000))];
    let caches: Vec<_> = (0..2).map(|i| rigs[i].map(&stores[i])).collect();
    // Neither may take all before the other has begun: each can give only the pages
    // it has itself.
    for round in 0..3 {
        for page in (0..6000).step_by(3) {
            for i in 0..2 {
                let start = caches[i].addresses().start;
                check(&rigs[i], &stores[i], start, (page + round) % 6000);
            }
        }
    }
    assert!(parent.peak() <= parent.limit());
    drop(caches);
    rigs.into_iter().for_each(Rig::finish);
    assert_eq!(parent.charged(), 0);
}

#[test]
fn pinned_pages_stay_and_limit_themselves() {
    let rig = Rig::new(LEAST);
    let store = TestStore::with_queue(pages(9000), 32);
    let cache = rig.map(&store);
    let start = cache.addresses().start;
    let most = LEAST / 2;
    assert!(rig.node.try_pin(most));
    assert!(!rig.node.try_pin(1));
    let range = start..start + most as usize * PAGE_SIZE;
    let try_pin = || {
        let never = &NeverInterrupted;
        fault::pin(&rig.space, &cache, range.clone(), range.start, never)
    };
    assert_eq!(try_pin(), Pin::Done);
    // With half of the budget pinned, all others still make progress.
    thread::scope(|scope| {
        for thread in 0..8 {
            let (rig, store) = (&rig, &store);
            scope.spawn(move || {
                let mut random = Random::new(thread + 77);
                for _ in 0..300 {
                    check(rig, store, start, random.below(9000));
                }
            });
        }
    });
    rig.evict_all();
    let mapped = cache.residency(range.clone()).mapped;
    assert_eq!(mapped, most as usize);
    assert_eq!(rig.mmu.present_pages(), mapped);
    fault::unpin(&cache, range.clone());
    rig.node.unpin_pages(most);
    // Reads that nobody waited for end when somebody looks.
    store.reap(u64::MAX, &Completion(&rig.node), 0);
    rig.evict_all();
    assert_eq!(cache.folio_count(), 0);
    // A pin that fails pins nothing.
    store.fail(100, Some(5));
    assert_eq!(try_pin(), Pin::Failed(FaultError::Io(5)));
    store.reap(u64::MAX, &Completion(&rig.node), 0);
    rig.evict_all();
    assert_eq!(cache.folio_count(), 0);
    drop(cache);
    rig.finish();
}

/// Folios that were never refaulted go first. Where all of those are pinned, the others go,
/// however hot.
#[test]
fn pinned_folios_do_not_hide_evictable_ones() {
    let rig = Rig::new(LEAST);
    let store = TestStore::new(pages(9000));
    let (cache, start) = random(&rig, &store);
    let touch = |range: Range<usize>| range.for_each(|page| check(&rig, &store, start, page));
    touch(0..300);
    touch(1000..2600);
    touch(0..300);
    assert!(rig.node.stats.refaults.get() > 200, "hot pages are active");
    let room = LEAST - rig.node.charged_pages() - FLOOR;
    let pinned: Vec<_> = (0..room as usize)
        .map(|page| {
            let at = start + (3000 + page) * PAGE_SIZE;
            at..at + PAGE_SIZE
        })
        .collect();
    for range in &pinned {
        pin(&rig, &cache, range.clone());
    }
    touch(8000..8100);
    for range in pinned {
        fault::unpin(&cache, range);
    }
    rig.evict_all();
    drop(cache);
    rig.finish();
}

/// Unpin and invalidate at the same time as pins: a pinned page is not taken,
/// and nothing is lost.
#[test]
fn pins_and_invalidations_of_many_threads() {
    let rig = Rig::new(LEAST);
    let store = TestStore::new(pages(256));
    let cache = rig.map(&store);
    let start = cache.addresses().start;
    thread::scope(|scope| {
        for thread in 0..6u64 {
            let (rig, store, cache) = (&rig, &store, &cache);
            scope.spawn(move || {
                let mut random = Random::new(thread + 5);
                for _ in 0..400 {
                    let page = random.below(240);
                    let range = start + page * PAGE_SIZE..start + (page + 16) * PAGE_SIZE;
                    if thread < 2 {
                        cache.invalidate(range);
                        continue;
                    }
                    pin(rig, cache, range.clone());
                    let major = rig.mmu.present_pages();
                    assert!(major >= 16);
                    for page in page..page + 16 {
                        check(rig, store, start, page);
                    }
                    fault::unpin(cache, range);
                }
            });
        }
    });
    rig.evict_all();
    assert_eq!(cache.folio_count(), 0);
    drop(cache);
    rig.finish();
}

/// The lists are so short that reclaim meets folios which are being mapped.
#[test]
fn no_folio_is_lost_between_mapping_and_reclaim() {
    let rig = Rig::new(LEAST);
    let store = TestStore::with_queue(pages(64), 8);
    let (cache, start) = random(&rig, &store);
    for _ in 0..1500 {
        thread::scope(|scope| {
            for thread in 0..2 {
                let (rig, store, cache) = (&rig, &store, &cache);
                scope.spawn(move || {
                    let mut random = Random::new(thread + 3);
                    for _ in 0..200 {
                        let page = random.below(64);
                        if thread == 1 {
                            let from = start + page * PAGE_SIZE;
                            fault::prefetch(cache, from..from + PAGE_SIZE);
                        }
                        check(rig, store, start, page);
                    }
                });
            }
            let reclaimer = scope.spawn(|| {
                for _ in 0..400 {
                    rig.evict_all();
                }
            });
            reclaimer.join().unwrap();
        });
        store.reap(u64::MAX, &Completion(&rig.node), 0);
        rig.evict_all();
        assert_eq!(cache.folio_count(), 0, "folios that reclaim does not see");
    }
    drop(cache);
    rig.finish();
}

/// The first member has all of the parent's memory and sits still.
#[test]
fn a_node_gets_memory_that_an_idle_relative_has() {
    let parent = Budget::new(3 * LEAST);
    let rich = Rig::within(3 * LEAST, &parent);
    rich.node.enlist();
    let store = TestStore::new(pages(8000));
    let rich_cache = rich.map(&store);
    for page in 0..8000 {
        check(&rich, &store, rich_cache.addresses().start, page);
    }
    assert!(parent.free() < 300);
    // Metadata first, then pages.
    let late = Rig::within(LEAST, &parent);
    late.node.enlist();
    let late_cache = late.map(&store);
    for page in 0..3000 {
        check(&late, &store, late_cache.addresses().start, page);
    }
    assert!(late.mmu.present_pages() > 500, "it lives on the rest");
    assert!(rich.mmu.present_pages() > 500);
    assert!(parent.peak() <= parent.limit());
    drop((rich_cache, late_cache));
    rich.node.delist();
    late.node.delist();
    rich.finish();
    late.finish();
    assert_eq!(parent.charged(), 0);
}
