//! Samples and their medians.

use super::{Failure, Watch};
use std::time::Instant;

/// The median of the results of `sample`, over as many samples as are wanted.
pub fn median(
    watch: &mut Watch,
    what: &str,
    mut sample: impl FnMut() -> Result<f64, Failure>,
) -> Result<f64, Failure> {
    let mut all = Vec::new();
    for _ in 0..watch.samples {
        watch.tell(what)?;
        all.push(sample()?);
    }
    Ok(middle(all))
}

/// The middle of some figures.
pub fn middle(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// Picoseconds each of `count` things takes that `f` does.
pub fn each(count: usize, f: impl FnOnce()) -> f64 {
    let begin = Instant::now();
    f();
    begin.elapsed().as_nanos() as f64 * 1e3 / count as f64
}

/// Picoseconds as a topology has them: at least one.
pub fn whole(picoseconds: f64) -> u64 {
    picoseconds.round().max(1.0) as u64
}
