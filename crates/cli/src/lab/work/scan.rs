//! Every byte of a file in order, at the speed of memory where it is there already: the words of each
//! page are summed, and the sum is checked. Threads, if there are several, take equal parts side by side.
//! `pread` reads 1 MiB at once.

use super::super::job::Pass;
use super::super::reader::{Buffer, Reader, Source};
use super::{Bench, gang};
use std::ops::Range;
use std::sync::RwLock;

/// Pages read and counted at once.
const RUN_PAGES: u64 = 256;

/// Runs the passes up to the measured one, and measures that.
pub fn run(bench: &Bench, pass: Pass) -> Result<(), String> {
    let source = bench.source()?;
    if pass != Pass::Cold {
        let all = 0..source.pages();
        scan(&mut source.reader(&mut Buffer::default()), all, |_| true)?;
    }
    // The fresh mapping is part of the time that `remap` measures; whichever thread comes first makes it.
    let source = RwLock::new((source, pass != Pass::Remap));
    gang::measure(bench, 1 << 20, None, |member| {
        let fresh = source.read().expect("no thread panics").1;
        if !fresh {
            let (source, fresh) = &mut *source.write().expect("no thread panics");
            if !std::mem::replace(fresh, true) {
                source.map(bench.engine)?;
            }
        }
        let source = source.read().expect("no thread panics");
        let part = part(&source.0, member.number, bench.job.threads);
        let mut buffer = Buffer::default();
        scan(&mut source.0.reader(&mut buffer), part, |pages| {
            member.count(pages);
            !member.stopped()
        })
    })
}

/// Sums `pages`; tells `counted` after each run of them, and ends early if that says no.
fn scan(
    reader: &mut Reader,
    pages: Range<u64>,
    counted: impl Fn(u64) -> bool,
) -> Result<(), String> {
    for first in pages.clone().step_by(RUN_PAGES as usize) {
        let run = first..(first + RUN_PAGES).min(pages.end);
        let count = run.end - run.start;
        reader.sum_all(run, RUN_PAGES)?;
        if !counted(count) {
            break;
        }
    }
    Ok(())
}

/// Thread `number`'s part of the file, of whole runs.
fn part(source: &Source, number: usize, threads: usize) -> Range<u64> {
    let pages = source.pages();
    let runs = pages.div_ceil(RUN_PAGES);
    let edge = |number: usize| {
        let run = (u128::from(runs) * number as u128 / threads as u128) as u64;
        (run * RUN_PAGES).min(pages)
    };
    edge(number)..edge(number + 1)
}
