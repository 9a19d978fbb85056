//! Memory that goes to the simulated disk and comes back.

use crate::small;
use softfault_sim::MmuKind::{Soft, Uffd};
use softfault_sim::{Workload, run};

#[test]
fn pages_that_do_not_fit_go_to_swap_and_come_back() {
    for workload in [Workload::Anon, Workload::SwapRetry] {
        for mmu in [Soft, Uffd] {
            let mut job = small::job(workload, 4);
            job.mmu = mmu;
            let outcome = run(&job).unwrap();
            let swap = outcome.swap.unwrap();
            assert!(swap.pages_out > 0 && swap.pages_in > 0, "{swap:?}");
            assert!(outcome.bytes_read >= swap.pages_in * 4096, "{outcome:?}");
            assert_eq!(swap.full, 0, "{workload} {mmu}");
        }
    }
    assert!(run(&small::job(Workload::Storm, 4)).unwrap().swap.is_none());
}

#[test]
fn pages_drawn_by_zipfs_law_are_there_more_often() {
    let mut job = small::job(Workload::Anon, 4);
    let uniform = run(&job).unwrap();
    job.theta = 0.99;
    let zipf = run(&job).unwrap();
    assert!(zipf.touches > uniform.touches);
    let in_per_touch = |of: &softfault_sim::Outcome| {
        let swap = of.swap.unwrap();
        swap.pages_in as f64 / of.touches as f64
    };
    assert!(in_per_touch(&zipf) < in_per_touch(&uniform) / 2.0);
}

#[test]
fn swap_is_on_the_disk_whose_speed_it_has() {
    let mut job = small::job(Workload::Anon, 4);
    let fast = run(&job).unwrap();
    job.topology.disk.bandwidth /= 20;
    let slow = run(&job).unwrap();
    let pages = |of: &softfault_sim::Outcome| {
        let swap = of.swap.unwrap();
        swap.pages_in + swap.pages_out
    };
    assert!(pages(&slow) < pages(&fast) / 2);
    let moved = (pages(&slow) * 4096) as f64;
    let most = slow.elapsed_ns as f64 / 1e9 * job.topology.disk.bandwidth as f64;
    // A read in flight at both ends belongs to neither.
    assert!(moved < 1.3 * most, "{moved} bytes, {most} at most");
}
