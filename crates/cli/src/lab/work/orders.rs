//! Pages of a file once each, in one of the orders that programs have. Threads, if there are several, take them in
//! turn.
//!
//! Reads that map nothing know the order beforehand: each run of pages beside each other is a read, and they go by
//! their place in the file.

use super::super::family::Family;
use super::super::fill::mix;
use super::super::reader::{Buffer, Source};
use super::{Bench, gang};
use crate::results::row::Waited;
use softfault::clock::now_ns;
use std::ops::Range;

/// Touches counted at once.
const TOUCHES: u64 = 64;
/// Pages of one read, at most.
const READ: u64 = 256;

/// Touches the pages; the mapping is made, and the order drawn, before the clock starts.
pub fn run(bench: &Bench, family: Family) -> Result<(), String> {
    let source = bench.source()?;
    let order = family.pages(source.pages(), mix(bench.job.seed));
    if !source.is_mapped() {
        return read(bench, &source, runs(order));
    }
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

/// Reads each of the ranges; threads take them in turn.
fn read(bench: &Bench, source: &Source, runs: Vec<Range<u64>>) -> Result<(), String> {
    gang::measure(bench, 1 << 20, None, |member| {
        let mut buffer = Buffer::default();
        let mut reader = source.reader(&mut buffer);
        let mut since = now_ns();
        for run in runs.iter().skip(member.number).step_by(bench.job.threads) {
            reader.touch_all(run.clone(), READ, || ())?;
            member.lap(Waited::Touch, &mut since);
            member.count(run.end - run.start);
            if member.stopped() {
                break;
            }
        }
        Ok(())
    })
}

/// The pages as ranges of neighbours, by their place.
fn runs(mut pages: Vec<u32>) -> Vec<Range<u64>> {
    pages.sort_unstable();
    let beside = pages.chunk_by(|a, b| a + 1 == *b);
    let ranges = beside.flat_map(|run| run.chunks(READ as usize));
    ranges
        .map(|run| u64::from(run[0])..u64::from(run[0]) + run.len() as u64)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_one_read() {
        assert_eq!(runs(vec![9, 2, 0, 1, 8, 5]), [0..3, 5..6, 8..10]);
        assert_eq!(runs((0..300).collect()), [0..256, 256..300]);
        assert_eq!(runs(Vec::new()), []);
    }
}
