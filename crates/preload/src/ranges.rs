//! Sets of addresses.

use core::ops::Range;

/// Ranges that do not touch each other, by address.
#[derive(Debug, Default, Clone)]
pub struct Ranges(Vec<Range<usize>>);

impl Ranges {
    /// One range.
    pub fn of(range: Range<usize>) -> Self {
        Self(vec![range])
    }

    /// True if there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if this range is all of it.
    pub fn is(&self, range: &Range<usize>) -> bool {
        matches!(&self.0[..], [all] if all == range)
    }

    /// How many addresses there are.
    pub fn len(&self) -> usize {
        self.0.iter().map(Range::len).sum()
    }

    /// The ranges.
    pub fn iter(&self) -> impl Iterator<Item = &Range<usize>> {
        self.0.iter()
    }

    /// The parts of a range that are in it.
    pub fn within(&self, range: &Range<usize>) -> Vec<Range<usize>> {
        let part = |own: &Range<usize>| own.start.max(range.start)..own.end.min(range.end);
        let parts = self.0.iter().map(part);
        parts.filter(|part| part.start < part.end).collect()
    }

    /// Takes a range out.
    pub fn remove(&mut self, range: &Range<usize>) {
        let mut rest = Vec::with_capacity(self.0.len() + 1);
        for own in &self.0 {
            let below = own.start..own.end.min(range.start);
            let above = own.start.max(range.end)..own.end;
            rest.extend(
                [below, above]
                    .into_iter()
                    .filter(|part| part.start < part.end),
            );
        }
        self.0 = rest;
    }

    /// Adds a range.
    pub fn add(&mut self, range: &Range<usize>) {
        self.remove(range);
        self.0.push(range.clone());
        self.0.sort_unstable_by_key(|own| own.start);
        self.0.dedup_by(|next, last| {
            let joins = last.end == next.start;
            if joins {
                last.end = next.end;
            }
            joins
        });
    }
}
