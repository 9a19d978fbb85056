//! A scale for figures that may lie a factor of thousands apart.

use crate::size;
use crate::table::figure;

/// From this factor on a linear scale hides the small ones.
const LOG_FROM: f64 = 20.0;

/// Steps of a decade that are factors of about two apart.
const STEPS: [f64; 3] = [1.0, 2.0, 5.0];

/// Where a figure lies, in percent of the way. All fields immutable.
#[derive(Clone, Copy)]
pub struct Scale {
    /// Whether each step is a factor.
    pub log: bool,
    low: f64,
    high: f64,
    /// Whether ticks are powers of two apart.
    binary: bool,
}

impl Scale {
    /// A scale that holds all of `values`.
    pub fn over(values: impl Iterator<Item = f64>) -> Self {
        let above: Vec<f64> = values.filter(|value| *value > 0.0).collect();
        let least = above.iter().copied().fold(f64::INFINITY, f64::min);
        let most = above.iter().copied().fold(0.0, f64::max);
        if above.is_empty() {
            return Self {
                log: false,
                low: 0.0,
                high: 1.0,
                binary: false,
            };
        }
        let log = most / least >= LOG_FROM;
        // The least one must be seen to be there: it is a third of a decade above the start, or more.
        let low = match log {
            true => 10f64.powf((least.log10() - 1.0 / 3.0).floor()),
            false => 0.0,
        };
        Self {
            log,
            low,
            high: most,
            binary: false,
        }
    }

    /// A scale for lines, that need not begin below their lowest point.
    pub fn of_lines(values: impl Iterator<Item = f64> + Clone) -> Self {
        let least = values.clone().filter(|value| *value > 0.0);
        let least = least.fold(f64::INFINITY, f64::min);
        let mut scale = Self::over(values);
        if scale.log {
            let decade = 10f64.powf(least.log10().floor());
            let below = STEPS.map(|step| step * decade).into_iter();
            let below = below.filter(|start| *start <= least * 1.0001);
            scale.low = below.fold(decade, f64::max);
        }
        scale
    }

    /// A scale of bytes from zero.
    pub fn of_bytes(values: impl Iterator<Item = f64>) -> Self {
        Self {
            log: false,
            low: 0.0,
            high: values.fold(4.0, f64::max),
            binary: true,
        }
    }

    /// Percent of the way at which `value` lies.
    pub fn at(&self, value: f64) -> f64 {
        let part = match self.log {
            _ if value <= self.low => 0.0,
            true => (value / self.low).ln() / (self.high / self.low).ln(),
            false => value / self.high,
        };
        100.0 * part.min(1.0)
    }

    /// Figures to mark on the way, five at most.
    pub fn ticks(&self) -> Vec<f64> {
        if self.log {
            let decades = (self.high / self.low).log10();
            let (first, last) = (
                self.low.log10().floor() as i32,
                self.high.log10().floor() as i32,
            );
            // Of few decades there is room for steps within them.
            if decades < 2.0 {
                let steps = (first..=last).flat_map(|n| STEPS.map(|step| step * 10f64.powi(n)));
                let inside = |tick: &f64| *tick >= self.low * 0.999 && *tick <= self.high * 1.001;
                return steps.filter(inside).collect();
            }
            let (first, last) = (self.low.log10().round() as i32, self.high.log10() as i32);
            let step = ((last - first) / 4 + 1).max(1) as usize;
            return (first..=last)
                .step_by(step)
                .map(|n| 10f64.powi(n))
                .collect();
        }
        let rough = self.high / 4.0;
        let decade = 10f64.powf(rough.log10().floor());
        let nice = [1.0, 2.0, 2.5, 5.0, 10.0].map(|n| n * decade);
        let step = match self.binary {
            // Three steps at most: these labels are long.
            true => Some(2f64.powf((self.high / 3.5).log2().ceil())),
            false => nice.into_iter().find(|step| *step >= rough * 0.999),
        };
        let step = step.expect("ten times a decade is more than any value of that decade");
        let ticks = (0..=4).map(|n| f64::from(n) * step);
        ticks.filter(|tick| *tick <= self.high * 1.0001).collect()
    }
}

/// Bytes as a label: `8 MiB`, not `8.00 MiB`.
pub fn bytes(value: f64) -> String {
    let text = size::show(value as u64);
    text.replace(".00 ", " ").replace(".0 ", " ")
}

/// A tick's short label: `10k`, `2.5M`.
pub fn short(value: f64) -> String {
    let (value, unit) = match value {
        _ if value >= 1e9 => (value / 1e9, "G"),
        _ if value >= 1e6 => (value / 1e6, "M"),
        _ if value >= 1e3 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let text = match value.fract() == 0.0 {
        true => format!("{value:.0}"),
        false => figure::show(value),
    };
    match text.contains('.') {
        true => format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.')),
        false => format!("{text}{unit}"),
    }
}

/// A tick's label of microseconds: `10 ms`.
pub fn of_us(value: f64) -> String {
    let (value, unit) = match value {
        _ if value >= 1e6 => (value / 1e6, "s"),
        _ if value >= 1e3 => (value / 1e3, "ms"),
        _ => (value, "µs"),
    };
    format!("{} {unit}", short(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_figures_are_linear_from_zero() {
        let scale = Scale::over([0.0, 20.0, 40.0].into_iter());
        assert!(!scale.log);
        assert_eq!(
            [0.0, 20.0, 40.0, 80.0].map(|v| scale.at(v)),
            [0.0, 50.0, 100.0, 100.0]
        );
        assert_eq!(scale.ticks(), [0.0, 10.0, 20.0, 30.0, 40.0]);
    }

    #[test]
    fn far_figures_are_decades_and_the_least_is_seen() {
        let scale = Scale::over([300.0, 100_000.0, 0.0].into_iter());
        assert!(scale.log);
        assert_eq!(scale.ticks(), [100.0, 1e3, 1e4, 1e5]);
        assert!(scale.at(300.0) > 10.0 && scale.at(0.0) == 0.0 && scale.at(1e5) == 100.0);
        let wide = Scale::over([1.0, 1e12].into_iter());
        assert!(wide.ticks().len() <= 5 && wide.at(1.0) > 2.0);
    }

    #[test]
    fn lines_have_the_height_to_themselves() {
        let scale = Scale::of_lines([23_000.0, 560_000.0].into_iter());
        assert!(scale.log && scale.at(23_000.0) < 10.0);
        assert_eq!(scale.ticks(), [2e4, 5e4, 1e5, 2e5, 5e5]);
        let wide = Scale::of_lines([60.0, 9e5].into_iter());
        assert_eq!(wide.ticks(), [1e2, 1e3, 1e4, 1e5]);
    }

    #[test]
    fn nothing_has_a_scale_too() {
        let scale = Scale::over([0.0].into_iter());
        assert_eq!(scale.at(0.0), 0.0);
        assert!(!scale.ticks().is_empty());
    }

    #[test]
    fn bytes_are_marked_in_powers_of_two() {
        let scale = Scale::of_bytes([0.0, 34_603_008.0].into_iter());
        let mib = [0, 16, 32].map(|mib| f64::from(mib << 20));
        assert_eq!(scale.ticks(), mib);
    }

    #[test]
    fn short_labels() {
        assert_eq!(
            [0.0, 0.01, 0.5, 25.0, 1000.0, 2500.0, 1e6].map(short),
            ["0", "0.01", "0.5", "25", "1k", "2.5k", "1M"]
        );
        assert_eq!(
            [0.0, 0.1, 10.0, 2500.0, 1e7].map(of_us),
            ["0 µs", "0.1 µs", "10 µs", "2.5 ms", "10 s"]
        );
    }
}
