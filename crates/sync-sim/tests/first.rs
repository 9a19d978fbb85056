use softfault_sync_sim as sync;
use std::sync::Arc;
use sync::atomic::{AtomicU64, Ordering::Relaxed};
use sync::machine::{self, Config, Heap};
#[global_allocator]
static HEAP: Heap = Heap;

fn topology() -> sync::topology::Topology {
    use sync::topology::*;
    Topology {
        name: "t".into(),
        source: "t".into(),
        sockets: 2,
        nodes: 1,
        clusters: 1,
        cores: 4,
        smt: 1,
        placement: Placement::Packed,
        line: LineCosts {
            code: 1000,
            hit: 1000,
            rmw: 5000,
            sibling: 10000,
            cluster: 40000,
            node: 60000,
            socket: 80000,
            remote: 120000,
            memory: 90000,
            hold: 0,
        },
        scheduler: SchedulerCosts {
            call: 100_000,
            switch: 1_000_000,
            wake: 500_000,
            wake_latency: 2_000_000,
            slice: 3_000_000_000,
        },
        page: PageCosts {
            clear: 100_000,
            copy: 200_000,
            map: 1_000_000,
        },
        disk: Disk {
            latency: 1,
            bandwidth: 1,
            depth: 1,
            submit: 1,
        },
        kernel: KernelCosts {
            signal: 0,
            signal_lock: 0,
            signal_lock_takings: 0,
            uffd_copy: 0,
            uffd_copy_page: 0,
            zap: 0,
            zap_page: 0,
            ipi_send: 0,
            ipi_receive: 0,
            map: 0,
        },
    }
}

#[test]
fn counts() {
    let mut last = None;
    for _ in 0..3 {
        let (sum, report) = machine::run(Config::new(topology(), 8, 1), || {
            let n = Arc::new(AtomicU64::new(0));
            let hs: Vec<_> = (0..8)
                .map(|_| {
                    let n = n.clone();
                    sync::thread::spawn(move || {
                        for _ in 0..1000 {
                            n.fetch_add(1, Relaxed);
                        }
                    })
                })
                .collect();
            for h in hs {
                h.join().unwrap();
            }
            n.load(Relaxed)
        })
        .unwrap();
        assert_eq!(sum, 8000);
        println!("{report:?}");
        if let Some(l) = last {
            assert_eq!(l, report.digest);
        }
        last = Some(report.digest);
    }
}
