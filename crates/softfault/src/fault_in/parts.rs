//! The ranges of a call in parts: those that are left, those that are under way, and the results.
//!
//! An engine takes all that is left at once. The kernel is given a piece at a time, since nothing ends its call before it has
//! read all: in between others may have the thread, and the deadline, the caller and the server of the map are looked at.

use crate::Advice;
use crate::error::FaultError;
use crate::file_map::populate_by_kernel;
use crate::range::{whole_pages, within};
use core::ops::Range;
use softfault_engine::PAGE_SIZE;
use std::collections::VecDeque;
use std::time::Instant;

/// Bytes that the kernel is given at a time, in whole pages; of each range a page at least.
const PIECE: usize = 2 << 20;
/// Pages that it is asked for at a time.
const ASKED: usize = 512;

/// The result for each range: success, or the error.
pub(super) type Answers = Vec<Result<(), FaultError>>;

/// Addresses of a range, and its number.
type Part = (usize, Range<usize>);

#[derive(Debug, Default)]
pub(super) struct Parts {
    answers: Answers,
    /// The last of those that are under way may go on as the first of these.
    left: VecDeque<Part>,
    under_way: Vec<Part>,
}

impl Parts {
    /// Ranges of offsets of a map of `len` bytes at `start`. Those outside of it have their result.
    pub(super) fn new((start, len): (usize, usize), ranges: &[Range<usize>]) -> Self {
        let mut parts = Self::default();
        for (place, range) in ranges.iter().enumerate() {
            let addresses = within(start, len, range);
            parts
                .answers
                .push(addresses.as_ref().map(drop).map_err(|&error| error));
            parts
                .left
                .extend(addresses.ok().map(|addresses| (place, addresses)));
        }
        parts
    }

    /// True if none is left or under way.
    pub(super) fn are_done(&self) -> bool {
        self.left.is_empty() && self.under_way.is_empty()
    }

    /// The addresses of all that are left or under way.
    pub(super) fn unfinished(&self) -> Vec<Range<usize>> {
        let parts = self.under_way.iter().chain(&self.left);
        parts.map(|(_, addresses)| addresses.clone()).collect()
    }

    /// The addresses of those that are under way.
    pub(super) fn under_way(&self) -> impl Iterator<Item = &Range<usize>> {
        self.under_way.iter().map(|(_, addresses)| addresses)
    }

    /// The numbers of their ranges.
    pub(super) fn numbers(&self) -> Vec<usize> {
        self.under_way.iter().map(|&(place, _)| place).collect()
    }

    /// Takes those that are to be under way next: all, or a piece for the kernel.
    pub(super) fn take(&mut self, by_kernel: bool) -> Vec<Range<usize>> {
        let mut room = if by_kernel { PIECE } else { usize::MAX };
        while let Some((place, range)) = self.left.front_mut().filter(|_| room > 0) {
            let first = whole_pages(range).start;
            let end = range.end.min(first.saturating_add(room));
            let bytes = whole_pages(&(first..end)).len().max(PAGE_SIZE);
            room = room.saturating_sub(bytes);
            self.under_way.push((*place, range.start..end));
            match end == range.end {
                true => drop(self.left.pop_front()),
                false => range.start = end,
            }
        }
        self.under_way().cloned().collect()
    }

    /// Notes the results of those that were under way, and tells `arrived` of each range that is in memory by now.
    pub(super) fn note(&mut self, results: Answers, arrived: &mut dyn FnMut(usize)) {
        for ((place, _), result) in self.under_way.drain(..).zip(results) {
            let goes_on = self.left.front().is_some_and(|(next, _)| *next == place);
            match result {
                Err(_) => {
                    self.answers[place] = result;
                    if goes_on {
                        self.left.pop_front();
                    }
                }
                Ok(()) if goes_on => {}
                Ok(()) => arrived(place),
            }
        }
    }

    /// The results of all.
    pub(super) fn into_answers(self) -> Answers {
        self.answers
    }
}

/// Tells the kernel which addresses will be needed.
pub(super) fn will_need(addresses: &[Range<usize>]) {
    for range in addresses.iter().filter(|range| !range.is_empty()) {
        // It is advice.
        let _ = Advice::WillNeed.to_kernel(range);
    }
}

/// Has the kernel bring addresses in until the deadline; after it, only pages that are in memory count.
pub(super) fn bring_in(addresses: &[Range<usize>], until: Option<Instant>) -> Answers {
    let each = addresses.iter().map(|range| match is_over(until) {
        false => populate_by_kernel(range, false),
        true if are_in_memory(range) => Ok(()),
        true => Err(FaultError::TimedOut),
    });
    each.collect()
}

pub(super) fn is_over(until: Option<Instant>) -> bool {
    until.is_some_and(|until| Instant::now() >= until)
}

/// True if the kernel has these pages in memory, or does not tell: of a file that this process does not own, and may not write to.
fn are_in_memory(addresses: &Range<usize>) -> bool {
    let pages = whole_pages(addresses);
    let mut there = [0_u8; ASKED];
    addresses.is_empty()
        || pages.clone().step_by(ASKED * PAGE_SIZE).all(|at| {
            let bytes = (pages.end - at).min(ASKED * PAGE_SIZE);
            let there = &mut there[..bytes / PAGE_SIZE];
            // SAFETY: fills a byte a page.
            let asked = unsafe {
                sync::kernel_calls::mincore(at as *mut libc::c_void, bytes, there.as_mut_ptr())
            };
            asked == 0 && there.iter().all(|there| there & 1 != 0)
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::slice::from_ref;

    #[test]
    fn the_kernel_has_a_piece_at_a_time() {
        #[expect(clippy::reversed_empty_ranges, reason = "refused")]
        let ranges = [
            0..PIECE / 2,
            5..5,
            9..8,
            PIECE..4 * PIECE,
            0..1,
            0..9 * PIECE,
        ];
        let mut parts = Parts::new((PIECE, 4 * PIECE), &ranges);
        let mut told = Vec::new();
        let mut note = |parts: &mut Parts, results| {
            parts.note(results, &mut |place| told.push(place));
        };
        let half = PIECE / 2;
        let first = [
            PIECE..PIECE + half,
            PIECE + 5..PIECE + 5,
            2 * PIECE..2 * PIECE + half - PAGE_SIZE,
        ];
        assert_eq!(parts.take(true), first);
        assert_eq!(parts.numbers(), [0, 1, 3]);
        note(&mut parts, vec![Ok(()); 3]);
        let rest = 2 * PIECE + half - PAGE_SIZE..3 * PIECE + half - PAGE_SIZE;
        assert_eq!(parts.take(true), from_ref(&rest));
        // The rest of it is not looked at.
        note(&mut parts, vec![Err(FaultError::BeyondEnd)]);
        assert_eq!(parts.take(false), from_ref(&(PIECE..PIECE + 1)));
        note(&mut parts, vec![Ok(())]);
        assert!(parts.are_done());
        assert_eq!(told, [0, 1, 4]);
        let outside = Err(FaultError::OutOfRange);
        let beyond = Err(FaultError::BeyondEnd);
        let expected = [Ok(()), Ok(()), outside, beyond, Ok(()), outside];
        assert_eq!(parts.into_answers(), expected);
    }

    /// Failed before: a hundred thousand of these were one piece, and the kernel's calls for them went on past any deadline.
    #[test]
    fn the_smallest_ranges_are_pages_of_a_piece() {
        let (most, page) = (PIECE / PAGE_SIZE, PAGE_SIZE);
        let ranges: Vec<_> = (0..2 * most)
            .map(|at| at * page + 4..at * page + 68)
            .collect();
        let mut parts = Parts::new((PIECE, 2 * PIECE), &ranges);
        assert_eq!(parts.take(true).len(), most);
        parts.note(vec![Ok(()); most], &mut |_| {});
        assert_eq!(parts.take(false).len(), most);
        // Each is on two pages.
        let ranges: Vec<_> = (0..most).map(|_| page - 4..page + 4).collect();
        let mut parts = Parts::new((PIECE, PIECE), &ranges);
        assert_eq!(parts.take(true).len(), most / 2);
    }
}
