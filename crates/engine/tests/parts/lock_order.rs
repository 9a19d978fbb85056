//! The order of locks, as a debug build checks it: a thread that breaks it panics, though no other thread is in the way.

use softfault_engine::lock::{Mutex, order};
use softfault_engine::mm::vma_lock::start_read;
use softfault_engine::mm::{Attributes, MmapLock, Vma};
use softfault_engine::slab::TypeStable;
use softfault_oracle::{Numbered, Still};
use std::panic::{AssertUnwindSafe, catch_unwind};
use sync::Arc;
use sync::thread::spawn;

type Bucket = Mutex<u32, { order::BUCKET }>;
type Lists = Mutex<u32, { order::RECLAIM_LISTS }>;
type Leaf = Mutex<u32, { order::SOFT_LEAF }>;

/// The message of `wrong`'s panic.
#[track_caller]
fn message_of(wrong: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(wrong)).expect_err("the order is broken");
    *panic.downcast::<String>().expect("a panic with its locks")
}

#[test]
fn a_lock_is_not_waited_for_under_one_that_comes_after_it() {
    let (bucket, lists) = (Bucket::ranked(0), Lists::ranked(0));
    {
        let _bucket = bucket.lock();
        let _lists = lists.lock();
    }
    let message = message_of(|| {
        let _lists = lists.lock();
        let _bucket = bucket.lock();
    });
    assert_eq!(
        message,
        "lock order: \"bucket of the index\" is waited for under \"shard of the reclaim lists\", which comes after it"
    );
    // The panic has let go of it.
    let _bucket = bucket.lock();
}

#[test]
fn two_of_a_class_are_a_deadlock_with_another_thread() {
    let [one, other] = [0, 1].map(Bucket::ranked);
    let message = message_of(|| {
        let _one = one.lock();
        let _other = other.lock();
    });
    assert!(
        message.contains("under \"bucket of the index\""),
        "{message}"
    );
    // A leaf is locked under its parent.
    let [parent, leaf] = [0, 1].map(Leaf::ranked);
    let _parent = parent.lock();
    let _leaf = leaf.lock();
}

#[test]
fn a_try_may_come_in_any_order_and_a_wait_after_it_may_not() {
    let (bucket, lists) = (Bucket::ranked(0), Lists::ranked(0));
    let _lists = lists.lock();
    let held = bucket.try_lock().expect("free");
    let other = Bucket::ranked(0);
    let message = message_of(|| drop(other.lock()));
    assert!(message.contains("bucket of the index"), "{message}");
    drop(held);
}

#[test]
fn locks_may_be_let_go_in_any_order() {
    let (bucket, lists) = (Bucket::ranked(0), Lists::ranked(0));
    let held = (bucket.lock(), lists.lock());
    drop(held.0);
    message_of(|| drop(bucket.lock()));
    drop(held.1);
    drop(bucket.lock());
}

#[test]
fn locks_of_other_threads_do_not_count() {
    let (bucket, lists) = (Arc::new(Bucket::ranked(0)), Lists::ranked(0));
    let _lists = lists.lock();
    let other = spawn(move || drop(bucket.lock()));
    other.join().expect("it holds nothing else");
}

#[test]
fn mmap_lock_is_not_waited_for_under_a_vma() {
    let mmap_lock = MmapLock::new(1, Arc::new(Still));
    let vma = Vma::new_slot(0);
    {
        let mmap = mmap_lock.write();
        let attributes = Attributes {
            backing: Numbered(1).into(),
            ..Attributes::default()
        };
        vma.init(&mmap, 0x1000..0x2000, attributes).expect("a lock");
        vma.attach(&mmap);
    }
    let read = start_read(&vma, &mmap_lock).expect("nobody is in the way");
    let waits: [fn(&MmapLock); 2] = [|lock| drop(lock.read()), |lock| drop(lock.write())];
    for wait in waits {
        let message = message_of(|| wait(&mmap_lock));
        assert!(
            message.contains("\"mmap_lock\" is waited for under \"vma read lock\""),
            "{message}"
        );
    }
    // A fault tries.
    drop(mmap_lock.try_read().expect("free"));
    drop(read);
    drop(mmap_lock.write());
}

#[test]
fn a_rank_takes_no_memory() {
    assert_eq!(size_of::<Bucket>(), 2 * size_of::<u32>());
}
