//! The instructions between two operations of the facade, which no line of the
//! model has: the time of a real fault beyond that of the model.
//!
//! ```text
//!   real fault = fault in the model with code 0 + operations a fault × code
//! ```
//! The real fault is the product's, over the soft page tables, in one thread;
//! the model is of the machine that was just measured. That it is one figure for
//! all code is the model's simplification, not a finding.

use super::sample::{each, median};
use super::{Failure, Watch};
use crate::{Job, Workload, run};
use sync::topology::Topology;

const PAGE: usize = 4096;
/// Bytes that are populated: more than caches hold.
const REGION: usize = 64 << 20;
/// The same in a hurry.
const SMALL_REGION: usize = 16 << 20;
/// Pages of a sample.
const PAGES: usize = 256;
/// Bytes that the simulated thread populates at a time.
const SIMULATED: u64 = 4 << 20;
/// The trial value of `code`, to see how often it counts.
const STEP: u64 = 1000;

/// `code` for a topology whose other figures are right, and a note on it.
pub fn measure(watch: &mut Watch, topology: &Topology) -> Result<(u64, String), Failure> {
    let real = real(watch)?;
    watch.tell("the same faults in the model")?;
    let without = simulated(topology, 0)?;
    let with = simulated(topology, STEP)?;
    let operations = (with - without) / STEP as f64;
    if operations <= 0.0 {
        return Err(Failure::Failed(
            "a fault in the model has no operations".into(),
        ));
    }
    // A processor overlaps costs that the model adds up: there may be nothing left.
    let code = ((real - without) / operations).max(0.0).round() as u64;
    let note = format!(
        "line.code: a soft fault took {:.0} ns here, {:.0} ns in the model without it, with {operations:.0} operations \
         of the facade",
        real / 1e3,
        without / 1e3
    );
    Ok((code, note))
}

/// Picoseconds of a real fault, frames being recycled.
fn real(watch: &mut Watch) -> Result<f64, Failure> {
    let bytes = if watch.quick { SMALL_REGION } else { REGION };
    let engine = softfault::Engine::builder()
        .memory(4 * bytes)
        .policies(softfault::policy::Policies {
            // A fault a page, as the model has them.
            first_touch: softfault::policy::FirstTouch::Page,
            ..Default::default()
        })
        .build_soft()?;
    // Frames that the kernel has yet to provide are not measured.
    let first = engine.map_anon(bytes)?;
    for page in 0..bytes / PAGE {
        first
            .write_at(&[1], page * PAGE)
            .map_err(std::io::Error::from)?;
    }
    drop(first);
    let mut map = engine.map_anon(bytes)?;
    let mut next = 0;
    median(watch, "a soft fault", || {
        if (next + PAGES) * PAGE > bytes {
            map = engine.map_anon(bytes)?;
            next = 0;
        }
        let mut failed = Ok(());
        let picoseconds = each(PAGES, || {
            for page in next..next + PAGES {
                if let Err(e) = map.write_at(&[1], page * PAGE) {
                    failed = Err(e);
                }
            }
        });
        failed.map_err(std::io::Error::from)?;
        next += PAGES;
        Ok(picoseconds)
    })
}

/// Picoseconds of a fault in the model.
fn simulated(topology: &Topology, code: u64) -> Result<f64, Failure> {
    let mut topology = topology.clone();
    topology.line.code = code;
    let mut job = Job::new(Workload::Pft, topology, 1, 1);
    job.region = SIMULATED;
    // Two rounds: the second finds frames that were used.
    job.seconds = 0.001;
    let outcome = run(&job).map_err(|trouble| Failure::Failed(trouble.to_string()))?;
    match outcome.faults {
        0 => Err(Failure::Failed("the model had no faults".into())),
        faults => Ok(outcome.elapsed_ns as f64 * 1e3 / faults as f64),
    }
}
