//! Figures as text, with their units: the same everywhere.

use crate::size;

/// The text where there is no figure.
pub const NONE: &str = "-";

/// A figure as `show` writes it, or that there is none.
pub fn or_none<T>(figure: Option<T>, show: impl FnOnce(T) -> String) -> String {
    figure.map_or_else(|| NONE.into(), show)
}

/// Three significant figures or all whole digits, thousands set apart; small ones keep three figures too.
pub fn show(value: f64) -> String {
    match value {
        _ if value == 0.0 => "0".into(),
        _ if value < 0.0001 => "< 0.0001".into(),
        _ if value < 0.0995 => format!("{value:.4}"),
        _ if value < 9.995 => format!("{value:.2}"),
        _ if value < 99.95 => format!("{value:.1}"),
        _ if value < 1e15 => whole(value.round() as u64),
        _ => format!("{value:.2e}"),
    }
}

/// A count, thousands set apart.
pub fn whole(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count that is a median or a mean.
pub fn rounded(value: f64) -> String {
    whole(value.round() as u64)
}

/// The same; the mean of small counts has a place more.
pub fn count(value: f64) -> String {
    match value.fract() != 0.0 && value < 99.95 {
        true => format!("{value:.1}"),
        false => rounded(value),
    }
}

/// A rate with four figures and its unit: `1.234M`.
pub fn rate(value: f64) -> String {
    let (value, unit) = match value {
        v if v >= 999_950.0 => (v / 1e6, "M"),
        v if v >= 999.95 => (v / 1e3, "k"),
        v => (v, ""),
    };
    match value {
        v if v >= 99.995 => format!("{v:.1}{unit}"),
        v if v >= 9.9995 => format!("{v:.2}{unit}"),
        v => format!("{v:.3}{unit}"),
    }
}

/// How many times as much.
pub fn times(ratio: f64) -> String {
    format!("{} ×", show(ratio))
}

/// A part of a whole, in percent.
pub fn share(part: f64) -> String {
    format!("{:.1} %", 100.0 * part)
}

/// Bytes, of a median.
pub fn bytes(value: f64) -> String {
    size::show(value as u64)
}

/// A time with a unit that suits it.
pub fn seconds(value: f64) -> String {
    match value {
        _ if value == 0.0 => "0 s".into(),
        _ if value < 1e-3 => format!("{} µs", show(value * 1e6)),
        _ if value < 0.9995 => format!("{} ms", show(value * 1e3)),
        _ => format!("{} s", show(value)),
    }
}

/// A change in percent, as the mailing lists print it.
pub fn percent(value: f64) -> String {
    format!("{value:+.2}%")
}

/// The change from `before` to `after`, likewise.
pub fn change(before: f64, after: f64) -> String {
    match before > 0.0 {
        true => percent(100.0 * (after - before) / before),
        false if after == before => "+0.00%".into(),
        false => "N/A".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_for_readers() {
        let shown = [
            0.0, 0.00001, 0.0123, 0.5, 9.994, 9.996, 99.96, 1234.5, 98697.6,
        ]
        .map(show);
        let expected = [
            "0", "< 0.0001", "0.0123", "0.50", "9.99", "10.0", "100", "1,235", "98,698",
        ];
        assert_eq!(shown, expected);
        assert_eq!(
            [0.0000123, 0.0301, 0.9996, 61.0].map(seconds),
            ["12.3 µs", "30.1 ms", "1.00 s", "61.0 s"]
        );
    }

    #[test]
    fn rates_keep_four_figures() {
        let shown = [12.0, 999.0, 12_345.0, 507_926.5, 4_885_561.0].map(rate);
        assert_eq!(shown, ["12.00", "999.0", "12.35k", "507.9k", "4.886M"]);
    }

    #[test]
    fn small_means_have_a_place_more() {
        assert_eq!(
            [2.0, 2.5, 99.96, 1234.5].map(count),
            ["2", "2.5", "100", "1,235"]
        );
        assert_eq!([1.0, 45.67].map(times), ["1.00 ×", "45.7 ×"]);
    }

    #[test]
    fn changes_as_the_lists_print_them() {
        assert_eq!(change(20_010.0, 5_719.0), "-71.42%");
        assert_eq!(change(838.0, 909.0), "+8.47%");
        assert_eq!(change(0.0, 3.0), "N/A");
        assert_eq!(change(0.0, 0.0), "+0.00%");
    }
}
