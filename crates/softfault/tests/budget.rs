//! The budget: kept, changed, nested and shared.

mod child;
mod files;

use files::{byte_at, check, made_file, map};
use softfault::{Advice, Engine, FaultError, MIN_MEMORY, Mmap};
use softfault_oracle::Finally;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

const MIB: usize = 1 << 20;

fn engine(megabytes: usize) -> Engine {
    files::engine(megabytes * MIB)
}

fn within(parent: &Engine, megabytes: usize) -> io::Result<Engine> {
    Engine::builder()
        .allow_kernel_maps(false)
        .memory(megabytes * MIB)
        .within(parent)
        .build()
}

fn read_all(map: &Mmap) {
    for offset in (0..map.len()).step_by(4096) {
        check(map, offset);
    }
}

#[test]
fn the_budget_goes_up_and_down_under_eight_readers() {
    // More than the largest budget, so that the faults never come to an end.
    let file = made_file("up-down", 80 * MIB);
    let engine = Engine::builder()
        .allow_kernel_maps(false)
        .memory(32 * MIB)
        .max_memory(64 * MIB);
    let engine = engine.build().unwrap();
    let map = map(&engine, &file);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (map, stop) = (&map, &stop);
            scope.spawn(move || {
                let _end = Finally(|| stop.store(true, SeqCst));
                let mut at = thread * 5_000_011;
                while !stop.load(SeqCst) {
                    at = (at + if thread % 2 == 0 { 4096 } else { 7_777_777 }) % map.len();
                    check(map, at);
                }
            });
        }
        let _end = Finally(|| stop.store(true, SeqCst));
        for round in 0..60 {
            let bytes = [8, 64, 16, 32, 9, 48][round % 6] * MIB;
            engine.set_memory(bytes).unwrap();
            let faults = engine.stats().faults;
            while engine.stats().faults < faults + 200 && !stop.load(SeqCst) {
                std::thread::yield_now();
            }
            let stats = engine.stats();
            assert_eq!(stats.budget_bytes, bytes as u64);
            assert!(stats.resident_bytes <= stats.budget_bytes, "{stats:?}");
        }
    });
    assert!(engine.stats().peak_bytes <= 64 << 20);
    let refused = |bytes| engine.set_memory(bytes).unwrap_err().kind();
    assert_eq!(refused(MIN_MEMORY - 4096), io::ErrorKind::InvalidInput);
    assert_eq!(refused(65 * MIB), io::ErrorKind::InvalidInput);
    read_all(&map);
}

#[test]
fn budgets_too_small_are_refused() {
    for bytes in [0, 4096, MIN_MEMORY - 1] {
        let error = Engine::builder()
            .allow_kernel_maps(false)
            .memory(bytes)
            .build()
            .unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
    let least = files::engine(MIN_MEMORY);
    read_all(&map(&least, &made_file("least", 16 * MIB)));
    assert!(least.stats().peak_bytes <= MIN_MEMORY as u64);
}

#[test]
fn the_same_budget_from_many_threads_is_counted_once() {
    let parent = engine(128);
    let before = parent.stats().resident_bytes;
    let child = Engine::builder()
        .allow_kernel_maps(false)
        .memory(8 * MIB)
        .max_memory(64 * MIB);
    let child = child.within(&parent).build().unwrap();
    let alone = parent.stats().resident_bytes;
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for round in 0..500 {
                    child.set_memory([64, 8][round % 2] * MIB).unwrap();
                }
            });
        }
    });
    child.set_memory(8 * MIB).unwrap();
    assert_eq!(parent.stats().resident_bytes, alone);
    drop(child);
    assert_eq!(parent.stats().resident_bytes, before);
}

#[test]
fn a_nested_engine_counts_against_its_parent_and_gives_all_back() {
    let file = made_file("nested", 16 * MIB);
    let parent = engine(32);
    let before = parent.stats().resident_bytes;
    {
        let child = within(&parent, 12).unwrap();
        let grandchild = within(&child, 8);
        let error = within(&child, 8 * 1024).map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
        let map = map(&child, &file);
        read_all(&map);
        let (stats, parents) = (child.stats(), parent.stats());
        assert!(
            stats.evicted > 0 && stats.peak_bytes <= 12 << 20,
            "{stats:?}"
        );
        assert!(parents.resident_bytes >= before + stats.resident_bytes);
        drop(grandchild);
    }
    assert_eq!(parent.stats().resident_bytes, before);
}

#[test]
fn raising_beyond_a_full_parent_fails_and_changes_nothing() {
    let test = "raising_beyond_a_full_parent_fails_and_changes_nothing";
    if child::scenario().is_none() {
        return child::succeeds(test, "full");
    }
    let file = made_file("full", 64 * MIB);
    let parent = engine(16);
    let child = Engine::builder()
        .allow_kernel_maps(false)
        .memory(8 * MIB)
        .max_memory(1 << 30);
    let child = child.within(&parent).build().unwrap();
    let map = map(&parent, &file);
    fill(&parent, &map);
    let before = child.stats();
    let error = child.set_memory(1 << 30).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
    assert_eq!(child.stats().budget_bytes, before.budget_bytes);
    assert_eq!(child.stats().resident_bytes, before.resident_bytes);
    let charged = parent.stats().resident_bytes;
    drop(child);
    assert_eq!(
        parent.stats().resident_bytes,
        charged - before.resident_bytes
    );
}

/// Touches page by page until less of the parent's budget is free than a fault
/// has to find.
fn fill(parent: &Engine, map: &Mmap) {
    map.advise(Advice::Random).unwrap();
    for offset in (0..map.len()).step_by(4096) {
        let stats = parent.stats();
        if stats.budget_bytes - stats.resident_bytes < 34 * 4096 {
            return;
        }
        check(map, offset);
    }
    panic!("the parent's budget was never full: {:?}", parent.stats());
}

/// One reads until memory is full, then another needs some: it waits, but not
/// for ever.
fn second_gets_memory(parent: &Engine, first: &Engine, second: &Engine, name: &str) {
    let files = [0, 1].map(|i| made_file(&format!("{name}{i}"), 32 * MIB));
    let one = map(first, &files[0]);
    fill(parent, &one);
    let other = map(second, &files[1]);
    let touched = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for offset in (0..other.len()).step_by(16 * 4096) {
                check(&other, offset);
                touched.fetch_add(1, SeqCst);
            }
        });
        let mut seen = (0, 0);
        while touched.load(SeqCst) < other.len() / (16 * 4096) {
            let waits = second.stats().memory_waits;
            let now = touched.load(SeqCst);
            if now > seen.0 {
                seen = (now, waits);
            } else if waits > seen.1 + 300 {
                eprintln!("no page in {} waits: {:?}", waits - seen.1, second.stats());
                std::process::exit(1);
            }
            std::thread::yield_now();
        }
    });
}

#[test]
fn engines_of_one_parent_do_not_starve_each_other() {
    let test = "engines_of_one_parent_do_not_starve_each_other";
    match child::scenario().as_deref() {
        None => {
            child::succeeds(test, "child");
            child::succeeds(test, "parent");
            child::succeeds(test, "sibling");
        }
        Some("child") => {
            let parent = engine(16);
            let child = within(&parent, 12).unwrap();
            second_gets_memory(&parent, &parent, &child, "child");
        }
        Some("parent") => {
            let parent = engine(16);
            let child = within(&parent, 16).unwrap();
            second_gets_memory(&parent, &child, &parent, "parent");
        }
        Some(_) => {
            let parent = engine(20);
            let (one, other) = (within(&parent, 16), within(&parent, 16));
            second_gets_memory(&parent, &one.unwrap(), &other.unwrap(), "sibling");
        }
    }
}

#[test]
fn half_of_the_budget_can_be_pinned_and_the_rest_still_serves() {
    let file = made_file("pinned", 32 * MIB);
    let engine = engine(16);
    let map = map(&engine, &file);
    let error = map.pin(0..8 * MIB + 4096).unwrap_err();
    assert_eq!(error, FaultError::NoMemory);
    let mut pins = Vec::new();
    let mut at = 0;
    while let Ok(pinned) = map.pin(at..at + MIB / 2) {
        pins.push(pinned);
        at += MIB / 2;
    }
    assert!((12..=16).contains(&pins.len()), "{} pins", pins.len());
    read_all(&map);
    for (number, pinned) in pins.iter().enumerate() {
        let start = number * MIB / 2;
        assert!(
            (0..MIB / 2)
                .step_by(501)
                .all(|at| pinned[at] == byte_at(start + at))
        );
    }
    let stats = engine.stats();
    assert!(stats.peak_bytes <= 16 << 20, "{stats:?}");
    drop(pins);
    assert!(map.pin(8 * MIB..15 * MIB).is_ok());
    assert!(map.pin(..).is_err());
}

/// `Mmap::pin`: the bytes that a pin of so many pages counts for, in a budget of 16 MiB of which it may have half.
#[test]
fn a_pin_counts_for_its_pages_and_32_more_and_one_for_2_mib() {
    let file = made_file("pin-counts", 32 * MIB);
    let engine = engine(16);
    let map = map(&engine, &file);
    let of_the_same_byte: Vec<_> = (0..100).map_while(|_| map.pin(7..8).ok()).collect();
    assert_eq!(of_the_same_byte.len(), 8 * MIB / 4096 / (1 + 32));
    drop(of_the_same_byte);
    // 2,013 and 32, and 3 for its page tables: 2,048.
    let most = 2013 * 4096;
    assert_eq!(
        map.pin(..most + 1).map(drop),
        Err(FaultError::NoMemory),
        "a page more"
    );
    let largest = map.pin(..most).unwrap();
    assert!(map.pin(20 * MIB..20 * MIB + 1).is_err());
    drop(largest);
    assert!(map.pin(20 * MIB..20 * MIB + 1).is_ok());
}

/// 500 threads that all have their touches to make.
fn crowd(name: &str, offset: impl Fn(usize, usize) -> usize + Sync, advice: Advice) {
    const THREADS: usize = 500;
    const TOUCHES: usize = 40;
    let file = made_file(name, 64 * MIB);
    let engine = engine(32);
    let map = map(&engine, &file);
    map.advise(advice).unwrap();
    let done = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (map, done, offset) = (&map, &done, &offset);
            let builder = std::thread::Builder::new().stack_size(64 << 10);
            let work = move || {
                for touch in 0..TOUCHES {
                    check(map, offset(thread, touch) % map.len());
                    done.fetch_add(1, SeqCst);
                }
            };
            builder.spawn_scoped(scope, work).unwrap();
        }
    });
    assert_eq!(done.load(SeqCst), THREADS * TOUCHES);
    let stats = engine.stats();
    assert!(stats.peak_bytes <= 32 << 20, "{stats:?}");
}

#[test]
fn five_hundred_threads_in_a_small_budget_at_random() {
    let random = |thread: usize, touch: usize| {
        let word = (thread * 1000 + touch + 1) as u64;
        (word.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 24) as usize
    };
    crowd("crowd-random", random, Advice::Normal);
}

#[test]
fn five_hundred_threads_in_a_small_budget_in_order() {
    let order = |thread: usize, touch: usize| thread * 131_072 + touch * 4096;
    crowd("crowd-order", order, Advice::Sequential);
}

#[test]
fn maps_keep_their_engine() {
    let file = made_file("keeps", 16 * MIB);
    let map = map(&engine(8), &file);
    read_all(&map);
    assert!(map.engine().stats().peak_bytes <= 8 << 20);
    let engine = map.engine().clone();
    drop(map);
    assert_eq!(engine.stats().windows, 0);
}

#[test]
fn many_engines_at_once_and_one_after_the_other() {
    let test = "many_engines_at_once_and_one_after_the_other";
    if child::scenario().is_none() {
        return child::succeeds(test, "alone");
    }
    let file = made_file("engines", 2 * MIB);
    let engines: Vec<_> = (0..12).map(|_| engine(8)).collect();
    let maps: Vec<_> = engines.iter().map(|engine| map(engine, &file)).collect();
    drop(engines);
    std::thread::scope(|scope| {
        for map in &maps {
            scope.spawn(|| read_all(map));
        }
    });
    drop(maps);
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let mappings = || {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines().count()
    };
    let mut after = Vec::new();
    for round in 0..8 {
        let map = map(&engine(8), &file);
        check(&map, round * 4096);
        drop(map);
        after.push((open(), mappings()));
    }
    // The process's own few descriptors may be opened one after the other, and
    // freed memory joins its neighbours or not; but nothing grows with engines.
    let (first, last) = (after[0], after[7]);
    assert!(last.0 <= first.0 + 5, "descriptors: {after:?}");
    assert!(last.1 <= first.1 + 5, "mappings: {after:?}");
}
