//! N threads touch uniformly random pages of one file for a time.

use super::super::fill::{mix, uniform};
use super::super::reader::Buffer;
use super::{Bench, gang};

/// Touches until the time is over; the mapping is made before the clock starts.
pub fn run(bench: &Bench) -> Result<(), String> {
    let source = bench.source()?;
    let pages = source.pages();
    gang::measure(bench, 1 << 20, Some(bench.job.seconds), |member| {
        let mut buffer = Buffer::default();
        let mut reader = source.reader(&mut buffer);
        let seed = mix(bench.job.seed ^ mix(member.number as u64));
        for access in 0.. {
            // One touch at least, however short the run.
            if access > 0 && member.stopped() {
                break;
            }
            reader.touch(uniform(mix(seed ^ access), pages))?;
            member.count(1);
        }
        Ok(())
    })
}
