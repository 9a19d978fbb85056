//! Mutex, RwSem and WaitStats on the real machine.

use softfault_engine::clock::Clock;
use softfault_engine::lock::group::GroupLock;
use softfault_engine::lock::wait_stats::RANGES;
use softfault_engine::lock::{Mutex, RwSem, StealRwSem, WaitSnapshot, WaitStats};
use softfault_engine::policy::MmapQueue;
use sync::Arc;
use sync::atomic::AtomicU64;
use sync::atomic::Ordering::Relaxed;
use sync::thread::{self, spawn};

/// A clock that moves by a microsecond each time it is read.
#[derive(Default)]
struct Ticks(AtomicU64);

impl Clock for Ticks {
    fn now_ns(&self) -> u64 {
        self.0.fetch_add(1_000, Relaxed)
    }
}

const QUEUES: [MmapQueue; 3] = [MmapQueue::Steal, MmapQueue::PhaseFair, MmapQueue::Linux];

fn sem() -> RwSem {
    RwSem::new(Arc::new(Ticks::default()))
}

fn with_queue(queue: MmapQueue) -> RwSem {
    RwSem::with_queue(Arc::new(Ticks::default()), queue)
}

#[test]
fn mutex_excludes() {
    let counter = Arc::new(Mutex::new(0_u64));
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let counter = Arc::clone(&counter);
            spawn(move || {
                for _ in 0..5_000 {
                    let mut guard = counter.lock();
                    // Not one instruction: a second holder would lose one.
                    let seen = *guard;
                    core::hint::black_box(&seen);
                    *guard = seen + 1;
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(*counter.lock(), 40_000);
}

#[test]
fn mutex_try_lock_fails_while_held() {
    let mutex = Mutex::new(1);
    let guard = mutex.lock();
    assert!(mutex.try_lock().is_none());
    drop(guard);
    assert_eq!(mutex.try_lock().as_deref(), Some(&1));
}

#[test]
fn mutex_can_be_a_static() {
    static SHARED: Mutex<u32> = Mutex::new(7);
    *SHARED.lock() += 1;
    assert_eq!(*SHARED.lock(), 8);
    assert_eq!(size_of::<Mutex<()>>(), 4);
}

#[test]
fn mutex_is_let_go_by_a_panic() {
    let mutex = Arc::new(Mutex::new(0));
    let held = Arc::clone(&mutex);
    let died = spawn(move || {
        let _guard = held.lock();
        panic!("on purpose");
    })
    .join();
    assert!(died.is_err());
    assert!(mutex.try_lock().is_some());
}

#[test]
fn rwsem_admits_readers_together_and_writers_alone() {
    for queue in QUEUES {
        let sem = with_queue(queue);
        let first = sem.read();
        let second = sem.try_read();
        assert!(second.is_some());
        assert!(sem.try_write().is_none());
        drop((first, second));
        let writer = sem.try_write();
        assert!(writer.is_some());
        assert!(sem.try_read().is_none());
        assert!(sem.try_write().is_none());
        drop(writer);
        assert!(sem.try_read().is_some());
    }
}

fn until(done: impl Fn() -> bool) {
    while !done() {
        thread::yield_now();
    }
}

#[test]
fn a_waiting_writer_stops_new_readers() {
    for queue in QUEUES {
        let sem = Arc::new(with_queue(queue));
        let reader = sem.read();
        let writer = {
            let sem = Arc::clone(&sem);
            spawn(move || drop(sem.write()))
        };
        until(|| sem.waiting_writers() == 1);
        assert!(sem.try_read().is_none());
        drop(reader);
        writer.join().unwrap();
        assert!(sem.try_read().is_some());
    }
}

#[test]
fn readers_and_writers_take_turns() {
    // The readers go first, and together, and both writers come after all of
    // them, in their order.
    for queue in [MmapQueue::PhaseFair, MmapQueue::Steal] {
        let order = order_of_waiting(queue);
        let all = ["reader", "reader", "reader", "first", "second"];
        assert_eq!(order, all);
    }
}

#[test]
fn readers_in_linuxs_queue_wait_for_the_writer_before_them() {
    let order = order_of_waiting(MmapQueue::Linux);
    let all = ["first", "reader", "reader", "reader", "second"];
    assert_eq!(order, all);
}

/// The order in which threads that wait behind a writer go in: a writer, three readers that
/// are inside together, a writer.
fn order_of_waiting(queue: MmapQueue) -> Vec<&'static str> {
    let sem = Arc::new(with_queue(queue));
    let order = Arc::new(Mutex::new(Vec::new()));
    let inside = Arc::new(AtomicU64::new(0));
    let first = sem.write();
    let mut threads = Vec::new();
    let write = |name: &'static str| {
        let (sem, order) = (Arc::clone(&sem), Arc::clone(&order));
        spawn(move || {
            let _guard = sem.write();
            order.lock().push(name);
        })
    };
    let read = || {
        let (sem, order, inside) = (Arc::clone(&sem), Arc::clone(&order), Arc::clone(&inside));
        spawn(move || {
            let _guard = sem.read();
            inside.fetch_add(1, Relaxed);
            // Ends only if all three are inside together.
            while inside.load(Relaxed) < 3 {
                thread::yield_now();
            }
            order.lock().push("reader");
        })
    };
    threads.push(write("first"));
    until(|| sem.waiting_writers() == 1);
    for _ in 0..3 {
        threads.push(read());
    }
    until(|| sem.waiting_readers() == 3);
    threads.push(write("second"));
    until(|| sem.waiting_writers() == 2);
    drop(first);
    for thread in threads {
        thread.join().unwrap();
    }
    core::mem::take(&mut *order.lock())
}

#[test]
fn a_writer_that_runs_passes_those_that_sleep_a_few_times() {
    // A thread that steals does not sleep, and nobody steals where the first has waited enough.
    const MOST: u32 = 3;
    let sem = StealRwSem::new(MOST);
    assert!(sem.write_or_queue().is_none());
    let turns = [(); 2].map(|()| sem.write_or_queue().expect("one is inside"));
    sem.leave_write();
    for (turn, waiting) in turns.into_iter().zip([2, 1]) {
        for _ in 0..MOST {
            assert_eq!(sem.waiting_writers(), waiting);
            assert!(sem.write_or_queue().is_none(), "it is free");
            sem.leave_write();
        }
        assert_eq!(sem.waiting_writers(), waiting - 1, "the first was let in");
        turn.wait();
        sem.leave_write();
    }
    assert!(sem.try_write());
}

#[test]
fn a_ticket_comes_round_where_writers_steal() {
    // Each round a writer waits, where a ticket has 32,768 values.
    let sem = StealRwSem::new(1);
    for _ in 0..34_000 {
        assert!(sem.write_or_queue().is_none());
        let turn = sem.write_or_queue().expect("one is inside");
        sem.leave_write();
        turn.wait();
        sem.leave_write();
    }
    assert!(sem.try_write());
}

#[test]
fn rwsem_with_six_hundred_threads() {
    for queue in QUEUES {
        let sem = Arc::new(with_queue(queue));
        let shared = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
        let threads: Vec<_> = (0..600)
            .map(|i| {
                let (sem, shared) = (Arc::clone(&sem), Arc::clone(&shared));
                spawn(move || {
                    for _ in 0..5 {
                        if i % 3 == 0 {
                            let _guard = sem.write();
                            let old = shared.0.load(Relaxed);
                            thread::yield_now();
                            shared.0.store(old + 1, Relaxed);
                            shared.1.store(old + 1, Relaxed);
                        } else {
                            let _guard = sem.read();
                            assert_eq!(shared.0.load(Relaxed), shared.1.load(Relaxed));
                        }
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(shared.0.load(Relaxed), 1_000);
        let (reads, writes) = (sem.read_waits().snapshot(), sem.write_waits().snapshot());
        assert_eq!((reads.count, writes.count), (2_000, 1_000));
        assert!(sem.try_write().is_some(), "{sem:?}");
    }
}

/// A process may have more threads than a lock counts readers.
#[test]
fn one_reader_too_many_waits_for_another_to_leave() {
    const MOST: usize = (1 << 15) - 1;
    for queue in [MmapQueue::Steal, MmapQueue::PhaseFair] {
        let sem = Arc::new(with_queue(queue));
        let mut readers: Vec<_> = (0..MOST).map(|_| sem.read()).collect();
        let comes = Arc::new(AtomicU64::new(0));
        let last = {
            let (sem, comes) = (sem.clone(), comes.clone());
            spawn(move || {
                comes.store(1, Relaxed);
                drop(sem.read());
            })
        };
        until(|| comes.load(Relaxed) == 1);
        (0..100).for_each(|_| thread::yield_now());
        assert!(!last.is_finished());
        readers.pop();
        last.join().unwrap();
        drop(readers);
        drop(sem.write());
    }
}

#[test]
fn a_ticket_comes_round() {
    // Two writers take turns, each keeping the other waiting: 34,000 waits,
    // where a ticket has 32,768 values.
    const EACH: usize = 17_000;
    let sem = Arc::new(sem());
    let left = Arc::new(AtomicU64::new(2));
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let (sem, left) = (Arc::clone(&sem), Arc::clone(&left));
            spawn(move || {
                for _ in 0..EACH {
                    let guard = sem.write();
                    while left.load(Relaxed) == 2 && sem.waiting_writers() == 0 {
                        thread::yield_now();
                    }
                    drop(guard);
                }
                left.fetch_sub(1, Relaxed);
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let waits = sem.write_waits().snapshot();
    assert_eq!(waits.count, 2 * EACH as u64);
    // Each wait took a tick of the clock or more.
    assert!(waits.count - waits.ranges[0] > 1 << 15, "{waits:?}");
}

#[test]
fn only_waits_read_the_clock() {
    for queue in QUEUES {
        struct Broken;
        impl Clock for Broken {
            fn now_ns(&self) -> u64 {
                panic!("read without need");
            }
        }
        let sem = RwSem::with_queue(Arc::new(Broken), queue);
        drop(sem.read());
        drop(sem.write());
        assert_eq!(sem.read_waits().snapshot().ranges[0], 1);
        assert_eq!(sem.write_waits().snapshot().ranges[0], 1);
    }
}

#[test]
fn waits_fall_into_the_ranges_of_document_002() {
    let stats = WaitStats::new();
    stats.record_uncontended();
    let waits = [
        999,           // [0,1) µs
        1_000,         // [1,10)
        9_999,         // [1,10)
        10_000,        // [10,100)
        100_000,       // [100,1000)
        1_000_000,     // [1000,10000)
        10_000_000,    // [10000,100000)
        100_000_000,   // [100000,1000000)
        1_000_000_000, // [1000000,)
        5_000_000_000, // [1000000,)
    ];
    for ns in waits {
        stats.record(ns);
    }
    let now = stats.snapshot();
    assert_eq!(now.ranges, [2, 2, 1, 1, 1, 1, 1, 2]);
    assert_eq!(now.count, 11);
    assert_eq!(now.max_ns, 5_000_000_000);
    assert_eq!(now.total_ns, waits.iter().sum::<u64>());
    let twice = now + now;
    assert_eq!((twice.count, twice.max_ns), (22, 5_000_000_000));
    assert_eq!(WaitSnapshot::default().ranges, [0; RANGES]);
}

/// One verb more than are counted goes another way; the others are not disturbed.
#[test]
fn as_many_verbs_as_are_counted_share_a_lock() {
    let group = GroupLock::with_words(1);
    let mut verbs: Vec<_> = (0..(1 << 15) - 1).map_while(|_| group.try_verb()).collect();
    assert_eq!(verbs.len(), (1 << 15) - 1);
    assert!(group.verb().is_none());
    verbs.pop();
    verbs.push(group.verb().expect("room for one"));
    assert!(group.try_other().is_none());
    drop(verbs);
    drop(group.try_other().expect("all have gone"));
    assert!(group.try_verb().is_some());
}
