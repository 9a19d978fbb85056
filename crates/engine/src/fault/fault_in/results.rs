//! Many ranges, in any order, and the result of each.

use super::cursor::whole_pages;
use super::{FaultError, FaultIn, Interrupt, Progress};
use crate::mm::AddressSpace;
use core::ops::Range;

/// Why a page is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultInError {
    /// A touch would fail.
    Error(FaultError),
    /// It was not to be waited for any more.
    TimedOut,
}

/// Many ranges on their way in. Not for the fault handler: they are on the heap.
#[derive(Debug)]
pub struct FaultInMany {
    /// By where they start.
    ranges: Vec<Range<usize>>,
    /// Which of the caller's each of them is.
    places: Vec<usize>,
    progress: FaultIn,
    /// Pages that did not come, by address, and why. Between two of them a range starts: they are
    /// no more than ranges.
    failed: Vec<(usize, FaultInError)>,
    /// How many of the ranges the caller was told of.
    told: usize,
}

impl FaultInMany {
    /// Ranges, in any order and overlapping as they like, each with a number of the caller's.
    /// For reads of their pages, or for writes.
    pub fn new(mut ranges: Vec<(usize, Range<usize>)>, write: bool) -> Self {
        ranges.sort_unstable_by_key(|(_, range)| range.start);
        let (places, ranges) = ranges.into_iter().unzip();
        let mut progress = FaultIn::new(write);
        progress.leave_reads();
        Self {
            ranges,
            places,
            progress,
            failed: Vec::new(),
            told: 0,
        }
    }

    /// Brings them in. `false` if something else wants the thread: go on when that is done.
    pub fn run(&mut self, space: &AddressSpace, interrupt: &dyn Interrupt) -> bool {
        self.run_each(space, interrupt, &mut |_| {})
    }

    /// As [`run`](Self::run). The numbers of ranges that are in are told to `arrived`, in the order of addresses, while reads of the
    /// others are in flight. Their pages may be evicted again at any time.
    pub fn run_each(
        &mut self,
        space: &AddressSpace,
        interrupt: &dyn Interrupt,
        arrived: &mut dyn FnMut(usize),
    ) -> bool {
        loop {
            match self.progress.step(&self.ranges, space, interrupt) {
                None => {}
                Some(Progress::Done) => {
                    self.report(usize::MAX, arrived);
                    return true;
                }
                Some(Progress::Interrupted) => return false,
                Some(Progress::Failed(addr, why)) => self.failed.push((addr, why)),
            }
            if let Some(reached) = self.progress.reached() {
                self.report(reached, arrived);
            }
        }
    }

    /// Reports the ranges that end below an address, but for those that failed.
    fn report(&mut self, reached: usize, arrived: &mut dyn FnMut(usize)) {
        while let Some(range) = self.ranges.get(self.told)
            && whole_pages(range).end <= reached
        {
            if self.failure(range).is_none() {
                arrived(self.places[self.told]);
            }
            self.told += 1;
        }
    }

    /// From now on nothing is read and nothing waited for. Ranges that are there are well, all
    /// others have [`FaultInError::TimedOut`].
    pub fn stop_waiting(&mut self) {
        self.progress.stop_waiting();
    }

    /// Once they are through: those that are not in, by the caller's number, and why.
    pub fn failed(&self) -> impl Iterator<Item = (usize, FaultInError)> + '_ {
        let ranges = match self.failed.is_empty() {
            true => &[],
            false => &self.ranges[..],
        };
        let judged = ranges.iter().zip(&self.places);
        judged.filter_map(|(range, &place)| Some((place, self.failure(range)?)))
    }

    /// That of the first page of a range that did not come.
    fn failure(&self, range: &Range<usize>) -> Option<FaultInError> {
        let pages = whole_pages(range);
        let first = self.failed.partition_point(|&(addr, _)| addr < pages.start);
        let &(addr, why) = self.failed.get(first)?;
        (!range.is_empty() && addr < pages.end).then_some(why)
    }
}
