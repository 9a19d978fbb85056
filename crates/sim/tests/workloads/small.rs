//! A machine for tests: figures that are easy to reckon with, of no real one.

use softfault_sim::{Job, Verb, Workload};
use sync::topology::{Disk, KernelCosts, LineCosts, MemoryCosts, PageCosts, Placement};
use sync::topology::{SchedulerCosts, Topology};

/// Two sockets of eight cores.
pub fn topology() -> Topology {
    const NS: u64 = 1000;
    Topology {
        name: "small".to_owned(),
        source: "made up".to_owned(),
        sockets: 2,
        nodes: 1,
        clusters: 2,
        cores: 4,
        smt: 1,
        placement: Placement::Spread,
        smt_extra: 0,
        memory: MemoryCosts {
            bandwidth: u64::MAX,
            remote: 1_000_000,
        },
        line: LineCosts {
            code: 500,
            hit: NS,
            rmw: 5 * NS,
            sibling: 10 * NS,
            cluster: 30 * NS,
            node: 50 * NS,
            socket: 70 * NS,
            remote: 150 * NS,
            memory: 90 * NS,
            hold: 20 * NS,
        },
        scheduler: SchedulerCosts {
            call: 200 * NS,
            switch: 1000 * NS,
            wake: 500 * NS,
            wake_latency: 2000 * NS,
            slice: 3_000_000 * NS,
        },
        page: PageCosts {
            clear: 100 * NS,
            copy: 200 * NS,
            map: 1000 * NS,
        },
        disk: Disk {
            latency: 80_000 * NS,
            bandwidth: 2_000_000_000,
            depth: 32,
            request: 0,
            submit: 3000 * NS,
        },
        kernel: KernelCosts {
            signal: 1500 * NS,
            signal_lock: 50 * NS,
            signal_lock_takings: 4,
            uffd_copy: 300 * NS,
            uffd_copy_page: 300 * NS,
            zap: 1000 * NS,
            zap_page: 50 * NS,
            ipi_send: 300 * NS,
            ipi_receive: 1000 * NS,
            map: 2000 * NS,
        },
    }
}

/// A short run, of sizes that take a moment.
pub fn job(workload: Workload, cores: usize) -> Job {
    let threads = 2 * cores;
    let mut job = Job::new(workload, topology(), cores, threads);
    job.patience = 5.0;
    match workload {
        Workload::Pft => {
            job.memory = 64 << 20;
            job.region = 256 << 10;
            job.seconds = 0.001;
        }
        Workload::Spf | Workload::Loops => {
            job.verb = Verb::MapAndTouch;
            job.memory = 64 << 20;
            job.seconds = 0.001;
        }
        Workload::Thrash => {
            job.memory = 8 << 20;
            job.holes = false;
            job.file = (32 << 20) / threads as u64;
            job.seconds = 0.02;
        }
        Workload::Storm => {
            job.memory = 8 << 20;
            job.file = 32 << 20;
            job.seconds = 0.01;
        }
        Workload::SwapRetry | Workload::Anon => {
            job.memory = 8 << 20;
            job.region = 32 << 20;
            job.swap = 2 * job.region;
            job.seconds = 0.03;
        }
        Workload::Hugetlb => {
            job.file = 2 << 30;
            // On one core too the counting begins: after a slice of the scheduler's.
            job.seconds = 0.03;
        }
        Workload::WarmStart => {
            job.memory = 16 << 20;
            job.files = 60;
            job.seconds = 0.03;
        }
    }
    job
}
