//! Document 004's page fault test.

use crate::small;
use softfault_sim::{Workload, run};

#[test]
fn every_page_is_populated_once_a_round() {
    for cores in [1, 4] {
        for shared in [false, true] {
            let mut job = small::job(Workload::Pft, cores);
            job.region = 256 << 10;
            job.shared = shared;
            job.seconds = 0.001;
            let outcome = run(&job).unwrap();
            let rounds = outcome.rounds / cores as u64;
            assert!(rounds >= 1);
            assert_eq!(outcome.faults, rounds * cores as u64 * 64);
            assert!(outcome.faults_per_s() > 0.0 && outcome.faults_per_cpu() > 0.0);
        }
    }
}
