//! Private memory that is frozen while the process forks: which threads wait for the thaw, and
//! which must not.

use softfault_engine::PAGE_SIZE;
use softfault_engine::anon::Anonymous;
use softfault_engine::mm::{Attributes, Backing, Protection};
use softfault_engine::policy::RetryLock;
use softfault_oracle::{Rig, TestStore};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

const PAGES: usize = 64;

/// A rig once for each kind of VMA lock, and under the policy that retries under
/// `mmap_lock`.
fn rigs() -> impl Iterator<Item = Rig> {
    let policies = ["", "lock=rwsem", "lock=biased", "retry=mmap-lock+pin=no"];
    policies
        .into_iter()
        .map(|policies| Rig::with_policies(4096, policies.parse().unwrap()))
}

fn private(rig: &Rig) -> Range<usize> {
    let anon = Anonymous::new(rig.node.clone(), PAGES * PAGE_SIZE).unwrap();
    let range = anon.addresses();
    let attributes = Attributes {
        backing: Backing::from(anon),
        protection: Protection::ReadWrite,
        ..Attributes::default()
    };
    rig.space.mmap(range.clone(), attributes).unwrap();
    rig.write(range.start, &[7]).unwrap();
    range
}

fn store() -> Arc<TestStore> {
    TestStore::new((PAGES * PAGE_SIZE) as u64)
}

/// Reads a byte of a store's window and compares.
#[track_caller]
fn check(rig: &Rig, store: &TestStore, file: &Range<usize>, at: usize) {
    assert_eq!(rig.touch(file.start + at).unwrap(), store.byte(at as u64));
}

/// Takings of `mmap_lock` for read, but for those with which the baseline comes back from
/// a wait.
fn mmap_lock_reads(rig: &Rig) -> u64 {
    let all = rig.space.lock_stats().mmap_read.count;
    match rig.node.policies.retry_lock {
        RetryLock::MmapLock => all - rig.node.stats.retry_mmap_drop.get(),
        RetryLock::VmaLock | RetryLock::Held => all,
    }
}

/// In one thread: a wait for the thaw would last for ever.
#[test]
fn faults_and_verbs_on_files_meet_no_lock_of_a_freeze() {
    for rig in rigs() {
        let memory = private(&rig);
        let store = store();
        let mut caches = vec![rig.map(&store)];
        let file = caches[0].addresses();
        check(&rig, &store, &file, 0);

        let before = mmap_lock_reads(&rig);
        let frozen = rig.space.freeze([memory.clone()]);
        for page in 0..PAGES {
            check(&rig, &store, &file, page * PAGE_SIZE + 3);
        }
        assert_eq!(mmap_lock_reads(&rig), before);
        assert_eq!(rig.space.lock_stats().thaw.count, 0);

        // Another file comes and goes, and the first goes: whole and in part.
        caches.push(rig.map(&store));
        let other = caches[1].addresses();
        check(&rig, &store, &other, 5);
        rig.unmap(other);
        rig.protect(file.start..file.start + PAGE_SIZE, Protection::None);
        rig.unmap(file);
        // The frozen ranges are told to the child.
        let mut known = Vec::new();
        frozen.for_each(|range, attributes| known.push((range, attributes.protection)));
        assert_eq!(known, [(memory.clone(), Protection::ReadWrite)]);
        drop(frozen);
        drop(known);

        assert_eq!(rig.touch(memory.start).unwrap(), 7);
        rig.unmap(memory);
        drop(caches);
        rig.finish();
    }
}

/// Faults on frozen VMAs wait until these are thawed, each for itself and none in the
/// queue of `mmap_lock`; so does a verb, and keeps `mmap_lock` from nobody meanwhile.
#[test]
fn faults_and_verbs_on_frozen_memory_wait_for_the_thaw_alone() {
    for rig in rigs() {
        let memory = private(&rig);
        let cache = rig.map(&store());
        let thawed = AtomicBool::new(false);
        let before = mmap_lock_reads(&rig);
        let frozen = rig.space.freeze([memory.clone()]);
        std::thread::scope(|scope| {
            for page in 1..4 {
                let (rig, thawed, start) = (&rig, &thawed, memory.start);
                scope.spawn(move || {
                    rig.write(start + page * PAGE_SIZE, &[page as u8]).unwrap();
                    assert!(thawed.load(SeqCst), "a page changed while it was frozen");
                });
            }
            let (rig, thawed, end) = (&rig, &thawed, memory.end);
            scope.spawn(move || {
                rig.unmap(end - PAGE_SIZE..end);
                assert!(thawed.load(SeqCst), "a mapping changed while it was frozen");
            });
            // All of them have come, or come later: both is right.
            std::thread::sleep(std::time::Duration::from_millis(30));
            // They keep nobody from the shape of the space.
            let store = store();
            let other = rig.map(&store);
            check(rig, &store, &other.addresses(), 77);
            rig.unmap(other.addresses());
            drop(other);
            assert_eq!(mmap_lock_reads(rig), before);
            thawed.store(true, SeqCst);
            drop(frozen);
        });
        for page in 1..4 {
            let addr = memory.start + page * PAGE_SIZE;
            assert_eq!(rig.touch(addr).unwrap(), page as u8);
        }
        // Again and again: each thaw is for its own freeze.
        for _ in 0..3 {
            drop(rig.space.freeze([memory.clone()]));
            assert_eq!(rig.touch(memory.start).unwrap(), 7);
        }
        rig.unmap(memory);
        rig.unmap(cache.addresses());
        drop(cache);
        rig.finish();
    }
}

/// Memory that is short while no private memory may be evicted comes from files.
#[test]
fn files_are_evicted_while_private_memory_is_not() {
    for rig in rigs() {
        let memory = private(&rig);
        let pages = 8192;
        let store = TestStore::new((pages * PAGE_SIZE) as u64);
        let cache = rig.map(&store);
        let file = cache.addresses();
        let frozen = rig.space.freeze([memory.clone()]);
        let stopped = rig.node.stop_eviction();
        // Twice the budget; by another thread, since the thread that forks touches nothing.
        let touch = || {
            for page in 0..pages {
                check(&rig, &store, &file, page * PAGE_SIZE);
            }
        };
        std::thread::scope(|scope| scope.spawn(touch).join()).unwrap();
        drop(stopped);
        drop(frozen);
        assert_eq!(rig.touch(memory.start).unwrap(), 7);
        rig.unmap(memory);
        rig.unmap(file);
        drop(cache);
        rig.finish();
    }
}
