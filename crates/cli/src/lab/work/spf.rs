//! Mapping-heavy: every thread maps a little anonymous memory, touches a few of its pages and unmaps it,
//! until the time is over. The shape of a program whose threads come and go with their stacks and arenas,
//! and of the test by which document 004's locks were tried.

use super::super::fill::PAGE;
use super::memory::Toucher;
use super::{Bench, gang};
use crate::results::row::Waited;

/// Pages touched of each mapping, evenly apart.
const TOUCHED: u64 = 4;

/// Maps `bytes` bytes at a time until the time is over.
pub fn run(bench: &Bench, bytes: u64) -> Result<(), String> {
    let pages = bytes / PAGE;
    let touched = TOUCHED.min(pages);
    gang::measure(bench, 256 << 10, Some(bench.job.seconds), |member| {
        for round in 0.. {
            // One mapping at least, however short the run.
            if round > 0 && member.stopped() {
                break;
            }
            let memory = member.timed(Waited::Map, || bench.map_anonymous(bytes))?;
            let toucher = Toucher::new(&*memory, round);
            for number in 0..touched {
                let page = number * pages / touched;
                member.timed(Waited::Touch, || toucher.touch(page))?;
                toucher.check(page)?;
                member.count(1);
            }
            member.timed(Waited::Unmap, || drop(memory));
            member.count_map();
        }
        Ok(())
    })
}
