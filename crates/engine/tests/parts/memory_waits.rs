//! Waits for memory that is long in coming: a fault on a file waits as long as
//! anybody may give some back.

use softfault_engine::PAGE_SIZE;
use softfault_engine::anon::Anonymous;
use softfault_engine::budget::{Budget, FLOOR};
use softfault_engine::fault::{self, FaultError, NeverInterrupted};
use softfault_engine::mm::{Attributes, Backing, Protection};
use softfault_oracle::{Finally, Rig, TestStore};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

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

/// Pages that cannot be evicted are more than the new budget: it stays as it was, and no touch meanwhile fails for want of memory.
#[test]
fn touches_go_on_while_a_budget_is_lowered_in_vain() {
    const FILLED: usize = 3000;
    const THREADS: usize = 4;
    const EACH: usize = 16;
    let rig = Rig::new(8192);
    let bytes = (FILLED + THREADS * EACH) * PAGE_SIZE;
    let anon = Anonymous::new(rig.node.clone(), bytes).unwrap();
    let attributes = Attributes {
        backing: Backing::from(anon.clone()),
        protection: Protection::ReadWrite,
        ..Attributes::default()
    };
    rig.space.mmap(anon.addresses(), attributes).unwrap();
    let page = |number: usize| anon.addresses().start + number * PAGE_SIZE;
    (0..FILLED).for_each(|number| rig.write(page(number), &[1]).unwrap());
    let is_over = AtomicBool::new(false);
    let touch = |thread: usize| {
        let mine = FILLED + thread * EACH..FILLED + (thread + 1) * EACH;
        while !is_over.load(Ordering::Relaxed) {
            mine.clone()
                .for_each(|number| rig.write(page(number), &[2]).unwrap());
            let mine = page(mine.start)..page(mine.end);
            rig.space.dont_need(mine).unwrap();
        }
    };
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let touch = &touch;
            scope.spawn(move || touch(thread));
        }
        let _end = Finally(|| is_over.store(true, Ordering::Relaxed));
        for _ in 0..3 {
            assert!(rig.node.set_memory(2560 * PAGE_SIZE).is_err());
        }
    });
    rig.unmap(anon.addresses());
    drop(anon);
    rig.finish();
}

/// Each lowering is refused, since nothing can be evicted, and another follows: the waits between them are proof enough.
#[test]
fn a_touch_ends_although_a_budget_is_lowered_again_and_again() {
    const PAGES: usize = 8192;
    let rig = Rig::new(PAGES as u64);
    let anon = Anonymous::new(rig.node.clone(), PAGES * PAGE_SIZE).unwrap();
    let attributes = Attributes {
        backing: Backing::from(anon.clone()),
        protection: Protection::ReadWrite,
        ..Attributes::default()
    };
    rig.space.mmap(anon.addresses(), attributes).unwrap();
    let start = anon.addresses().start;
    thread::scope(|scope| {
        let fills = || (0..PAGES).try_for_each(|page| rig.write(start + page * PAGE_SIZE, &[1]));
        let filled = scope.spawn(fills);
        while !filled.is_finished() {
            let _ = rig.node.set_memory(2560 * PAGE_SIZE);
            let _ = rig.node.set_memory(PAGES * PAGE_SIZE);
            thread::sleep(Duration::from_millis(400));
        }
        assert_eq!(filled.join().unwrap(), Err(FaultError::NoMemory));
    });
    rig.unmap(anon.addresses());
    drop(anon);
    rig.finish();
}

/// A fork and a move of pages whose memory others have at the moment. Failed before: both gave up at once, since nothing could be evicted,
/// though all of it came back a moment later.
#[test]
fn a_fork_and_a_move_wait_for_memory_that_others_give_back() {
    const PAGES: usize = 64;
    let rig = Rig::new(2048);
    let anon = Anonymous::new(rig.node.clone(), PAGES * PAGE_SIZE).unwrap();
    rig.map_anonymous(&anon);
    let old = anon.addresses();
    for page in old.clone().step_by(PAGE_SIZE) {
        rig.write(page, &[1]).unwrap();
    }
    let longer = anon.longer(2 * PAGES * PAGE_SIZE).unwrap();
    let budget = &rig.node.budget;
    // Somebody else has all memory but for some pages, and gives it back when `act` has looked for more in vain.
    let while_others_have_it = |left: u64, act: &(dyn Fn() + Sync)| {
        let taken = budget.free() - left;
        assert!(budget.try_charge(taken, 0));
        let waits = rig.node.stats.memory_waits.get();
        thread::scope(|scope| {
            let acting = scope.spawn(act);
            while rig.node.stats.memory_waits.get() == waits && !acting.is_finished() {
                thread::yield_now();
            }
            budget.uncharge(taken);
            acting.join().unwrap();
        });
    };
    let child = rig.another_space();
    // Enough for the window of the child, and not for the pages.
    while_others_have_it(FLOOR + 8, &|| rig.space.fork(&child).unwrap());
    let read = rig.with_core(|core| fault::touch(core, &child, old.start, &NeverInterrupted));
    assert_eq!(read.ok(), Some(1));
    while_others_have_it(0, &|| {
        let to = (&longer.clone().into(), longer.addresses());
        let moved = rig.space.move_to((&anon.clone().into(), old.clone()), to);
        moved.unwrap();
    });
    assert_eq!(rig.touch(longer.addresses().start), Ok(1));
    rig.unmap(longer.addresses());
    child.exit(|_, _| {});
    drop((anon, longer, child));
    rig.finish();
}
