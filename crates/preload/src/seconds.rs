//! A number of seconds, as an option has it. The command has this file too.

use core::time::Duration;

/// Of `10`, or `0.5`; at least a hundredth, and at most a year.
pub fn seconds(text: &str) -> Option<Duration> {
    const RANGE: core::ops::RangeInclusive<f64> = 0.01..=365.0 * 24.0 * 3600.0;
    let seconds = text.parse::<f64>().ok()?;
    RANGE
        .contains(&seconds)
        .then(|| Duration::from_secs_f64(seconds))
}
