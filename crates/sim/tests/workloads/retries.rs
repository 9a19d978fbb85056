//! Documents 000 and 002: under which lock a fault comes back.

use crate::small;
use softfault_sim::{Outcome, Workload, run};

fn outcome(workload: Workload, policies: &str) -> Outcome {
    let mut job = small::job(workload, 4);
    job.policies = policies.parse().unwrap();
    run(&job).unwrap()
}

/// Takings of `mmap_lock` for reading.
fn reads(outcome: &Outcome) -> u64 {
    let row = |row: &&softfault_sim::LockRow| (row.name, row.mode.name()) == ("mmap_lock", "read");
    outcome.locks.iter().find(row).unwrap().waits.count
}

#[test]
fn only_the_baseline_comes_back_under_mmap_lock() {
    for workload in [Workload::Thrash, Workload::WarmStart, Workload::SwapRetry] {
        let before = outcome(workload, "retry=mmap-lock+pin=no");
        let after = outcome(workload, "pin=no");
        assert!(before.retry_mmap_drop > 0 && after.retry_mmap_drop > 0);
        assert!(reads(&before) >= before.retry_mmap_drop, "{workload}");
        assert!(reads(&after) < after.retry_mmap_drop / 4, "{workload}");
    }
}

#[test]
fn a_fault_that_keeps_its_folio_does_not_miss_it() {
    for policies in ["retry=mmap-lock", "retry=vma-lock", "retry=held"] {
        let outcome = outcome(Workload::Thrash, policies);
        assert_eq!(outcome.retry_io_miss, 0, "{policies}");
    }
}
