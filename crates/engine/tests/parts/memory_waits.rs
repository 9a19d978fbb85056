//! Waits for memory that is long in coming: a fault on a file waits as long as
//! anybody may give some back.

use softfault_engine::PAGE_SIZE;
use softfault_engine::budget::Budget;
use softfault_oracle::{Rig, TestStore};
use std::thread;

/// Found as a SIGBUS under a budget that went up and down: a hundred waits that
/// ended early, because others got memory and used it, counted as a hundred in
/// which there was none.
#[test]
fn a_fault_that_others_are_faster_than_goes_on_waiting() {
    let parent = Budget::new(1 << 20);
    let rig = Rig::within(2048, &parent);
    let store = TestStore::new(16 * PAGE_SIZE as u64);
    let cache = rig.map(&store);
    let start = cache.addresses().start;
    // All that there is belongs to somebody else.
    let taken = parent.free();
    assert!(parent.try_charge(taken, 0));
    thread::scope(|scope| {
        let reader = scope.spawn(|| rig.touch(start));
        while rig.node.stats.memory_waits.get() < 500 && !reader.is_finished() {
            rig.node.budget.notify_release();
            thread::yield_now();
        }
        parent.uncharge(taken);
        rig.node.budget.notify_release();
        assert_eq!(reader.join().unwrap(), Ok(softfault_oracle::byte_at(0, 0)));
    });
    drop(cache);
    rig.finish();
}

/// A thread that makes room looks after each batch whether it can go on: it does not evict what others are to have, who may take all
/// of it, for ever.
#[test]
fn a_thread_makes_room_for_itself_alone() {
    let rig = Rig::new(2048);
    let store = TestStore::new(4096 * PAGE_SIZE as u64);
    let cache = rig.map(&store);
    let start = cache.addresses().start;
    let page = |number: usize| start + (386 * number * number + 277 * number) % 4096 * PAGE_SIZE;
    let mut number = 0;
    while rig.node.stats.evicted.get() == 0 {
        rig.touch(page(number)).unwrap();
        number += 1;
    }
    let limit = rig.node.budget.limit();
    rig.node.budget.set_limit(limit / 2);
    let waits = rig.node.stats.memory_waits.get();
    let evicted = rig.node.stats.evicted.get();
    rig.touch(page(number)).unwrap();
    let evicted = rig.node.stats.evicted.get() - evicted;
    assert!(evicted >= limit / 2 - limit / 8, "{evicted}");
    let waits = rig.node.stats.memory_waits.get() - waits;
    assert!(waits >= 4, "{waits}");
    drop(cache);
    rig.finish();
}
