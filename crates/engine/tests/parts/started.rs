//! Faults that a thread begins and does not wait in: their reads are in nobody's hands, and arrive anywhere.

use crate::files::{pages, random};
use softfault_engine::PAGE_SIZE;
use softfault_engine::fault::{
    self, FaultError, FaultFlags, FaultRead, NeverInterrupted, Outcome, StartedFault,
};
use softfault_engine::store::{Store, StoreError};
use softfault_oracle::{Rig, TestStore};
use std::thread;

const PAGES: u64 = 2048;

fn begin(rig: &Rig, addr: usize) -> StartedFault<'_> {
    fault::begin(&rig.space, addr, FaultFlags::default())
}

#[track_caller]
fn read(begun: StartedFault<'_>) -> FaultRead<'_> {
    match begun {
        StartedFault::Read(read) => read,
        StartedFault::Over(outcome) => panic!("it is over: {outcome:?}"),
        StartedFault::Waits(_) => panic!("it waits"),
    }
}

#[track_caller]
fn over(begun: StartedFault<'_>) -> Outcome {
    match begun {
        StartedFault::Over(outcome) => outcome,
        StartedFault::Read(_) => panic!("it reads"),
        StartedFault::Waits(_) => panic!("it waits"),
    }
}

/// Does a read, as a store would.
fn filled(store: &TestStore, read: &FaultRead<'_>) -> Result<usize, StoreError> {
    let asked = read.request(7);
    assert_eq!(asked.cookie, 7);
    // SAFETY: the buffer is the read's until it has arrived.
    unsafe { store.read(asked.offset, asked.buffer, asked.bytes) }
}

#[test]
fn many_are_begun_and_arrive_in_another_thread_in_any_order() {
    let rig = Rig::new(PAGES);
    let store = TestStore::new(pages(1024));
    let (cache, start) = random(&rig, &store);
    let addr = |page: usize| start + page * 17 * PAGE_SIZE;
    let mut reads: Vec<_> = (0..50).map(|page| read(begin(&rig, addr(page)))).collect();
    // Nothing is held that others need.
    let mmap = rig.space.mmap_lock().try_write().expect("it is free");
    rig.space.find(&mmap, start).unwrap().start_write(&mmap);
    drop(mmap);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !reads.is_empty() {
                let read = reads.swap_remove(reads.len() / 2);
                let result = filled(&store, &read);
                assert_eq!(over(read.arrived(result)), Outcome::Mapped);
            }
        });
    });
    for page in 0..50 {
        assert_eq!(
            rig.touch(addr(page)),
            Ok(store.byte((page * 17 * PAGE_SIZE) as u64))
        );
    }
    let stats = &rig.node.stats;
    assert_eq!(
        (stats.major_faults.get(), stats.minor_faults.get()),
        (50, 0)
    );
    assert_eq!(stats.retry_mmap_drop.get(), 50);
    assert_eq!(store.reads().len(), 50);
    drop(reads);
    drop(cache);
    rig.finish();
}

/// A thread that serves others must not wait for a writer, which may wait for a read that the thread has begun.
#[test]
fn a_lock_is_waited_for_by_a_thread() {
    let rig = Rig::new(PAGES);
    let store = TestStore::new(pages(64));
    let (cache, start) = random(&rig, &store);
    let mmap = rig.space.mmap_lock().write();
    rig.space.find(&mmap, start).unwrap().start_write(&mmap);
    let StartedFault::Waits(wait) = begin(&rig, start) else {
        panic!("somebody changes the mapping");
    };
    drop(mmap);
    assert_eq!(wait.wait(&NeverInterrupted), Outcome::Mapped);
    drop(cache);
    rig.finish();
}

#[test]
fn a_thread_waits_for_reads_of_others() {
    let rig = Rig::new(PAGES);
    let store = TestStore::new(pages(64));
    let (cache, start) = random(&rig, &store);
    let first = read(begin(&rig, start));
    let StartedFault::Waits(wait) = begin(&rig, start) else {
        panic!("the page is being read");
    };
    // Left, it holds nothing; another thread that waits is woken when it has arrived.
    assert!(wait.leave().tried);
    thread::scope(|scope| {
        let waits = scope.spawn(|| match begin(&rig, start) {
            StartedFault::Waits(wait) => wait.wait(&NeverInterrupted),
            begun => over(begun),
        });
        let result = filled(&store, &first);
        assert_eq!(over(first.arrived(result)), Outcome::Mapped);
        assert_eq!(waits.join().unwrap(), Outcome::Mapped);
    });
    assert_eq!(store.reads().len(), 1);
    drop(cache);
    rig.finish();
}

#[test]
fn a_read_that_is_dropped_is_anothers_to_do() {
    let rig = Rig::new(PAGES);
    let store = TestStore::new(pages(64));
    let (cache, start) = random(&rig, &store);
    drop(read(begin(&rig, start)));
    assert_eq!((cache.folio_count(), rig.node.frames_in_use()), (0, 0));
    // Or in this thread.
    let late = read(begin(&rig, start));
    assert_eq!(late.wait(&NeverInterrupted), Outcome::Mapped);
    assert_eq!(rig.touch(start), Ok(store.byte(0)));
    assert_eq!(store.reads().len(), 1);
    drop(cache);
    rig.finish();
}

#[test]
fn a_read_that_fails_ends_the_fault_and_no_other() {
    let rig = Rig::new(PAGES);
    let store = TestStore::new(pages(64));
    let (cache, start) = random(&rig, &store);
    let failed = read(begin(&rig, start));
    let outcome = over(failed.arrived(Err(StoreError::Io(5))));
    assert_eq!(outcome, Outcome::Error(FaultError::Io(5)));
    assert_eq!(rig.touch(start), Ok(store.byte(0)));
    drop(cache);
    rig.finish();
}

#[test]
fn a_completion_for_a_dropped_mapping_maps_nothing() {
    let rig = Rig::new(PAGES);
    let store = TestStore::new(pages(64));
    let (cache, start) = random(&rig, &store);
    let late = read(begin(&rig, start));
    rig.unmap(start..start + PAGE_SIZE);
    let result = filled(&store, &late);
    let not_mapped = Outcome::Error(FaultError::NotMapped);
    let StartedFault::Waits(wait) = late.arrived(result) else {
        panic!("whether it is mapped is known under `mmap_lock`");
    };
    assert_eq!(wait.wait(&NeverInterrupted), not_mapped);
    drop(cache);
    rig.finish();
}

/// Of files alone room is made at once: nobody is waited for.
#[test]
fn room_is_made_without_a_wait() {
    let rig = Rig::new(PAGES);
    let store = TestStore::new(pages(4 * PAGES as usize));
    let (cache, start) = random(&rig, &store);
    for page in 0..4 * PAGES as usize {
        let addr = start + page * PAGE_SIZE;
        let read = read(begin(&rig, addr));
        let result = filled(&store, &read);
        assert_eq!(over(read.arrived(result)), Outcome::Mapped);
    }
    let stats = &rig.node.stats;
    assert!(stats.evicted.get() > 0);
    assert_eq!(stats.memory_waits.get(), 0);
    drop(cache);
    rig.finish();
}

/// Locks that a policy keeps over a wait belong to a thread.
#[test]
fn policies_that_keep_something_over_a_read_have_a_thread_wait() {
    for policies in ["retry=mmap-lock", "retry=held", "retry=vma-lock+pin=no"] {
        let rig = Rig::with_policies(PAGES, policies.parse().unwrap());
        let store = TestStore::new(pages(64));
        let (cache, start) = random(&rig, &store);
        let StartedFault::Waits(wait) = begin(&rig, start) else {
            panic!("{policies}");
        };
        wait.leave();
        assert_eq!(cache.folio_count(), 0, "{policies}");
        let StartedFault::Waits(wait) = begin(&rig, start) else {
            panic!("{policies}");
        };
        assert_eq!(wait.wait(&NeverInterrupted), Outcome::Mapped, "{policies}");
        assert_eq!(rig.touch(start), Ok(store.byte(0)), "{policies}");
        drop(cache);
        rig.finish();
    }
}

/// A read around a miss is given up as one of the miss alone is: the folio stayed locked, and the next thread that touched it waited for ever.
#[test]
fn a_read_around_that_is_left_locks_nothing() {
    for miss in ["baseline", "p1", "p2", "both"] {
        let rig = Rig::with_policies(PAGES, format!("miss={miss}").parse().unwrap());
        let store = TestStore::new(pages(64));
        let cache = rig.map(&store);
        let start = cache.addresses().start;
        let StartedFault::Waits(wait) = begin(&rig, start) else {
            panic!("{miss}");
        };
        wait.leave();
        assert_eq!(cache.folio_count(), 0, "{miss}");
        assert_eq!(rig.touch(start), Ok(store.byte(0)), "{miss}");
        drop(cache);
        rig.finish();
    }
}

/// What the store has at hand is read at once, and what it has not is read once, by a thread that waits.
#[test]
fn bytes_at_hand_are_not_waited_for() {
    let rig = Rig::new(PAGES);
    let store = TestStore::new(pages(64));
    store.set_at_hand(0..8);
    let (cache, start) = random(&rig, &store);
    let at_hand = |page: usize| read(begin(&rig, start + page * PAGE_SIZE)).at_hand();
    match at_hand(3) {
        Ok(begun) => assert_eq!(over(begun), Outcome::Mapped),
        Err(_) => panic!("the store has it"),
    }
    assert_eq!((store.reads().len(), store.missing()), (1, 0));
    let Err(missing) = at_hand(40) else {
        panic!("the store does not have it");
    };
    // The folio is locked still, and has no bytes.
    assert_eq!(store.reads().len(), 1);
    assert_eq!(missing.wait(&NeverInterrupted), Outcome::Mapped);
    assert_eq!((store.reads().len(), store.missing()), (2, 1));
    // One that is given up is read by the next fault.
    drop(at_hand(41));
    for page in [3, 40, 41] {
        let byte = store.byte((page * PAGE_SIZE) as u64);
        assert_eq!(rig.touch(start + page * PAGE_SIZE), Ok(byte));
    }
    assert_eq!((store.reads().len(), store.missing()), (3, 1));
    drop(cache);
    rig.finish();
}
