//! Pages of a file once each, in one of the orders that programs have. Threads, if there are several, take them in
//! turn.

use super::super::counters::now_ns;
use super::super::family::Family;
use super::super::fill::mix;
use super::super::reader::Buffer;
use super::{Bench, gang};
use crate::results::row::Waited;

/// Touches counted at once.
const TOUCHES: u64 = 64;

/// Touches the pages; the mapping is made, and the order drawn, before the clock starts.
pub fn run(bench: &Bench, family: Family) -> Result<(), String> {
    let source = bench.source()?;
    let order = family.pages(source.pages(), mix(bench.job.seed));
    gang::measure(bench, 1 << 20, None, |member| {
        let mut buffer = Buffer::default();
        let mut reader = source.reader(&mut buffer);
        let mut touched = 0;
        let mut since = now_ns();
        for &page in order.iter().skip(member.number).step_by(bench.job.threads) {
            reader.touch(u64::from(page))?;
            member.lap(Waited::Touch, &mut since);
            touched += 1;
            if touched == TOUCHES {
                member.count(std::mem::take(&mut touched));
                if member.stopped() {
                    break;
                }
            }
        }
        member.count(touched);
        Ok(())
    })
}
