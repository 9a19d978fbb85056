//! Scattered pages of a file, brought in by one call, as a vector index needs. pread, which has no such call, reads
//! them by as many threads as keep a device busy.

use super::super::fill::{mix, uniform};
use super::super::reader::{Buffer, Source};
use super::{Bench, gang};
use std::thread;

/// Pages of a call, unless the file has fewer.
const PAGES: u64 = 4096;
/// Calls that are measured, each for other pages, as far as the file has so many: one is over soon.
const COLD_CALLS: u64 = 8;
/// The same where the pages are there already.
const PRESENT_CALLS: u64 = 64;
/// Threads that read for one that calls.
const READERS: usize = 32;

/// Brings the pages in, and looks at each; where they are there before the clock starts, brings them in again.
pub fn run(bench: &Bench, present: bool) -> Result<(), String> {
    let source = bench.source()?;
    // Drawn before the clock starts.
    let wanted = |number: usize| pages(mix(bench.job.seed ^ number as u64), source.pages());
    let wanted: Vec<Vec<u64>> = (0..bench.job.threads).map(wanted).collect();
    if present {
        for pages in &wanted {
            bring_in(&source, first(pages), false)?;
        }
    }
    gang::measure(bench, 1 << 20, None, |member| {
        let all = &wanted[member.number];
        let calls: Vec<&[u64]> = match present {
            true => (0..PRESENT_CALLS).map(|_| first(all)).collect(),
            false => all.chunks(PAGES as usize).collect(),
        };
        for pages in calls {
            if member.stopped() {
                break;
            }
            let mapped = bring_in(&source, pages, present)?;
            if mapped && !present {
                touch(&source, pages)?;
            }
            member.count(pages.len() as u64);
        }
        Ok(())
    })
}

/// The pages of one call.
fn first(pages: &[u64]) -> &[u64] {
    &pages[..pages.len().min(PAGES as usize)]
}

/// Brings pages in by one call, or reads them; whether they are mapped.
fn bring_in(source: &Source, pages: &[u64], present: bool) -> Result<bool, String> {
    if source.bring_in(pages, present)? {
        return Ok(true);
    }
    thread::scope(|scope| {
        let parts = pages.chunks(pages.len().div_ceil(READERS));
        let threads: Vec<_> = parts
            .map(|part| scope.spawn(|| touch(source, part)))
            .collect();
        let join = |thread: thread::ScopedJoinHandle<_>| thread.join().expect("no thread panics");
        threads.into_iter().try_for_each(join)
    })?;
    Ok(false)
}

/// Looks at a word of each page, and checks it.
fn touch(source: &Source, pages: &[u64]) -> Result<(), String> {
    let mut buffer = Buffer::default();
    let mut reader = source.reader(&mut buffer);
    pages.iter().try_for_each(|&page| reader.touch(page))
}

/// Pages of all calls: all over a file of `all`, none twice, in no order.
fn pages(seed: u64, all: u64) -> Vec<u64> {
    let count = (COLD_CALLS * PAGES).min(all);
    let edge = |part: u64| (u128::from(part) * u128::from(all) / u128::from(count)) as u64;
    let page = |part| edge(part) + uniform(mix(seed ^ part), edge(part + 1) - edge(part));
    let mut pages: Vec<u64> = (0..count).map(page).collect();
    pages.sort_unstable_by_key(|page| mix(seed ^ page));
    pages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_page_is_wanted_twice() {
        for all in [1, 4095, 4096, 1 << 15, 1 << 20] {
            let mut wanted = pages(7, all);
            assert_eq!(wanted.is_sorted(), all < 100, "{all} pages in order");
            wanted.sort_unstable();
            wanted.dedup();
            assert_eq!(wanted.len() as u64, all.min(8 * PAGES));
            assert!(wanted.iter().all(|page| *page < all));
        }
        assert_ne!(pages(1, 1 << 20), pages(2, 1 << 20));
    }
}
