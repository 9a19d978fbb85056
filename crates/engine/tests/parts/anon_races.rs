//! Faults on anonymous memory against the verbs, with real threads.
//!
//! Threads write words with the time of their writing; so a reader of one knows
//! whether it may be there. How often the races are met differs from run
//! to run, the expected bytes do not.

use softfault_engine::PAGE_SIZE;
use softfault_engine::anon::Anonymous;
use softfault_engine::cache::MapError;
use softfault_engine::fault::{self, FaultError, NeverInterrupted, Stop, Stopped};
use softfault_engine::mm::{AddressSpace, Attributes, Backing, Protection};
use softfault_engine::mmu::Core;
use softfault_oracle::{Finally, Random, Rig};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

const START: usize = 0x4321_0000_0000 + 3 * PAGE_SIZE;

fn addr(page: usize) -> usize {
    START + page * PAGE_SIZE
}

fn range(pages: Range<usize>) -> Range<usize> {
    addr(pages.start)..addr(pages.end)
}

fn map(rig: &Rig, pages: Range<usize>) {
    try_map(rig, pages).unwrap();
}

fn try_map(rig: &Rig, pages: Range<usize>) -> Result<(), MapError> {
    let anon = Anonymous::new(rig.node.clone(), pages.len() * PAGE_SIZE)?;
    let attributes = Attributes {
        backing: Backing::from(anon),
        protection: Protection::ReadWrite,
        ..Attributes::default()
    };
    rig.space.mmap(range(pages), attributes).unwrap();
    Ok(())
}

fn error(stopped: Stopped) -> FaultError {
    match stopped.why {
        Stop::Error(error) => error,
        Stop::Interrupted => panic!("by nobody"),
    }
}

fn load(core: &mut Core, space: &AddressSpace, addr: usize) -> Result<u64, FaultError> {
    let mut word = [0; 8];
    fault::read_at(core, space, addr, &mut word, &NeverInterrupted).map_err(error)?;
    Ok(u64::from_le_bytes(word))
}

fn store(core: &mut Core, space: &AddressSpace, addr: usize, word: u64) -> Result<(), FaultError> {
    let word = word.to_le_bytes();
    fault::write_at(core, space, addr, &word, &NeverInterrupted).map_err(error)
}

fn core(rig: &Rig) -> Core {
    rig.mmu.core().unwrap()
}

/// A rig of so many pages, once for each kind of VMA lock.
fn rigs(pages: u64) -> impl Iterator<Item = Rig> {
    let policies = ["", "lock=rwsem+retry=mmap-lock", "lock=biased"];
    policies
        .into_iter()
        .map(move |policies| Rig::with_policies(pages, policies.parse().unwrap()))
}

/// Runs `verb` in this thread, and `threads` times `access`, each with its
/// number, again and again until `verb` is through.
fn beside(threads: u64, access: impl Fn(u64) + Sync, verb: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (stop, access) = (&stop, &access);
            scope.spawn(move || {
                while !stop.load(SeqCst) {
                    access(thread);
                }
            });
        }
        let _end = Finally(|| stop.store(true, SeqCst));
        verb();
    });
}

#[test]
fn unmapped_memory_is_never_seen_again() {
    rigs(8192).for_each(unmapped_memory_is_never_seen_again_with);
}

fn unmapped_memory_is_never_seen_again_with(rig: Rig) {
    const PAGES: usize = 600;
    let round = AtomicU64::new(1);
    // The round in which each thread began its access.
    let active: Vec<_> = (0..3).map(|_| AtomicU64::new(u64::MAX)).collect();
    let begin = |active: &AtomicU64| loop {
        let now = round.load(SeqCst);
        active.store(now, SeqCst);
        if round.load(SeqCst) == now {
            return now;
        }
    };
    let cores: Vec<_> = (0..3).map(|_| std::sync::Mutex::new(core(&rig))).collect();
    let access = |thread: u64| {
        let core = &mut *cores[thread as usize].lock().unwrap();
        let mut random = Random::new(thread + round.load(SeqCst) * 7);
        for _ in 0..50 {
            let word = addr(random.below(PAGES)) + random.below(512) * 8;
            let now = begin(&active[thread as usize]);
            // No thread writes any more that began two rounds ago, and the words
            // written before have been unmapped.
            let done = match random.below(2) {
                0 => store(core, &rig.space, word, now),
                _ => load(core, &rig.space, word).map(|found| {
                    assert!(found == 0 || found + 1 >= now, "{found} in round {now}");
                }),
            };
            active[thread as usize].store(u64::MAX, SeqCst);
            assert!(
                matches!(done, Ok(()) | Err(FaultError::NotMapped)),
                "{done:?}"
            );
        }
    };
    beside(3, access, || {
        let mut random = Random::new(99);
        for now in 1..80 {
            map(&rig, 0..PAGES);
            // In parts or whole, and the rest later.
            let cut = random.below(PAGES);
            for _ in 0..random.below(4) {
                std::thread::yield_now();
            }
            if cut > 0 {
                rig.unmap(range(0..cut));
            }
            rig.unmap(range(cut..PAGES));
            round.store(now + 1, SeqCst);
            for active in &active {
                while active.load(SeqCst) < now {
                    std::thread::yield_now();
                }
            }
        }
    });
    drop(cores);
    rig.finish();
}

#[test]
fn one_page_is_filled_once_in_any_order() {
    rigs(8192).for_each(one_page_is_filled_once_in_any_order_with);
}

fn one_page_is_filled_once_in_any_order_with(rig: Rig) {
    const PAGES: usize = 40;
    for round in 1..60 {
        map(&rig, 0..PAGES);
        let counted = || rig.node.stats.anonymous_faults.get() + rig.node.stats.filled_ahead.get();
        let before = counted();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let rig = &rig;
                scope.spawn(move || {
                    let mut core = core(rig);
                    for page in 0..PAGES {
                        let word = addr(page) + thread * 8;
                        assert_eq!(load(&mut core, &rig.space, word), Ok(0));
                        store(&mut core, &rig.space, word, round).unwrap();
                    }
                });
            }
        });
        let filled = counted() - before;
        assert_eq!(filled, PAGES as u64);
        let mut core = core(&rig);
        for word in (0..PAGES * 4).map(|at| addr(at / 4) + at % 4 * 8) {
            assert_eq!(load(&mut core, &rig.space, word), Ok(round));
        }
        drop(core);
        rig.unmap(range(0..PAGES));
    }
    rig.finish();
}

#[test]
fn a_fork_shows_one_moment_of_many_writers_and_stays_as_it_is() {
    rigs(16_384).for_each(a_fork_shows_one_moment_of_many_writers_and_stays_as_it_is_with);
}

fn a_fork_shows_one_moment_of_many_writers_and_stays_as_it_is_with(rig: Rig) {
    const WRITERS: u64 = 3;
    // Each writer has two pages, far apart, and writes the first one first.
    const APART: usize = 700;
    map(&rig, 0..2 * APART);
    let places = |writer: u64| {
        let page = writer as usize * 3;
        (addr(page) + 16, addr(page + APART) + 4088)
    };
    let counts: Vec<_> = (0..WRITERS).map(|_| AtomicU64::new(0)).collect();
    let cores: Vec<_> = (0..WRITERS)
        .map(|_| std::sync::Mutex::new(core(&rig)))
        .collect();
    let access = |writer: u64| {
        let core = &mut *cores[writer as usize].lock().unwrap();
        let (first, second) = places(writer);
        let count = counts[writer as usize].load(SeqCst) + 1;
        store(core, &rig.space, first, count).unwrap();
        store(core, &rig.space, second, count).unwrap();
        counts[writer as usize].store(count, SeqCst);
    };
    beside(WRITERS, access, || {
        let mut core = core(&rig);
        let mut children: Vec<(AddressSpace, Vec<u64>)> = Vec::new();
        for round in 0..150 {
            let before: Vec<_> = counts.iter().map(|count| count.load(SeqCst)).collect();
            let child = rig.another_space();
            rig.space.fork(&child).unwrap();
            let after: Vec<_> = counts.iter().map(|count| count.load(SeqCst)).collect();
            let mut seen = Vec::new();
            for writer in 0..WRITERS {
                let (first, second) = places(writer);
                let first = load(&mut core, &child, first).unwrap();
                let second = load(&mut core, &child, second).unwrap();
                let writer = writer as usize;
                assert!(second <= first && first <= second + 1, "{first} {second}");
                assert!(before[writer] <= second && second <= after[writer] + 1);
                seen.push(first);
            }
            children.push((child, seen));
            if round % 3 == 2 {
                // The oldest, or another, has not changed, and goes.
                let place = round % children.len();
                let (child, seen) = children.swap_remove(place);
                for (writer, seen) in seen.iter().enumerate() {
                    let (first, second) = places(writer as u64);
                    assert_eq!(load(&mut core, &child, first), Ok(*seen));
                    store(&mut core, &child, second, u64::MAX).unwrap();
                }
                child.exit(|_, _| {});
            }
            if children.len() > 4 {
                let (child, _) = children.remove(0);
                child.exit(|_, _| {});
            }
        }
        for (child, _) in children {
            child.exit(|_, _| {});
        }
    });
    // No child's writing came back.
    for writer in 0..WRITERS {
        let (first, second) = places(writer);
        let core = &mut *cores[writer as usize].lock().unwrap();
        let count = counts[writer as usize].load(SeqCst);
        assert_eq!(load(core, &rig.space, first), Ok(count));
        assert_eq!(load(core, &rig.space, second), Ok(count));
    }
    drop(cores);
    rig.finish();
}

#[test]
fn nothing_is_written_while_it_may_only_be_read() {
    rigs(4096).for_each(nothing_is_written_while_it_may_only_be_read_with);
}

fn nothing_is_written_while_it_may_only_be_read_with(rig: Rig) {
    const PAGES: usize = 8;
    map(&rig, 0..PAGES);
    let count = AtomicU64::new(0);
    let cores: Vec<_> = (0..3).map(|_| std::sync::Mutex::new(core(&rig))).collect();
    let access = |thread: u64| {
        let core = &mut *cores[thread as usize].lock().unwrap();
        let count = count.fetch_add(1, SeqCst);
        let word = addr(count as usize % PAGES) + thread as usize * 8;
        let done = store(core, &rig.space, word, count);
        assert!(
            matches!(done, Ok(()) | Err(FaultError::Protection)),
            "{done:?}"
        );
    };
    beside(3, access, || {
        let mut core = core(&rig);
        let mut all = |rig: &Rig| -> Vec<u64> {
            let words = (0..PAGES * 3).map(|at| addr(at / 3) + at % 3 * 8);
            let words = words.map(|word| load(&mut core, &rig.space, word));
            words.map(Result::unwrap).collect()
        };
        for round in 0..60 {
            let first = round % 3;
            rig.protect(range(first..PAGES), Protection::Read);
            let before = all(&rig);
            let written = count.load(SeqCst);
            while count.load(SeqCst) < written + 20 {
                std::thread::yield_now();
            }
            assert_eq!(all(&rig)[first * 3..], before[first * 3..]);
            rig.protect(range(0..PAGES), Protection::ReadWrite);
        }
    });
    drop(cores);
    rig.finish();
}

#[test]
fn a_word_that_moves_about_is_never_lost() {
    rigs(4096).for_each(a_word_that_moves_about_is_never_lost_with);
}

fn a_word_that_moves_about_is_never_lost_with(rig: Rig) {
    const PAGES: usize = 20;
    map(&rig, 0..PAGES);
    // It is at one of these, whenever nobody moves it.
    let places = [0, 40, 1000];
    let counts: Vec<_> = (0..3).map(|_| AtomicU64::new(0)).collect();
    let cores: Vec<_> = (0..3).map(|_| std::sync::Mutex::new(core(&rig))).collect();
    let access = |thread: u64| {
        let core = &mut *cores[thread as usize].lock().unwrap();
        let page = thread as usize * 7;
        let mut anywhere = |write: Option<u64>| loop {
            for place in places {
                let word = addr(place + page);
                let done = match write {
                    Some(value) => store(core, &rig.space, word, value).map(|()| value),
                    None => load(core, &rig.space, word),
                };
                match done {
                    Err(FaultError::NotMapped) => {}
                    done => return done.unwrap(),
                }
            }
        };
        let count = counts[thread as usize].fetch_add(1, SeqCst) + 1;
        anywhere(Some(count));
        assert_eq!(anywhere(None), count);
    };
    beside(3, access, || {
        let mut at = 0;
        for round in 0..3000 {
            let next = places[(round * 2 + 1 + round / 7) % 3];
            if next != at {
                // Whole, or the upper part first.
                let cut = round % PAGES;
                for part in [cut..PAGES, 0..cut] {
                    if !part.is_empty() {
                        let from = range(at + part.start..at + part.end);
                        rig.space.mremap(from, addr(next + part.start)).unwrap();
                    }
                }
                at = next;
            }
        }
    });
    drop(cores);
    rig.finish();
}

#[test]
fn a_full_budget_is_an_error_and_no_deadlock() {
    rigs(2048).for_each(a_full_budget_is_an_error_and_no_deadlock_with);
}

fn a_full_budget_is_an_error_and_no_deadlock_with(rig: Rig) {
    const PAGES: usize = 900;
    let failed = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4_usize {
            let (rig, failed) = (&rig, &failed);
            scope.spawn(move || {
                let mut core = core(rig);
                let pages = thread * 5000..thread * 5000 + PAGES;
                for round in 1..4 {
                    if let Err(error) = try_map(rig, pages.clone()) {
                        assert!(matches!(error, MapError::Budget(_)), "{error:?}");
                        failed.fetch_add(1, SeqCst);
                        continue;
                    }
                    for page in pages.clone() {
                        let space = &rig.space;
                        match store(&mut core, space, addr(page), round) {
                            Ok(()) => assert_eq!(load(&mut core, space, addr(page)), Ok(round)),
                            Err(error) => {
                                assert_eq!(error, FaultError::NoMemory);
                                failed.fetch_add(1, SeqCst);
                                break;
                            }
                        }
                    }
                    rig.unmap(range(pages.clone()));
                }
            });
        }
    });
    println!("{failed:?} touches found no memory");
    rig.finish();
}
