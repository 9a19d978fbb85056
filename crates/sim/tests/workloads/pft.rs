//! Document 004's page fault test.

use crate::small;
use softfault_sim::{Workload, run};

#[test]
fn every_page_is_populated_once_a_round() {
    for cores in [1, 4] {
        for shared in [false, true] {
            let mut job = small::job(Workload::Pft, cores);
            job.shared = shared;
            let outcome = run(&job).unwrap();
            let threads = job.threads as u64;
            let rounds = outcome.rounds / threads;
            assert!(rounds >= 1);
            assert_eq!(outcome.faults, rounds * threads * 64);
            assert!(outcome.faults_per_s() > 0.0 && outcome.faults_per_cpu() > 0.0);
        }
    }
}
