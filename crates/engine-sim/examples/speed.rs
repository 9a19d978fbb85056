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
    let (begin, used) = (Instant::now(), processor_seconds());
    let (faults, report) = machine::run(config, || faults(cores, own)).expect("it ends");
    let seconds = begin.elapsed().as_secs_f64();
    let used = processor_seconds() - used;
    let operations = report.operations as f64;
    println!(
        "{cores} cores, {} mapping: {faults} faults in {} us of virtual and {seconds:.3} s of wall time",
        if own { "each its own" } else { "one" },
        report.elapsed_ns / 1000,
    );
    println!(
        "{} operations ({:.1} a fault), {} switches",
        report.operations,
        operations / faults as f64,
        report.switches,
    );
    println!(
        "{:.2} million operations a second of wall time, {:.2} million a second of processor time",
        operations / seconds / 1e6,
        operations / used / 1e6,
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

/// The processor time of this thread: others may use it too, and then
/// wall time says little.
fn processor_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = text
        .split(' ')
        .next()
        .and_then(|word| word.parse::<f64>().ok());
    nanoseconds.unwrap_or(f64::NAN) / 1e9
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
