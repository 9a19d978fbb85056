//! Models of whole faults: the engine as it is, over one small file, and two
//! threads. The parts that are modelled one by one elsewhere meet here: the folio
//! lock and its waiters, the index's references, the range word, the frame
//! pool, the budget and the retry.
//!
//! A fault has a hundred operations of the façade, so that one preemption is
//! the most that can be explored; the tables' pages and the frames are cells that loom
//! watches. Nobody's time is ever up: a wake-up that is lost is a deadlock.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::model::engine::Engine;
use crate::model::spawn;
use crate::model::{apart, explore};
use softfault_engine_loom::PAGE_SIZE;
use softfault_engine_loom::Store;
use softfault_engine_loom::cache::window::Spans;
use softfault_engine_loom::fault::{
    self, FaultError, FaultFlags, NeverInterrupted, Outcome, Pin, StartedFault,
};
use softfault_engine_loom::mmu::TABLE_SPAN;

/// Of each schedule, of two threads.
const PREEMPTIONS: Option<usize> = Some(1);

const NOT_MAPPED: Outcome = Outcome::Error(FaultError::NotMapped);
const BEYOND_END: Outcome = Outcome::Error(FaultError::BeyondEnd);

/// Explores `one` beside `other`, on an engine that `before` has prepared, and
/// then asks `after`, with the result of `one`.
fn beside<R: Send + 'static>(
    new: fn() -> Arc<Engine>,
    before: fn(&Engine),
    one: fn(&Engine) -> R,
    other: fn(&Engine),
    after: impl Fn(&Engine, R) + Send + Sync + 'static,
) {
    explore(PREEMPTIONS, move || {
        let engine = new();
        before(&engine);
        // Neither is the main thread, so that either may begin for nothing.
        let one = {
            let engine = Arc::clone(&engine);
            spawn(move || one(&engine))
        };
        let other = {
            let engine = Arc::clone(&engine);
            spawn(move || other(&engine))
        };
        let result = one.join().unwrap();
        other.join().unwrap();
        after(&engine, result);
    })
}

fn file() -> Arc<Engine> {
    Engine::new(1, false, "retry=vma-lock")
}

fn faults(engine: &Engine) -> Outcome {
    engine.fault(0)
}

fn touch(engine: &Engine) {
    assert_eq!(engine.fault(0), Outcome::Mapped);
}

#[test]
fn two_faults_of_a_page_read_it_once() {
    beside(
        file,
        |_| {},
        faults,
        touch,
        |engine, ended| {
            assert_eq!(ended, Outcome::Mapped);
            assert_eq!(engine.disk.reads(), 1);
            assert!(engine.tables.has(engine.addr(0)));
        },
    );
}

/// A fault whose read nobody sleeps in, as one that a thread serves for others.
fn begins(engine: &Engine) -> Outcome {
    let mut begun = fault::begin(&engine.space, engine.addr(0), FaultFlags::default());
    loop {
        begun = match begun {
            StartedFault::Over(outcome) => return outcome,
            StartedFault::Waits(wait) => return wait.wait(&NeverInterrupted),
            StartedFault::Read(read) => {
                let asked = read.request(0);
                // SAFETY: the buffer is the read's until it has arrived.
                let got = unsafe { engine.disk.read(asked.offset, asked.buffer, asked.bytes) };
                read.arrived(got)
            }
        };
    }
}

/// A fault that is left to others when it would have to read or wait.
fn gives_up(engine: &Engine) {
    match fault::begin(&engine.space, engine.addr(0), FaultFlags::default()) {
        StartedFault::Over(outcome) => assert_eq!(outcome, Outcome::Mapped),
        StartedFault::Read(read) => drop(read),
        StartedFault::Waits(wait) => {
            wait.leave();
        }
    }
}

#[test]
fn a_read_that_was_begun_arrives_beside_a_fault_of_its_page() {
    beside(
        file,
        |_| {},
        begins,
        touch,
        |engine, ended| {
            assert_eq!(ended, Outcome::Mapped);
            assert_eq!(engine.disk.reads(), 1);
            assert!(engine.tables.has(engine.addr(0)));
        },
    );
}

#[test]
fn a_read_without_a_reader_is_done_by_its_waiter() {
    beside(
        file,
        |_| {},
        faults,
        gives_up,
        |engine, ended| {
            assert_eq!(ended, Outcome::Mapped);
            assert_eq!(engine.disk.reads(), 1);
            assert!(engine.tables.has(engine.addr(0)));
        },
    );
}

#[test]
fn a_read_that_was_begun_against_reclaim() {
    let reclaim = |engine: &Engine| {
        engine.node.reclaim(1);
    };
    beside(
        file,
        |_| {},
        begins,
        reclaim,
        |engine, ended| {
            assert_eq!(ended, Outcome::Mapped);
            assert_eq!(engine.node.stats.retry_io_miss.get(), 0);
            assert_eq!(engine.disk.reads(), 1);
        },
    );
}

#[test]
fn a_read_that_was_begun_against_truncate() {
    let truncate = |engine: &Engine| engine.cache.truncate(0);
    beside(
        file,
        |_| {},
        begins,
        truncate,
        |engine, ended| {
            assert!([Outcome::Mapped, BEYOND_END].contains(&ended), "{ended:?}");
            assert!(!engine.tables.has(engine.addr(0)), "shown past the end");
            assert_eq!(engine.cache.folio_count(), 0);
        },
    );
}

#[test]
fn two_faults_of_a_page_that_was_read_ahead() {
    // The read is in the queue: one of them reaps it, the other sleeps on the
    // folio, or both find it done.
    let new = || Engine::new(1, true, "retry=vma-lock");
    let ahead = |engine: &Engine| {
        let addr = engine.addr(0);
        fault::prefetch(&engine.cache, addr..addr + PAGE_SIZE);
        assert_eq!(engine.disk.reads(), 1);
    };
    beside(new, ahead, faults, touch, |engine, ended| {
        assert_eq!(ended, Outcome::Mapped);
        assert_eq!(engine.disk.reads(), 1);
    });
}

#[test]
fn a_fault_against_read_ahead() {
    // The folio is locked before its read is in flight: a fault that came in
    // between hears of it, and reaps.
    let new = || Engine::new(1, true, "retry=vma-lock");
    let ahead = |engine: &Engine| {
        let addr = engine.addr(0);
        fault::prefetch(&engine.cache, addr..addr + PAGE_SIZE);
    };
    beside(
        new,
        |_| {},
        faults,
        ahead,
        |engine, ended| {
            assert_eq!(ended, Outcome::Mapped);
            assert_eq!(engine.disk.reads(), 1);
        },
    );
}

#[test]
fn a_fault_against_reclaim() {
    // The folio that was read stays until the retry has looked (`RetryPin`).
    let reclaim = |engine: &Engine| {
        engine.node.reclaim(1);
    };
    beside(
        file,
        |_| {},
        faults,
        reclaim,
        |engine, ended| {
            assert_eq!(ended, Outcome::Mapped);
            assert_eq!(engine.node.stats.retry_io_miss.get(), 0);
            assert_eq!(engine.disk.reads(), 1);
        },
    );
}

#[test]
fn a_fault_against_reclaim_that_may_take_its_folio() {
    apart(|| {
        let new = || Engine::new(1, false, "retry=vma-lock+pin=no");
        let missed = Arc::new(AtomicUsize::new(0));
        let reclaim = |engine: &Engine| {
            engine.node.reclaim(1);
        };
        beside(new, |_| {}, faults, reclaim, {
            let missed = Arc::clone(&missed);
            move |engine, ended| {
                assert_eq!(ended, Outcome::Mapped);
                let misses = engine.node.stats.retry_io_miss.get() as usize;
                assert_eq!(engine.disk.reads(), 1 + misses);
                missed.fetch_add(misses, Relaxed);
            }
        });
        assert!(missed.load(Relaxed) > 0, "reclaim was never in time");
    });
}

#[test]
fn a_fault_against_the_eviction_of_its_page() {
    let reclaim = |engine: &Engine| {
        engine.node.reclaim(1);
    };
    beside(file, touch, faults, reclaim, |engine, ended| {
        assert_eq!(ended, Outcome::Mapped);
        let there = usize::from(engine.tables.has(engine.addr(0)));
        assert_eq!(engine.cache.folio_count(), there);
    });
}

#[test]
fn a_fault_against_the_eviction_of_its_neighbour() {
    // Both are in one page table: whoever goes last zaps it whole, and the
    // other waits for that.
    let new = || Engine::new(2, false, "retry=vma-lock");
    let second = |engine: &Engine| engine.fault(1);
    let reclaim = |engine: &Engine| {
        engine.node.reclaim(1);
    };
    beside(new, touch, second, reclaim, |engine, ended| {
        assert_eq!(ended, Outcome::Mapped);
        assert!(engine.tables.has(engine.addr(1)) || engine.cache.folio_count() == 0);
    });
}

#[test]
fn a_fault_against_truncate() {
    let truncate = |engine: &Engine| engine.cache.truncate(0);
    beside(
        file,
        |_| {},
        faults,
        truncate,
        |engine, ended| {
            assert!([Outcome::Mapped, BEYOND_END].contains(&ended), "{ended:?}");
            assert!(!engine.tables.has(engine.addr(0)), "shown past the end");
            assert_eq!(engine.cache.folio_count(), 0);
        },
    );
}

#[test]
fn a_fault_against_unmap() {
    let unmap = |engine: &Engine| engine.unmap(engine.addr(0));
    beside(
        file,
        |_| {},
        faults,
        unmap,
        |engine, ended| {
            assert!([Outcome::Mapped, NOT_MAPPED].contains(&ended), "{ended:?}");
            assert_eq!(engine.fault(0), NOT_MAPPED);
        },
    );
}

#[test]
fn a_pin_against_invalidate() {
    // A pinned folio stays, and is forgotten with its last pin.
    let pin = |engine: &Engine| {
        let range = engine.addr(0)..engine.addr(0) + PAGE_SIZE;
        let pinned = fault::pin(
            &engine.space,
            &engine.cache,
            range.clone(),
            range.start,
            &NeverInterrupted,
        );
        assert_eq!(pinned, Pin::Done);
        assert!(engine.tables.has(range.start), "a pinned page went");
        fault::unpin(&engine.cache, range);
    };
    let invalidate = |engine: &Engine| {
        let addr = engine.addr(0);
        engine.cache.invalidate(addr..addr + PAGE_SIZE);
    };
    beside(file, touch, pin, invalidate, |engine, ()| {
        let there = usize::from(engine.tables.has(engine.addr(0)));
        assert_eq!(engine.cache.folio_count(), there);
    });
}

#[test]
fn a_fault_waits_for_memory_that_comes_back() {
    // Others have all of it; nothing of ours can be evicted.
    let take = |engine: &Engine| {
        assert!(engine.budget.try_charge(engine.budget.free(), 0));
    };
    let give = |engine: &Engine| engine.budget.uncharge(64);
    beside(file, take, faults, give, |engine, ended| {
        assert_eq!(ended, Outcome::Mapped);
        // A page and its table. The window's own pages were charged with it.
        assert_eq!(engine.budget.free(), 64 - 1 - 1);
        let window = Spans::table_pages(TABLE_SPAN);
        let others = engine.budget.limit() - engine.fixed - window - 64;
        engine.budget.uncharge(others);
    });
}

/// Where [`Engine::map_anonymous`] maps: the second window.
fn anonymous(engine: &Engine) -> usize {
    engine.addr(0) + TABLE_SPAN
}

fn with_anonymous(engine: &Engine) {
    assert_eq!(engine.map_anonymous(), anonymous(engine));
}

fn faults_anonymous(engine: &Engine) -> Outcome {
    engine.fault_at(anonymous(engine))
}

#[test]
fn two_faults_of_an_anonymous_page_fill_it_once() {
    let touch = |engine: &Engine| assert_eq!(faults_anonymous(engine), Outcome::Mapped);
    beside(
        file,
        with_anonymous,
        faults_anonymous,
        touch,
        |engine, ended| {
            assert_eq!(ended, Outcome::Mapped);
            assert_eq!(engine.node.stats.anonymous_faults.get(), 1);
        },
    );
}

#[test]
fn an_anonymous_fault_against_unmap() {
    let unmap = |engine: &Engine| engine.unmap(anonymous(engine));
    beside(
        file,
        with_anonymous,
        faults_anonymous,
        unmap,
        |engine, ended| {
            assert!([Outcome::Mapped, NOT_MAPPED].contains(&ended), "{ended:?}");
            assert!(!engine.tables.has(anonymous(engine)), "shown after all");
        },
    );
}

#[test]
fn an_anonymous_fault_against_the_unmap_of_its_neighbour() {
    // Both pages are in one page table, which goes with the first if the second
    // is not in it yet: then that waits, and has paid for nothing.
    let before = |engine: &Engine| {
        with_anonymous(engine);
        assert_eq!(faults_anonymous(engine), Outcome::Mapped);
    };
    let second = |engine: &Engine| engine.fault_at(anonymous(engine) + 2 * PAGE_SIZE);
    let unmap = |engine: &Engine| engine.unmap(anonymous(engine));
    beside(file, before, second, unmap, |engine, ended| {
        assert_eq!(ended, Outcome::Mapped);
        assert!(!engine.tables.has(anonymous(engine)), "shown after all");
        let second = anonymous(engine) + PAGE_SIZE;
        assert!(engine.tables.has(second), "zapped with its neighbour");
    });
}
