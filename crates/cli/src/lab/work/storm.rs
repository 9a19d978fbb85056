//! Mapping against faulting: one thread maps a small file, touches its first page and unmaps it, all the
//! time; the others touch uniformly random pages of a large file that stays mapped. Each side's waits for
//! the other shows in both rates and in the longest single waits.

use super::super::fill::{mix, uniform};
use super::super::reader::Buffer;
use super::gang::Member;
use super::{Bench, gang};
use crate::results::row::Waited;
use softfault::clock::now_ns;

/// Touches, maps and unmaps until the time is over; the large file is mapped before the clock starts.
pub fn run(bench: &Bench) -> Result<(), String> {
    let large = bench.source()?;
    let pages = large.pages();
    gang::measure(bench, 1 << 20, Some(bench.job.seconds), |member| {
        if member.number == bench.job.threads {
            return maps(bench, member);
        }
        let mut buffer = Buffer::default();
        let mut reader = large.reader(&mut buffer);
        let seed = mix(bench.job.seed ^ mix(member.number as u64));
        let mut since = now_ns();
        for access in 0.. {
            // One touch at least, however short the run.
            if access > 0 && member.stopped() {
                break;
            }
            reader.touch(uniform(mix(seed ^ access), pages))?;
            member.lap(Waited::Touch, &mut since);
            member.count(1);
        }
        Ok(())
    })
}

fn maps(bench: &Bench, member: &Member) -> Result<(), String> {
    let mut small = bench.open(1)?;
    let mut buffer = Buffer::default();
    loop {
        member.timed(Waited::Map, || small.map(bench.engine))?;
        small.reader(&mut buffer).touch(0)?;
        member.timed(Waited::Unmap, || small.unmap());
        member.count_map();
        if member.stopped() {
            return Ok(());
        }
    }
}
