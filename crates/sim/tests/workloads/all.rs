//! Properties of every workload.

use crate::small;
use softfault_sim::MmuKind::{Soft, Uffd};
use softfault_sim::{Job, MmuKind, Trouble, Verb, Workload, run, run_watched};
use std::cell::Cell;
use std::ops::ControlFlow;

/// Whose faults wait for the disk while others map and unmap.
const WAIT_FOR_DISK: [Workload; 4] = [
    Workload::Thrash,
    Workload::WarmStart,
    Workload::Storm,
    Workload::SwapRetry,
];

#[test]
fn each_does_something_on_every_number_of_cores() {
    for workload in Workload::ALL {
        for (cores, mmu) in [(1, Soft), (4, Uffd), (16, Soft)] {
            let mut job = small::job(workload, cores);
            job.mmu = mmu;
            let outcome = run(&job).unwrap();
            let what = format!("{workload} on {cores} cores, {mmu}: {outcome:?}");
            assert!(outcome.faults > 0 && outcome.touches > 0, "{what}");
            assert!(outcome.elapsed_ns > 0 && outcome.cpu_ns > 0, "{what}");
            assert_eq!((outcome.failed_touches, outcome.read_errors), (0, 0));
            let waits = outcome.locks.iter().map(|row| row.waits);
            for waits in waits {
                assert_eq!(waits.count, waits.ranges.iter().sum::<u64>(), "{what}");
            }
        }
    }
}

#[test]
fn the_same_job_is_the_same_run() {
    for workload in Workload::ALL {
        for mmu in [Soft, Uffd] {
            let mut job = small::job(workload, 4);
            job.mmu = mmu;
            let digest = |job: &Job| {
                let report = run(job).unwrap().report;
                (report.digest, report.operations, report.elapsed_ns)
            };
            let first = digest(&job);
            assert_eq!(first, digest(&job), "{workload} {mmu}");
            job.seed += 1;
            assert_ne!(first.0, digest(&job).0, "{workload} {mmu}");
        }
    }
}

#[test]
fn each_loop_does_its_verb() {
    for verb in Verb::ALL {
        for contended in [false, true] {
            for (cores, mmu) in [(1, Soft), (4, Uffd), (16, Soft)] {
                let mut job = small::job(Workload::Loops, cores);
                (job.verb, job.contended, job.mmu) = (verb, contended, mmu);
                let outcome = run(&job).unwrap();
                let what = format!("{verb} {contended} on {cores} cores, {mmu}: {outcome:?}");
                // Whole batches of all threads.
                let batch = 16 * job.threads as u64;
                assert!(
                    outcome.rounds > 0 && outcome.rounds.is_multiple_of(batch),
                    "{what}"
                );
                assert!(outcome.elapsed_ns > 0 && outcome.cpu_ns > 0, "{what}");
            }
        }
    }
}

#[test]
fn a_hole_needs_no_disk() {
    let mut job = small::job(Workload::Thrash, 4);
    let data = run(&job).unwrap();
    job.holes = true;
    let holes = run(&job).unwrap();
    assert!(holes.rounds > data.rounds && holes.bytes_read > data.bytes_read);
    // A disk of no speed to speak of stops threads that read data, and no others.
    job.topology.disk.bandwidth = 1_000_000;
    assert_eq!(run(&job).unwrap().report.digest, holes.report.digest);
    job.holes = false;
    assert!(run(&job).unwrap().bytes_read < data.bytes_read / 10);
}

#[test]
fn the_kernel_beneath_costs() {
    let mut job = small::job(Workload::Pft, 4);
    let soft = run(&job).unwrap();
    job.mmu = Uffd;
    let uffd = run(&job).unwrap();
    assert!(uffd.faults_per_cpu() < soft.faults_per_cpu());
    let signal = uffd.locks.iter().find(|row| row.name == "kernel signal");
    // Its takings are the topology's, each fault.
    let takings = u64::from(job.topology.kernel.signal_lock_takings);
    assert!(signal.unwrap().waits.count >= takings * uffd.faults);
    assert!(soft.locks.iter().all(|row| !row.name.starts_with("kernel")));
}

#[test]
fn every_policy_comes_to_its_end() {
    for workload in WAIT_FOR_DISK {
        for retry in ["vma-lock", "mmap-lock", "held"] {
            for pin in ["yes", "no"] {
                for (lock, mmu) in [("refcount", Soft), ("rwsem", Uffd)] {
                    let mut job = small::job(workload, 4);
                    job.mmu = mmu;
                    let policies = format!("retry={retry}+pin={pin}+lock={lock}");
                    job.policies = policies.parse().unwrap();
                    let outcome = run(&job);
                    let outcome = outcome.unwrap_or_else(|e| panic!("{policies}: {e}"));
                    let drops = outcome.retry_mmap_drop;
                    // A fault that keeps the lock drops none.
                    assert_eq!(retry == "held", drops == 0, "{workload} {policies}");
                }
            }
        }
    }
}

#[test]
fn a_bad_disk_is_an_error_and_no_hang() {
    for workload in WAIT_FOR_DISK {
        for retry in ["vma-lock", "mmap-lock", "held"] {
            let mut job = small::job(workload, 4);
            job.policies = format!("retry={retry}").parse().unwrap();
            job.io_errors_per_million = 20_000;
            let outcome = run(&job).unwrap();
            assert!(outcome.failed_touches > 0, "{workload} {retry}");
            assert!(outcome.failed_touches < outcome.touches);
            assert!(outcome.read_errors > 0);
        }
    }
}

#[test]
fn the_caller_may_end_it() {
    let mut job = small::job(Workload::Spf, 4);
    job.seconds = 0.05;
    let last = Cell::new(0.0);
    let ended = run_watched(&job, &|progress| {
        assert!(progress.fraction() >= last.replace(progress.fraction()));
        match progress.fraction() < 0.5 {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    });
    assert!(matches!(ended, Err(Trouble::Interrupted)), "{ended:?}");
    assert!(last.get() >= 0.5);
}

#[test]
fn programs_that_cannot_run_are_reported() {
    let wrong = |change: &dyn Fn(&mut Job)| {
        let mut job = small::job(Workload::Pft, 4);
        change(&mut job);
        match run(&job) {
            Err(Trouble::Job(why)) => why,
            other => panic!("{other:?}"),
        }
    };
    assert!(wrong(&|job| job.cores = 17).contains("has 16"));
    assert!(wrong(&|job| job.threads = 0).contains("a thread"));
    assert!(wrong(&|job| job.region = 100).contains("no whole pages"));
    assert!(wrong(&|job| job.memory = 1 << 20).contains("too small"));
    assert!(wrong(&|job| job.seconds = 0.0).contains("seconds"));
    assert!(wrong(&|job| job.theta = 1.0).contains("below 1"));
    assert!(
        wrong(&|job| {
            *job = small::job(Workload::Anon, 4);
            job.swap = job.region / 2;
        })
        .contains("of swap")
    );
    assert!(
        wrong(&|job| {
            job.workload = Workload::Storm;
            job.file = 4096;
            job.mappers = 8;
        })
        .contains("none is left")
    );
}

#[test]
fn names_can_be_read_back() {
    for verb in Verb::ALL {
        assert_eq!(verb.name().parse(), Ok(verb));
    }
    for mmu in [MmuKind::Soft, MmuKind::Uffd] {
        assert_eq!(mmu.name().parse(), Ok(mmu));
    }
    assert!("hard".parse::<MmuKind>().is_err());
}

#[test]
fn processor_time_of_huge_pages_is_of_the_time_that_counts() {
    let job = small::job(Workload::Hugetlb, 4);
    let outcome = run(&job).unwrap();
    // It begins with a thread's first touch after the mark, which is when the time begins.
    let most = outcome.elapsed_ns * job.cores as u64;
    assert!(outcome.cpu_ns <= most, "{} of {most} ns", outcome.cpu_ns);
}
