//! The cost of cache lines.

use crate::program::bare;
use softfault_sync_sim as sync;
use std::sync::Arc;
use sync::atomic::{AtomicU64, Ordering::*};
use sync::machine::{self, Config, Report};
use sync::topology::Topology;

/// Words of one line, or each with a line of its own.
#[repr(align(64))]
#[derive(Default)]
struct Line([AtomicU64; 2]);

/// Runs a body in so many threads, each on a core. The first thread is on one
/// more, and only waits.
fn threads(topology: Topology, threads: usize, body: impl Fn(usize) + Clone + 'static) -> Report {
    let ran = machine::run(Config::new(topology, threads + 1, 0), move || {
        let start = |thread| {
            let body = body.clone();
            machine::spawn_named("", 0, move || body(thread))
        };
        let threads: Vec<_> = (0..threads).map(start).collect();
        for thread in threads {
            thread.join().expect("it ends");
        }
    });
    ran.expect("nobody waits for ever").1
}

#[test]
fn two_cores_pay_a_transfer_for_each_change_of_one_word() {
    const EACH: u64 = 1000;
    let word = Arc::new(Line::default());
    let changes = word.clone();
    let report = threads(bare(3), 2, move |_| {
        for _ in 0..EACH {
            changes.0[0].fetch_add(1, Relaxed);
        }
    });
    assert_eq!(word.0[0].load(Relaxed), 2 * EACH);
    // The first comes from memory, all others from the other core. Joining has
    // no line.
    assert_eq!(report.elapsed_ns, 90 + (2 * EACH - 1) * 40);
    // Each change comes from the test above, at one place.
    assert_eq!(report.hot.len(), 1);
    assert_eq!(report.hot[0].misses, 2 * EACH);
    assert_eq!(report.hot[0].transfer_ns, report.elapsed_ns);
    assert!(
        report.hot[0]
            .place
            .starts_with("crates/sync-sim/tests/machine/lines.rs:")
    );
}

#[test]
fn one_core_pays_for_memory_once() {
    let word = Arc::new(AtomicU64::new(0));
    let report = threads(bare(3), 1, move |_| {
        for _ in 0..1000 {
            word.fetch_add(1, Relaxed);
        }
    });
    assert_eq!(report.elapsed_ns, 90);
}

#[test]
fn a_change_takes_as_long_as_the_farthest_reader() {
    // Cores 0 and 1 on one socket; 2, 3 on the other, with the first thread.
    let mut topology = bare(2);
    topology.placement = sync::topology::Placement::Packed;
    let word = Arc::new(AtomicU64::new(0));
    let report = threads(topology, 3, move |thread| match thread {
        0 => {
            machine::sleep_until_ns(10_000);
            word.fetch_add(1, Relaxed);
        }
        _ => {
            word.load(Relaxed);
        }
    });
    assert_eq!(report.elapsed_ns, 10_000 + 120);
}

#[test]
fn readers_do_not_queue() {
    let word = Arc::new(AtomicU64::new(0));
    let report = threads(bare(9), 8, move |thread| {
        if thread > 0 {
            machine::sleep_until_ns(1_000);
        }
        for _ in 0..100 {
            word.load(Relaxed);
        }
    });
    // One from memory; then all others from it, at a time.
    assert_eq!(report.elapsed_ns, 1_000 + 40);
}

#[test]
fn words_of_one_line_cost_as_one_word() {
    let time = |apart: bool| {
        let report = machine::run(Config::new(bare(3), 3, 0), || {
            let lines: Arc<Vec<Line>> = Arc::new((0..2).map(|_| Line::default()).collect());
            let start = |thread: usize| {
                let lines = lines.clone();
                machine::spawn_named("", 0, move || {
                    let word = match apart {
                        true => &lines[thread].0[0],
                        false => &lines[0].0[thread],
                    };
                    for _ in 0..100 {
                        word.fetch_add(1, Relaxed);
                    }
                })
            };
            let threads = [start(0), start(1)];
            for thread in threads {
                thread.join().expect("it ends");
            }
        });
        report.expect("nobody waits for ever").1.elapsed_ns
    };
    assert_eq!(time(true), 90);
    assert_eq!(time(false), 90 + 199 * 40);
}

#[test]
fn a_granted_line_is_kept_for_a_while() {
    let mut topology = bare(3);
    topology.line.hold = 1_000_000;
    topology.line.rmw = 10_000;
    let word = Arc::new(Line::default());
    // A hundred changes within one hold.
    let report = threads(topology, 2, move |_| {
        for _ in 0..100 {
            word.0[0].fetch_add(1, Relaxed);
        }
    });
    assert_eq!(report.elapsed_ns, 90 + 1_000 + 40 + 1_000);
}

#[test]
fn bytes_cost_by_the_page() {
    let ran = machine::run(Config::new(bare(1), 1, 0), || {
        let pages = sync::pages::map(8192).expect("memory").as_ptr();
        // SAFETY: both pages are ours.
        unsafe {
            sync::bytes::clear(pages, 4096);
            pages.write(7);
            sync::bytes::copy(pages, pages.add(4096), 2048);
            pages.add(4096).read()
        }
    });
    let (byte, report) = ran.expect("nobody waits");
    assert_eq!((byte, report.elapsed_ns), (7, 1_000 + 100 + 100));
}

#[test]
fn mapped_pages_are_zeros_after_any_owner() {
    let ran = machine::run(Config::new(bare(1), 1, 0), || {
        for bytes in [4096, 12288, 1 << 20, 5 << 20, 3 << 30] {
            for _ in 0..3 {
                let pages = sync::pages::map(bytes).expect("memory");
                // SAFETY: ours, until it is given back.
                unsafe {
                    for at in [0, 8, bytes / 2, bytes - 1] {
                        assert_eq!(pages.add(at).read(), 0);
                        pages.add(at).write(9);
                    }
                    sync::pages::unmap(pages, bytes);
                }
            }
        }
    });
    ran.expect("nobody waits");
}
