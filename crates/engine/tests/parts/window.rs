//! The range words of a window: residents counted by page table, and the memory of each
//! table.

use proptest::prelude::*;
use softfault_engine::PAGE_SIZE;
use softfault_engine::budget::Budget;
use softfault_engine::cache::window::{CountResult, Spans, Window};
use softfault_engine::mmu::{Reservation, TABLE_SPAN};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

const SPAN_PAGES: usize = TABLE_SPAN / PAGE_SIZE;

/// Nothing is ever mapped there.
fn window(pages: usize) -> Window {
    Window::new(Reservation {
        addr: 64 << 30,
        bytes: pages * PAGE_SIZE,
        token: 0,
    })
    .unwrap()
}

#[derive(Debug, Clone)]
enum Op {
    CountResult { page: usize, pages: usize },
    Leave { which: usize },
    Zapped { which: usize },
}

fn any_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (any::<usize>(), 1..=16usize).prop_map(|(page, pages)| Op::CountResult { page, pages }),
        3 => any::<usize>().prop_map(|which| Op::Leave { which }),
        2 => any::<usize>().prop_map(|which| Op::Zapped { which }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn residents_and_tables_are_counted(
        pages in 1..SPAN_PAGES * 5,
        limit in 1..9u64,
        ops in proptest::collection::vec(any_op(), 1..200),
    ) {
        let window = window(pages);
        let all = window.reservation().range();
        let budget = Budget::new(limit);
        // By range: pages in it. And the ranges that are being zapped.
        let mut residents: BTreeMap<usize, usize> = BTreeMap::new();
        let mut zapping: Vec<std::ops::Range<usize>> = Vec::new();
        let mut inside: Vec<(usize, usize)> = Vec::new();
        for op in ops {
            match op {
                Op::CountResult { page, pages: count } => {
                    let page = page % pages;
                    let addr = all.start + page * PAGE_SIZE;
                    // Within one range, and no more pages than it has.
                    let range = page / SPAN_PAGES;
                    let have = residents.get(&range).copied().unwrap_or(0);
                    let count = count.min(pages - page).min(SPAN_PAGES - have);
                    if count == 0 {
                        continue;
                    }
                    let before = budget.charged();
                    let busy = zapping.iter().any(|zapping| zapping.contains(&addr));
                    match window.enter(addr, count, &budget, 0) {
                        CountResult::Zapping => prop_assert!(busy),
                        CountResult::NoMemory => {
                            prop_assert!(!busy && have == 0);
                            prop_assert_eq!(budget.charged(), limit);
                        }
                        CountResult::Counted => {
                            prop_assert!(!busy);
                            let table = u64::from(have == 0);
                            prop_assert_eq!(budget.charged() - before, table);
                            *residents.entry(range).or_default() += count;
                            inside.push((addr, count));
                        }
                    }
                }
                Op::Leave { which } if !inside.is_empty() => {
                    let (addr, count) = inside.swap_remove(which % inside.len());
                    let range = (addr - all.start) / TABLE_SPAN;
                    let have = residents.get_mut(&range).unwrap();
                    *have -= count;
                    let last = *have == 0;
                    let zap = window.leave(addr, count);
                    prop_assert_eq!(zap.is_some(), last);
                    if let Some(zap) = zap {
                        prop_assert_eq!(zap.start, all.start + range * TABLE_SPAN);
                        prop_assert_eq!(zap.end, (zap.start + TABLE_SPAN).min(all.end));
                        zapping.push(zap);
                    }
                }
                Op::Zapped { which } if !zapping.is_empty() => {
                    let range = zapping.swap_remove(which % zapping.len());
                    let before = budget.charged();
                    window.zapped(&range, &budget);
                    prop_assert_eq!(before - budget.charged(), 1);
                }
                _ => {}
            }
            let tables = residents.values().filter(|pages| **pages > 0).count() + zapping.len();
            prop_assert_eq!(budget.charged(), tables as u64);
            prop_assert!(budget.peak() <= limit);
        }
        for (addr, count) in inside {
            zapping.extend(window.leave(addr, count));
        }
        for range in zapping {
            window.zapped(&range, &budget);
        }
        prop_assert_eq!(budget.charged(), 0);
    }
}

/// Threads come and go in two ranges. Nobody is ever inside of a range while it
/// is zapped, and one thread at a time zaps it.
#[test]
fn nobody_is_inside_while_a_range_is_zapped() {
    const RANGES: usize = 2;
    let window = window(RANGES * SPAN_PAGES);
    let start = window.reservation().addr;
    let budget = Budget::new(64);
    let inside: [AtomicUsize; RANGES] = Default::default();
    let zapping: [AtomicBool; RANGES] = Default::default();
    let zaps = AtomicUsize::new(0);
    thread::scope(|scope| {
        for thread in 0..4usize {
            let (window, budget, inside, zapping, zaps) =
                (&window, &budget, &inside, &zapping, &zaps);
            scope.spawn(move || {
                for round in 0..20_000 {
                    let range = (round / 3 + thread) % RANGES;
                    let addr = start + range * TABLE_SPAN + thread * 16 * PAGE_SIZE;
                    let pages = round % 16 + 1;
                    match window.enter(addr, pages, budget, 0) {
                        CountResult::Counted => {}
                        CountResult::Zapping => {
                            window.wait_zapped(addr, 1_000_000_000);
                            continue;
                        }
                        CountResult::NoMemory => panic!("there is enough for two tables"),
                    }
                    assert!(
                        !zapping[range].load(Ordering::SeqCst),
                        "entered during a zap"
                    );
                    inside[range].fetch_add(1, Ordering::SeqCst);
                    inside[range].fetch_sub(1, Ordering::SeqCst);
                    if let Some(zap) = window.leave(addr, pages) {
                        assert!(
                            !zapping[range].swap(true, Ordering::SeqCst),
                            "zapped by two"
                        );
                        assert_eq!(inside[range].load(Ordering::SeqCst), 0);
                        zaps.fetch_add(1, Ordering::SeqCst);
                        assert!(zapping[range].swap(false, Ordering::SeqCst));
                        window.zapped(&zap, budget);
                    }
                }
            });
        }
    });
    assert!(zaps.into_inner() > 0);
    assert_eq!(budget.charged(), 0);
}

/// A window whose words take several pages: each is paid for while one of its ranges
/// is in use.
#[test]
fn pages_of_words_come_and_go() {
    const RANGES: usize = 4000;
    let window = window(RANGES * SPAN_PAGES);
    let start = window.reservation().addr;
    let budget = Budget::new(64);
    assert_eq!(window.table_pages(), 8, "a page table for each GiB");
    // By page of words: 1,023 ranges.
    let page = |range: usize| range / 1023;
    let mut inside: Vec<usize> = Vec::new();
    for round in 0..3 * RANGES {
        let range = round * 1_201 % RANGES;
        let addr = start + range * TABLE_SPAN;
        assert_eq!(window.enter(addr, 3, &budget, 0), CountResult::Counted);
        inside.push(range);
        if inside.len() > round % 17 {
            let range = inside.remove(round % inside.len());
            let addr = start + range * TABLE_SPAN;
            if let Some(zap) = window.leave(addr, 3) {
                window.zapped(&zap, &budget);
            }
        }
        let count = |key: &dyn Fn(usize) -> usize| {
            let mut keys: Vec<_> = inside.iter().map(|&range| key(range)).collect();
            keys.sort_unstable();
            keys.dedup();
            keys.len() as u64
        };
        let expected = count(&|range| range) + count(&page);
        assert_eq!(budget.charged(), expected, "round {round}");
        for &range in &inside {
            assert!(window.residents(start + range * TABLE_SPAN) > 0);
        }
    }
    for range in inside {
        if let Some(zap) = window.leave(start + range * TABLE_SPAN, 3) {
            window.zapped(&zap, &budget);
        }
    }
    assert_eq!(budget.charged(), 0);
    let all = window.spans(window.reservation().range());
    assert_eq!(
        all.map(|span| window.residents(span.start)).sum::<usize>(),
        0
    );
}

/// Threads come and go in the only ranges of a page of words: it comes and goes too, and
/// no count is lost with it.
#[test]
fn a_page_of_words_goes_while_others_come() {
    let window = window(2000 * SPAN_PAGES);
    let start = window.reservation().addr;
    let budget = Budget::new(64);
    thread::scope(|scope| {
        for thread in 0..4usize {
            let (window, budget) = (&window, &budget);
            scope.spawn(move || {
                let addr = start + thread * 300 * TABLE_SPAN;
                for _ in 0..5_000 {
                    while window.enter(addr, 2, budget, 0) != CountResult::Counted {
                        window.wait_zapped(addr, 1_000_000_000);
                    }
                    assert_eq!(window.residents(addr), 2);
                    let zap = window.leave(addr, 2).expect("nobody else is there");
                    window.zapped(&zap, budget);
                }
            });
        }
    });
    assert_eq!(budget.charged(), 0);
}

/// Windows that are parts of one reservation are counted together.
#[test]
fn neighbours_share_a_page_table() {
    let whole = window(SPAN_PAGES).reservation().clone();
    let spans = Spans::new(&whole).unwrap();
    let part = |from: usize| {
        let part = Reservation {
            addr: whole.addr + from * PAGE_SIZE,
            bytes: 16 * PAGE_SIZE,
            token: 0,
        };
        Window::part(part, spans.clone())
    };
    let (one, other) = (part(0), part(32));
    let budget = Budget::new(8);
    let addresses = [&one, &other].map(|window| window.reservation().addr);
    assert_eq!(one.enter(addresses[0], 3, &budget, 0), CountResult::Counted);
    assert_eq!(
        other.enter(addresses[1], 2, &budget, 0),
        CountResult::Counted
    );
    assert_eq!(budget.charged(), 1);
    assert_eq!(one.leave(addresses[0], 3), None);
    let zap = other.leave(addresses[1], 2);
    assert_eq!(zap, Some(whole.range()), "all of the page table");
    assert_eq!(one.enter(addresses[0], 1, &budget, 0), CountResult::Zapping);
    other.zapped(&zap.unwrap(), &budget);
    assert_eq!(budget.charged(), 0);
}

#[test]
#[should_panic(expected = "range count")]
fn a_leaving_thread_must_have_entered() {
    let window = window(10);
    let start = window.reservation().addr;
    let budget = Budget::new(10);
    assert_eq!(window.enter(start, 1, &budget, 0), CountResult::Counted);
    window.leave(start, 2);
}
