//! Threads on CPUs.

use crate::program::bare;
use softfault_sync_sim as sync;
use std::sync::{Arc, Mutex};
use sync::machine::{self, Config};

/// Which thread did something when, in the order in which it was done. A real mutex: not
/// held over anything of the machine's.
type Log = Arc<Mutex<Vec<(u64, usize)>>>;

fn log(log: &Log, who: usize) {
    log.lock()
        .expect("nobody panicked")
        .push((machine::now_ns(), who));
}

#[test]
fn time_slices_are_fair() {
    // Three threads of 10 ms each on one CPU, in slices of 1 ms.
    let log_of_ends = Log::default();
    let ends = log_of_ends.clone();
    let ran = machine::run(Config::new(bare(1), 1, 0), move || {
        let start = |thread| {
            let ends = ends.clone();
            machine::spawn_named("", 0, move || {
                sync::work(10_000_000);
                log(&ends, thread);
                machine::cpu_ns()
            })
        };
        let threads: Vec<_> = (0..3).map(start).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("it ends"))
            .collect::<Vec<_>>()
    });
    let (cpu, report) = ran.expect("all end");
    assert_eq!(cpu, [10_000_000; 3]);
    assert_eq!(report.elapsed_ns, 30_000_000);
    let ends = log_of_ends.lock().expect("nobody panicked").clone();
    // The others have a slice each when the first has one left.
    assert_eq!(ends, [(28_000_000, 0), (29_000_000, 1), (30_000_000, 2)]);
}

#[test]
fn a_thread_of_higher_priority_preempts() {
    let ran = machine::run(Config::new(bare(1), 1, 0), || {
        let urgent = machine::spawn_named("urgent", -10, || {
            machine::sleep_until_ns(300_000);
            let woken = machine::now_ns();
            sync::work(1_000);
            woken
        });
        let other = machine::spawn_named("patient", 0, || {
            machine::sleep_until_ns(400_000);
            machine::now_ns()
        });
        sync::work(2_000_000);
        (
            urgent.join().expect("it ends"),
            other.join().expect("it ends"),
        )
    });
    let (urgent, patient) = ran.expect("all end").0;
    assert_eq!(urgent, 300_000, "it waits for nobody");
    assert!(
        patient >= 1_000_000,
        "it waits for a slice's end: {patient}"
    );
}

#[test]
fn an_idle_cpu_steals() {
    // Two threads share a CPU until the one on the other CPU ends.
    let ran = machine::run(Config::new(bare(1), 2, 0), || {
        let start = |work| machine::spawn_named("", 0, move || sync::work(work));
        let threads = [start(4_000_000), start(4_000_000)];
        sync::work(1_500_000);
        for thread in threads {
            thread.join().expect("it ends");
        }
    });
    // 9.5 ms of work on two CPUs. The first gets one thread from the queue of
    // the second, and nobody idles but at the end.
    let report = ran.expect("all end").1;
    assert!(report.elapsed_ns < 6_000_000, "{}", report.elapsed_ns);
    assert!(report.elapsed_ns >= 9_500_000 / 2);
}

#[test]
fn threads_fill_cpus_in_the_order_of_placement() {
    let ran = machine::run(Config::new(bare(2), 4, 0), || {
        let start = |_| {
            machine::spawn_named("", 0, || {
                sync::work(1_000_000);
                sync::cpu()
            })
        };
        let threads: Vec<_> = (0..3).map(start).collect();
        sync::work(1_000_000);
        threads
            .into_iter()
            .map(|thread| thread.join().expect("it ends"))
            .collect::<Vec<_>>()
    });
    assert_eq!(ran.expect("all end").0, [1, 2, 3]);
}

#[test]
fn interrupts_take_time_from_running_threads() {
    let ran = machine::run(Config::new(bare(2), 3, 0), || {
        let thread = machine::spawn_named("", 0, || sync::work(1_000_000));
        sync::work(1_000);
        let others = machine::interrupt_others(5_000);
        thread.join().expect("it ends");
        (others, machine::now_ns())
    });
    assert_eq!(ran.expect("all end").0, (1, 1_005_000));
}

#[test]
fn a_thousand_threads_on_few_cpus() {
    let ran = machine::run(Config::new(bare(2), 4, 0), || {
        let start = |_| machine::spawn_named("", 0, || sync::work(10_000));
        let threads: Vec<_> = (0..1000).map(start).collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().expect("it ends"));
    });
    assert_eq!(ran.expect("all end").1.elapsed_ns, 1000 * 10_000 / 4);
}
