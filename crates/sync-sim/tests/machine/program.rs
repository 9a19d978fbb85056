//! Machines with round figures, and a program that does a bit of everything.

use softfault_sync_sim as sync;
use std::sync::Arc;
use sync::atomic::{AtomicU64, Ordering::*};
use sync::machine::{self, Config, Report};
use sync::topology::{
    Disk, KernelCosts, LineCosts, MemoryCosts, PageCosts, Placement, SchedulerCosts, Topology,
};
use sync::wait::WaitWord;

/// Two sockets of one node with one cluster each. Lines cost nothing but their
/// way, so that sums can be told in advance.
pub fn bare(cores: u16) -> Topology {
    Topology {
        name: "bare".to_owned(),
        source: "round numbers".to_owned(),
        sockets: 2,
        nodes: 1,
        clusters: 1,
        cores,
        smt: 1,
        placement: Placement::Packed,
        smt_extra: 0,
        memory: MemoryCosts {
            bandwidth: u64::MAX,
            remote: 1_000_000,
        },
        line: LineCosts {
            sibling: 10_000,
            cluster: 40_000,
            node: 60_000,
            socket: 80_000,
            remote: 120_000,
            memory: 90_000,
            ..LineCosts::default()
        },
        scheduler: SchedulerCosts {
            slice: 1_000_000_000,
            ..SchedulerCosts::default()
        },
        page: PageCosts {
            clear: 100_000,
            copy: 200_000,
            map: 1_000_000,
        },
        disk: Disk {
            bandwidth: 1,
            depth: 1,
            ..Disk::default()
        },
        kernel: KernelCosts::default(),
    }
}

/// The same with everything costing something.
pub fn full(cores: u16) -> Topology {
    let mut topology = bare(cores);
    topology.line.code = 2_000;
    topology.line.hit = 1_000;
    topology.line.rmw = 5_000;
    topology.line.hold = 20_000;
    topology.scheduler = SchedulerCosts {
        call: 100_000,
        switch: 1_000_000,
        wake: 500_000,
        wake_latency: 3_000_000,
        slice: 500_000_000,
    };
    topology
}

/// A mutex of one word.
#[derive(Default)]
pub struct Lock(WaitWord);

impl Lock {
    pub fn lock(&self) {
        if self.0.compare_exchange(0, 1, Acquire, Relaxed).is_err() {
            while self.0.swap(2, Acquire) != 0 {
                self.0.wait(2, None);
            }
        }
    }

    /// True if somebody may sleep on it.
    #[allow(dead_code)]
    pub fn is_awaited(&self) -> bool {
        self.0.load(Relaxed) == 2
    }

    pub fn unlock(&self) {
        if self.0.swap(0, Release) == 2 {
            self.0.wake(1);
        }
    }
}

/// Locks, sleeps, time-outs, pages and memory, on more threads than cores.
#[allow(dead_code)]
pub fn mixture(seed: u64, trace: bool) -> Report {
    let mut config = Config::new(full(3), 5, seed);
    config.trace = trace;
    let ran = machine::run(config, || {
        let lock = Arc::new(Lock::default());
        let counts: Arc<Vec<AtomicU64>> = Arc::new((0..4).map(AtomicU64::new).collect());
        let never = Arc::new(WaitWord::new(0));
        let threads: Vec<_> = (0..9)
            .map(|thread| {
                let (lock, counts, never) = (lock.clone(), counts.clone(), never.clone());
                let body = move || {
                    for round in 0..20 {
                        lock.lock();
                        sync::work(machine::random() % 900);
                        lock.unlock();
                        counts[thread % 4].fetch_add(round, Relaxed);
                        let own = Box::new(AtomicU64::new(round));
                        own.fetch_add(1, Relaxed);
                        match (thread as u64 + round) % 5 {
                            0 => never.wait(0, Some(2_000)),
                            1 => machine::sleep_until_ns(machine::now_ns() + 3_000),
                            2 => {
                                let page = sync::pages::map(4096).expect("memory");
                                let word = counts[0].load(Acquire);
                                // SAFETY: a page of our own.
                                unsafe {
                                    sync::bytes::clear(page.as_ptr(), 4096);
                                    page.cast().write(word);
                                    sync::pages::unmap(page, 4096);
                                }
                            }
                            3 => sync::thread::yield_now(),
                            _ => {
                                machine::interrupt_others(100);
                            }
                        }
                    }
                };
                machine::spawn_named("", (thread % 3) as i8 - 1, body)
            })
            .collect();
        for thread in threads {
            thread.join().expect("it ends");
        }
        counts.iter().map(|count| count.load(Relaxed)).sum::<u64>()
    });
    let (sum, report) = ran.expect("nobody waits for ever");
    assert_eq!(sum, 9 * 190 + 6);
    report
}
