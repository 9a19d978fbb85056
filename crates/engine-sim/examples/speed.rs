//! How fast the simulator is: façade operations a second of wall time, while
//! all cores of a machine fault in pages of one mapping.
//!
//! `cargo run --release -p softfault-engine-sim --example speed -- [cores] [own]`

#[path = "../tests/machines/rig.rs"]
mod rig;

use rig::{Rig, topology};
use softfault_engine_sim::policy::VmaLockKind;
use std::time::Instant;
use sync::machine::{self, Config, Heap};

#[global_allocator]
static HEAP: Heap = Heap;

/// Pages that a thread faults in, in each round.
const PAGES: usize = 256;
const ROUNDS: usize = 8;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let cores: usize = arguments
        .next()
        .map_or(56, |cores| cores.parse().expect("a number"));
    let own = arguments.next().is_some_and(|what| what == "own");
    let config = Config::new(topology(2, cores.div_ceil(2) as u16), cores, 1);
    let begin = Instant::now();
    let (faults, report) = machine::run(config, || faults(cores, own)).expect("it ends");
    let seconds = begin.elapsed().as_secs_f64();
    let operations = report.operations as f64;
    println!(
        "{cores} cores, {} mapping: {faults} faults in {} us of virtual and {seconds:.3} s of wall time",
        if own { "each its own" } else { "one" },
        report.elapsed_ns / 1000,
    );
    println!(
        "{} operations ({:.1} a fault), {} switches: {:.2} million operations/s, {:.0} ns each",
        report.operations,
        operations / faults as f64,
        report.switches,
        operations / seconds / 1e6,
        seconds * 1e9 / operations,
    );
    println!("digest {:016x}", report.digest);
    for line in report.hot.iter().take(8) {
        println!(
            "  {:>12} ns {:>8} misses  {}",
            line.ns(),
            line.misses,
            line.place
        );
    }
}

fn faults(cores: usize, own: bool) -> usize {
    let rig = Rig::new(4 * cores * PAGES + 8192, VmaLockKind::Refcount);
    for _ in 0..ROUNDS {
        let start = if own { 0 } else { rig.map(cores * PAGES) };
        let threads: Vec<_> = (0..cores)
            .map(|thread| {
                let rig = rig.clone();
                sync::thread::spawn(move || {
                    let mut core = rig.core();
                    let (start, first) = match own {
                        true => (rig.map(PAGES), 0),
                        false => (start, thread * PAGES),
                    };
                    for page in first..first + PAGES {
                        rig.touch(&mut core, start, page);
                    }
                    if own {
                        rig.unmap(start, PAGES);
                    }
                })
            })
            .collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().expect("it ends"));
        if !own {
            rig.unmap(start, cores * PAGES);
        }
    }
    cores * PAGES * ROUNDS
}
