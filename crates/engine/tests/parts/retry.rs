//! The policies of a retry, one scene each: which lock is held while a fault
//! waits, and whether its folio is still there when it comes back.

use crate::files::{AlwaysInterrupted, pages, random};
use softfault_engine::PAGE_SIZE;
use softfault_engine::fault::{self, Completion, FaultFlags, Outcome};
use softfault_engine::mm::{Advice, MmapWriteGuard};
use softfault_engine::store::{Extent, Read, Store, StoreError};
use softfault_oracle::{Random, Rig, TestStore};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const PAGES: u64 = 2048;
/// Every pair of the two policies.
const ALL: [&str; 6] = [
    "retry=vma-lock+pin=yes",
    "retry=vma-lock+pin=no",
    "retry=mmap-lock+pin=yes",
    "retry=mmap-lock+pin=no",
    "retry=held+pin=yes",
    "retry=held+pin=no",
];

fn rig(pages: u64, policies: &str) -> Rig {
    Rig::with_policies(pages, policies.parse().unwrap())
}

/// Touches a page that the closed store holds back. Once it is read, the retry waits for `mmap_lock`, without which it finds no
/// VMA, until `meanwhile` drops it.
pub fn at_its_retry(
    rig: &Rig,
    store: &TestStore,
    start: usize,
    meanwhile: impl FnOnce(MmapWriteGuard<'_>),
) {
    thread::scope(|scope| {
        let reader = scope.spawn(|| rig.touch(start));
        store.wait_blocked(1);
        let mmap = rig.space.mmap_lock().write();
        rig.space.find(&mmap, start).unwrap().start_write(&mmap);
        store.open();
        meanwhile(mmap);
        assert_eq!(reader.join().unwrap(), Ok(store.byte(0)));
    });
}

/// Brings a fault of page 0 to its second wait for I/O and calls `then`: it has
/// read the page once, and found it gone.
fn at_the_second_wait(policies: &str, then: impl FnOnce(&Rig, usize)) {
    let rig = rig(PAGES, policies);
    let store = TestStore::new(pages(64));
    let (cache, start) = random(&rig, &store);
    store.close();
    at_its_retry(&rig, &store, start, |mmap| {
        cache.invalidate(start..start + PAGE_SIZE);
        store.close();
        drop(mmap);
        store.wait_blocked(1);
        then(&rig, start);
        store.open();
    });
    let stats = &rig.node.stats;
    assert_eq!(stats.retry_io_miss.get(), 1, "{policies}");
    assert_eq!(store.reads(), [0..1, 0..1]);
    let drops = match policies.starts_with("retry=mmap-lock") {
        true => 1,
        false => 2,
    };
    assert_eq!(stats.retry_mmap_drop.get(), drops, "{policies}");
    assert!(
        rig.space.mmap_lock().try_write().is_some(),
        "all locks are let go"
    );
    drop(cache);
    rig.finish();
}

#[test]
fn the_baseline_keeps_mmap_lock_over_its_second_wait() {
    for policies in ["retry=mmap-lock+pin=no", "retry=mmap-lock+pin=yes"] {
        at_the_second_wait(policies, |rig, start| {
            assert!(rig.space.mmap_lock().try_write().is_none());
            // It is a reader among others.
            assert!(rig.space.mmap_lock().try_read().is_some());
            assert!(rig.space.lock_vma(start).is_some());
        });
    }
}

#[test]
fn the_default_holds_nothing_over_any_wait() {
    for policies in ["retry=vma-lock", "retry=vma-lock+pin=no"] {
        at_the_second_wait(policies, |rig, start| {
            let mmap = rig.space.mmap_lock().try_write().expect("it is free");
            // Would wait for ever if the fault held its VMA.
            rig.space.find(&mmap, start).unwrap().start_write(&mmap);
        });
    }
}

#[test]
fn the_first_wait_of_the_baseline_drops_the_lock() {
    let rig = rig(PAGES, "retry=mmap-lock");
    let store = TestStore::new(pages(64));
    let (cache, start) = random(&rig, &store);
    store.close();
    thread::scope(|scope| {
        let reader = scope.spawn(|| rig.fault(start));
        store.wait_blocked(1);
        // Would wait for ever if the fault held its VMA or mmap_lock.
        rig.unmap(start..start + PAGE_SIZE);
        store.open();
        let not_mapped = Outcome::Error(fault::FaultError::NotMapped);
        assert_eq!(reader.join().unwrap(), not_mapped);
    });
    drop(cache);
    rig.finish();
}

#[test]
fn an_unmap_waits_for_the_reads_of_a_held_vma() {
    for policies in ["retry=held", "retry=held+pin=no"] {
        let rig = rig(PAGES, policies);
        let store = TestStore::new(pages(64));
        let (cache, start) = random(&rig, &store);
        let opened = AtomicBool::new(false);
        store.close();
        thread::scope(|scope| {
            let reader = scope.spawn(|| rig.fault(start));
            store.wait_blocked(1);
            // mmap_lock itself is free.
            drop(rig.space.mmap_lock().try_write().expect("it is free"));
            let unmapper = scope.spawn(|| {
                rig.unmap(start..start + PAGE_SIZE);
                opened.load(Ordering::SeqCst)
            });
            // It has begun: no reader comes in, and the fault's is there.
            while rig.space.lock_vma(start).is_some() {
                thread::yield_now();
            }
            opened.store(true, Ordering::SeqCst);
            store.open();
            assert!(unmapper.join().unwrap(), "{policies}: did not wait");
            assert_eq!(reader.join().unwrap(), Outcome::Mapped);
        });
        assert_eq!(rig.node.stats.retry_mmap_drop.get(), 0);
        drop(cache);
        rig.finish();
    }
}

/// Two VMAs have pages in one page table. With these policies a fault under the second waits for the zap of that table with its VMA
/// locked; so munmap must not have begun the zap when it waits for the fault.
#[test]
fn munmap_locks_all_vmas_before_the_first_goes() {
    for policies in ["retry=held", "retry=mmap-lock", "retry=vma-lock"] {
        let rig = rig(PAGES, policies);
        let store = TestStore::new(pages(64));
        let (cache, start) = random(&rig, &store);
        let second = start + 16 * PAGE_SIZE;
        let rest = second..start + 64 * PAGE_SIZE;
        rig.space.madvise(rest, Advice::Sequential).unwrap();
        assert!(rig.space.lock_vma(second).is_some(), "{policies}");
        let mut gone = 0;
        let unmapped = rig.space.munmap(cache.addresses(), |_, _| {
            assert!(rig.space.lock_vma(second).is_none(), "{policies}");
            gone += 1;
        });
        unmapped.unwrap();
        assert_eq!(gone, 2, "two VMAs");
        drop(cache);
        rig.finish();
    }
}

/// Between the end of the read and the retry everything is evicted.
#[test]
fn without_a_pin_reclaim_takes_the_folio_before_the_retry() {
    for policies in [
        "pin=no",
        "pin=yes",
        "retry=mmap-lock+pin=no",
        "retry=mmap-lock",
    ] {
        let pinned = !policies.contains("pin=no");
        let rig = rig(PAGES, policies);
        let store = TestStore::new(pages(64));
        let (cache, start) = random(&rig, &store);
        let stats = &rig.node.stats;
        store.close();
        at_its_retry(&rig, &store, start, |mmap| {
            while stats.read_waits.snapshot().count == 0 {
                thread::yield_now();
            }
            // The read is over, the retry waits for mmap_lock.
            rig.evict_all();
            let deadline = Instant::now() + Duration::from_secs(300);
            while !pinned && cache.folio_count() > 0 && Instant::now() < deadline {
                thread::yield_now();
                rig.evict_all();
            }
            assert_eq!(cache.folio_count(), usize::from(pinned), "{policies}");
            drop(mmap);
        });
        let missed = u64::from(!pinned);
        assert_eq!(stats.retry_io_miss.get(), missed, "{policies}");
        assert_eq!(store.reads().len() as u64, 1 + missed, "{policies}");
        drop(cache);
        rig.finish();
    }
}

/// A fault has read its folio and finds no memory to map it with: the folios that are
/// evicted then are others.
#[test]
fn a_folio_stays_while_room_is_made_for_it() {
    for policies in ALL {
        let rig = rig(4 * PAGES, policies);
        let store = TestStore::with_queue(pages(4096), 64);
        let cache = rig.map(&store);
        let start = cache.addresses().start;
        // Frames of several chunks, of which reclaim can have all but one.
        let mut ahead = start + 64 * PAGE_SIZE;
        for _ in 0..8 {
            ahead = fault::prefetch(&cache, ahead..cache.addresses().end);
            store.reap(u64::MAX, &Completion(&rig.node), 0);
        }
        let before = store.reads().len();
        store.close();
        thread::scope(|scope| {
            let reader = scope.spawn(|| rig.touch(start));
            store.wait_blocked(1);
            let free = rig.node.budget.free();
            assert!(rig.node.budget.try_charge(free, 0));
            store.open();
            assert_eq!(reader.join().unwrap(), Ok(store.byte(0)), "{policies}");
            rig.node.budget.uncharge(free);
        });
        let stats = &rig.node.stats;
        assert!(stats.memory_waits.get() > 0, "it had to wait for memory");
        assert_eq!(store.reads().len() - before, 1, "{policies}: read again");
        assert_eq!(stats.retry_io_miss.get(), 0, "{policies}");
        drop(cache);
        rig.finish();
    }
}

/// A store that takes asynchronous reads only to refuse them, when it is told.
struct Refuses {
    store: Arc<TestStore>,
    /// Whether a read was offered, and whether it may be refused.
    state: Mutex<(bool, bool)>,
    changed: Condvar,
}

impl Refuses {
    fn wait_for(&self, what: impl Fn(&(bool, bool)) -> bool) {
        let state = self.state.lock().unwrap();
        drop(self.changed.wait_while(state, |state| !what(state)));
    }

    fn set(&self, change: impl FnOnce(&mut (bool, bool))) {
        change(&mut self.state.lock().unwrap());
        self.changed.notify_all();
    }
}

impl Store for Refuses {
    fn len(&self) -> Result<u64, StoreError> {
        self.store.len()
    }

    fn extent(&self, offset: u64) -> Result<Extent, StoreError> {
        self.store.extent(offset)
    }

    unsafe fn read(&self, offset: u64, buffer: *mut u8, bytes: usize) -> Result<usize, StoreError> {
        // SAFETY: the caller's promise.
        unsafe { self.store.read(offset, buffer, bytes) }
    }

    unsafe fn submit(&self, _reads: &[Read]) -> usize {
        self.set(|state| state.0 = true);
        self.wait_for(|state| state.1);
        0
    }
}

/// A folio that was never read was not lost: the waiter reads it, and no miss counts.
#[test]
fn a_read_that_the_store_refused_is_no_miss() {
    // A fault that holds its VMA drops nothing that could be waited for here.
    for policies in &ALL[..4] {
        let rig = rig(PAGES, policies);
        let store = Arc::new(Refuses {
            store: TestStore::new(pages(64)),
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let cache = rig.map(&store);
        let start = cache.addresses().start;
        let stats = &rig.node.stats;
        thread::scope(|scope| {
            scope.spawn(|| fault::prefetch(&cache, start..start + 4 * PAGE_SIZE));
            store.wait_for(|state| state.0);
            let toucher = scope.spawn(|| rig.touch(start));
            // Counted just before it waits, with the folio in hand.
            while stats.retry_mmap_drop.get() == 0 {
                thread::yield_now();
            }
            store.set(|state| state.1 = true);
            assert_eq!(toucher.join().unwrap(), Ok(store.store.byte(0)));
        });
        assert_eq!(stats.major_faults.get(), 1, "{policies}");
        assert_eq!(stats.retry_io_miss.get(), 0, "{policies}");
        drop(cache);
        rig.finish();
    }
}

#[test]
fn an_interrupted_fault_lets_all_go() {
    for policies in ALL {
        let rig = rig(PAGES, policies);
        let store = TestStore::with_queue(pages(64), 8);
        let cache = rig.map(&store);
        let start = cache.addresses().start;
        store.close();
        fault::prefetch(&cache, start..start + 16 * PAGE_SIZE);
        let outcome = fault::handle(&rig.space, start, FaultFlags::default(), &AlwaysInterrupted);
        assert_eq!(outcome, Outcome::Interrupted, "{policies}");
        let mmap = rig.space.mmap_lock().try_write().expect("it is free");
        rig.space.find(&mmap, start).unwrap().start_write(&mmap);
        drop(mmap);
        store.open();
        assert_eq!(rig.touch(start), Ok(store.byte(0)), "{policies}");
        drop(cache);
        rig.finish();
    }
}

/// More threads than memory has room for, and one that takes the locks for
/// writing all the time: whatever is held over which wait, all come to their
/// end, and reclaim finds every folio afterwards.
#[test]
fn nobody_waits_for_ever_with_a_lock_in_hand() {
    const THREADS: u64 = 12;
    const FILE: usize = 6000;
    for (number, policies) in ALL.into_iter().enumerate() {
        let miss = ["baseline", "p1", "p2", "both"][number % 4];
        for (policies, queue) in [
            (policies.to_owned(), 8),
            (format!("{policies}+miss={miss}"), 3 * (number % 2)),
        ] {
            let rig = rig(PAGES, &policies);
            let store = TestStore::with_queue(pages(FILE), queue);
            let cache = rig.map(&store);
            cache.set_ra_pages(64);
            let range = cache.addresses();
            let over = AtomicBool::new(false);
            thread::scope(|scope| {
                let (rig, store, range, over) = (&rig, &store, &range, &over);
                let touchers = (0..THREADS).map(|thread| {
                    scope.spawn(move || {
                        let mut random = Random::new(thread);
                        for _ in 0..150 {
                            let page = random.below(FILE);
                            let found = rig.touch(range.start + page * PAGE_SIZE);
                            assert_eq!(found, Ok(store.byte(pages(page))), "page {page}");
                        }
                    })
                });
                let touchers: Vec<_> = touchers.collect();
                scope.spawn(move || {
                    let mut advice = [Advice::Sequential, Advice::Normal].into_iter().cycle();
                    while !over.load(Ordering::Relaxed) {
                        let advice = advice.next().expect("it goes on");
                        rig.space.madvise(range.clone(), advice).unwrap();
                        thread::yield_now();
                    }
                });
                let ends: Vec<_> = touchers.into_iter().map(|thread| thread.join()).collect();
                over.store(true, Ordering::Relaxed);
                assert!(ends.iter().all(Result::is_ok), "{policies}");
            });
            store.reap(u64::MAX, &Completion(&rig.node), 0);
            rig.evict_all();
            assert_eq!(cache.folio_count(), 0, "{policies}");
            drop(cache);
            rig.finish();
        }
    }
}

/// A file becomes shorter while a fault on it waits for its read: the length is looked at with no lock of the space, whose lock comes
/// after the length's. Failed before, with the lock that the policy keeps.
#[test]
fn a_length_is_waited_for_with_no_lock_of_the_space() {
    for policies in ALL {
        let rig = rig(PAGES, policies);
        let store = TestStore::new(pages(64));
        let cache = rig.map_writable(&store);
        let addr = cache.addresses().start + 40 * PAGE_SIZE;
        store.close();
        thread::scope(|scope| {
            let reader = scope.spawn(|| rig.touch(addr));
            store.wait_blocked(1);
            let shorter = scope.spawn(|| cache.truncate(pages(8)));
            while cache.end() > pages(8) {
                thread::yield_now();
            }
            store.open();
            // The store is as long as before: that is found out.
            assert_eq!(
                reader.join().unwrap(),
                Ok(store.byte(pages(40))),
                "{policies}"
            );
            shorter.join().unwrap();
        });
        rig.unmap(cache.addresses());
        drop(cache);
        rig.finish();
    }
}
