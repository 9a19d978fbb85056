//! Forks of a process whose threads write, evict, map and unmap.

use crate::child::{alone, assert_exit, forked};
use crate::scene::{BUDGET, PAGE, WORDS, check, check_rest, engine, read, word, write};
use softfault::MmapMut;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

const WRITERS: usize = 6;
/// Together three times the budget.
const EACH: usize = 3 * BUDGET / PAGE / WRITERS;

/// Ends the other threads, also where this one fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// Shows a thread's map to the child.
struct Shown(*const u8);

// SAFETY: the child has one thread; the parent does not look.
unsafe impl Sync for Shown {}

/// Writes done, the one under way not counted.
fn position(done: u64, page: usize) -> u64 {
    // The round that a page was last written in, pages being written one by one.
    let rounds = done / EACH as u64;
    rounds + u64::from((page as u64) < done % EACH as u64)
}

/// Fails if the memory does not have its words after so many writes: of the next page, some
/// words may have been written.
fn check_moment(map: &[u8], before: u64, after: u64, who: &str) {
    // Where the pages have got to: the first that is behind its neighbours before.
    let moment = (before..=after).rev().find(|&done| {
        let page = ((done + EACH as u64 - 1) % EACH as u64) as usize;
        done == before || read(map, page, WORDS[3]) == word(page, position(done, page))
    });
    let done = moment.unwrap();
    let next = (done % EACH as u64) as usize;
    for page in (0..EACH).filter(|&page| page != next) {
        match position(done, page) {
            0 => assert!(map[page * PAGE..][..PAGE].iter().all(|&byte| byte == 0)),
            round => check(map, page, round, who),
        }
    }
    let old = position(done, next);
    let of = |round| if round == 0 { 0 } else { word(next, round) };
    let words = WORDS.map(|at| read(map, next, at));
    let new = words
        .iter()
        .take_while(|&&found| found == of(old + 1))
        .count();
    assert!(
        words[new..].iter().all(|&found| found == of(old)),
        "{who}: page {next} of round {old}: {words:x?}"
    );
    check_rest(map, next, who);
}

#[test]
fn the_child_sees_one_moment_and_both_go_on() {
    alone("load::the_child_sees_one_moment_and_both_go_on", || {
        let engine = engine();
        let stop = AtomicBool::new(false);
        let done: Vec<AtomicU64> = (0..WRITERS).map(|_| AtomicU64::new(0)).collect();
        let mut maps: Vec<MmapMut> = (0..WRITERS)
            .map(|_| engine.map_anon(EACH * PAGE).unwrap())
            .collect();
        let shown: Vec<Shown> = maps.iter().map(|map| Shown(map.as_ptr())).collect();
        std::thread::scope(|scope| {
            let _ends = Ends(&stop);
            for (map, done) in maps.iter_mut().zip(&done) {
                let stop = &stop;
                scope.spawn(move || {
                    let mut count = 0;
                    while !stop.load(SeqCst) {
                        let page = (count % EACH as u64) as usize;
                        if position(count, page) > 0 && count % 7 == 0 {
                            check(map, page, position(count, page), "writer");
                        }
                        write(map, page, position(count, page) + 1);
                        count += 1;
                        done.store(count, SeqCst);
                    }
                });
            }
            // Others come and go.
            for _ in 0..2 {
                let (engine, stop) = (&engine, &stop);
                scope.spawn(move || {
                    let mut round = 1;
                    while !stop.load(SeqCst) {
                        let mut map = engine.map_anon(64 * PAGE).unwrap();
                        (0..64).for_each(|page| write(&mut map, page, round));
                        (0..64).for_each(|page| check(&map, page, round, "comes and goes"));
                        round += 1;
                    }
                });
            }
            for fork in 0..12 {
                let least = done.iter().map(|done| done.load(SeqCst)).max().unwrap() + 500;
                while done.iter().all(|done| done.load(SeqCst) < least) {
                    std::thread::yield_now();
                }
                // The counters are the child's own copy: of the same moment, but for one
                // write that was not counted yet.
                let status = forked(|| {
                    for (number, map) in shown.iter().enumerate() {
                        // SAFETY: the map of a thread that is not there any more.
                        let map = unsafe {
                            core::slice::from_raw_parts_mut(map.0.cast_mut(), EACH * PAGE)
                        };
                        let after = done[number].load(SeqCst);
                        let who = format!("fork {fork}, thread {number}");
                        check_moment(map, after, after + 1, &who);
                        (0..EACH).for_each(|page| write(map, page, 1 << 40));
                        (0..EACH).for_each(|page| check(map, page, 1 << 40, &who));
                    }
                    0
                });
                assert_exit(status, 0);
            }
        });
        for (map, done) in maps.iter().zip(&done) {
            let done = done.load(SeqCst);
            check_moment(map, done, done, "parent");
        }
        let stats = engine.stats();
        assert!(stats.peak_bytes <= BUDGET as u64, "{}", stats.peak_bytes);
        drop(maps);
        assert_eq!(engine.stats().swap.unwrap().slots_used, 0);
    });
}

#[test]
fn many_threads_fork_at_once() {
    let engine = engine();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let engine = &engine;
            scope.spawn(move || {
                let mut map = engine.map_anon(BUDGET).unwrap();
                for round in 1..8 {
                    (0..BUDGET / PAGE).for_each(|page| write(&mut map, page, round));
                    let status = crate::child::forked(|| {
                        let who = format!("thread {thread}");
                        (0..BUDGET / PAGE).for_each(|page| check(&map, page, round, &who));
                        0
                    });
                    assert_exit(status, 0);
                }
            });
        }
    });
}

#[test]
fn pages_being_evicted_at_the_fork_can_be_reached() {
    alone(
        "load::pages_being_evicted_at_the_fork_can_be_reached",
        || {
            const HOT: usize = 600;
            let engine = engine();
            let stop = AtomicBool::new(false);
            let mut map = engine.map_anon(HOT * PAGE).unwrap();
            (0..HOT).for_each(|page| write(&mut map, page, 1));
            let map = &map;
            std::thread::scope(|scope| {
                let _ends = Ends(&stop);
                let stop = &stop;
                // Most of the time their pages are locked, and on their way out.
                scope.spawn(move || {
                    while !stop.load(SeqCst) {
                        map.advise(softfault::Advice::PageOut).unwrap();
                    }
                });
                scope.spawn(move || {
                    while !stop.load(SeqCst) {
                        for page in 0..HOT {
                            // Dirty again, with the same word.
                            // SAFETY: an atomic, in memory that nobody writes otherwise.
                            unsafe { &*map.as_ptr().add(page * PAGE).cast::<AtomicU64>() }
                                .fetch_add(0, SeqCst);
                        }
                    }
                });
                for fork in 0..100 {
                    let status = crate::child::forked(|| {
                        let who = format!("fork {fork}");
                        (0..HOT).for_each(|page| check(map, page, 1, &who));
                        // Nobody is at work on any of them any more.
                        map.advise(softfault::Advice::PageOut).unwrap();
                        (0..HOT).for_each(|page| check(map, page, 1, &who));
                        0
                    });
                    assert_exit(status, 0);
                }
            });
            assert!(engine.stats().swap.unwrap().pages_out > 0);
        },
    );
}
