//! Bands: the results of several seeds and machines.

use crate::results::stats::{harmonic_mean, median};

/// The least, the middle and the most of some figures.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Band {
    pub low: f64,
    pub median: f64,
    pub high: f64,
    /// The harmonic mean; 0 of figures that are no rates.
    pub mean: f64,
    /// How many figures.
    pub of: usize,
}

impl Band {
    /// Of figures; `None` of nothing.
    pub fn of(figures: &[f64]) -> Option<Self> {
        Some(Self {
            low: figures.iter().copied().fold(f64::INFINITY, f64::min),
            median: median(figures.to_vec())?,
            high: figures.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            mean: harmonic_mean(figures).unwrap_or(0.0),
            of: figures.len(),
        })
    }

    /// Of the changes from each figure to the one at its place, in percent.
    pub fn of_changes(before: &[f64], after: &[f64]) -> Option<Self> {
        let pairs = before
            .iter()
            .zip(after)
            .filter(|(before, _)| **before > 0.0);
        let changes: Vec<f64> = pairs
            .map(|(before, after)| 100.0 * (after / before - 1.0))
            .collect();
        Self::of(&changes)
    }

    /// `low..median..high`; of a single figure that alone.
    pub fn show(&self, show: impl Fn(f64) -> String) -> String {
        match self.of {
            1 => show(self.median),
            _ => [self.low, self.median, self.high].map(show).join(".."),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::figure::{percent, rate};

    #[test]
    fn bands_have_their_ends_and_their_middle() {
        let band = Band::of(&[40.0, 60.0, 48.0]).unwrap();
        assert_eq!((band.low, band.median, band.high), (40.0, 48.0, 60.0));
        assert_eq!(band.show(|v| format!("{v:.0}")), "40..48..60");
        assert_eq!(Band::of(&[7.0]).unwrap().show(rate), "7.000");
        assert_eq!(Band::of(&[]), None);
    }

    #[test]
    fn changes_are_those_of_pairs() {
        // Each doubled, though the second before is above the first after.
        let changes = Band::of_changes(&[1.0, 10.0], &[2.0, 20.0]).unwrap();
        assert_eq!((changes.low, changes.high), (100.0, 100.0));
        assert_eq!(changes.show(percent), "+100.00%..+100.00%..+100.00%");
        assert_eq!(Band::of_changes(&[0.0], &[1.0]), None);
    }
}
