//! Figures as text, with their units.

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

/// A time with a unit that suits it.
pub fn seconds(value: f64) -> String {
    match value {
        _ if value == 0.0 => "0 s".into(),
        _ if value < 1e-3 => format!("{} µs", show(value * 1e6)),
        _ if value < 0.9995 => format!("{} ms", show(value * 1e3)),
        _ => format!("{} s", show(value)),
    }
}

/// The change from `before` to `after` in percent, as the mailing lists print it.
pub fn change(before: f64, after: f64) -> String {
    match before > 0.0 {
        true => format!("{:+.2}%", 100.0 * (after - before) / before),
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
    fn changes_as_the_lists_print_them() {
        assert_eq!(change(20_010.0, 5_719.0), "-71.42%");
        assert_eq!(change(838.0, 909.0), "+8.47%");
        assert_eq!(change(0.0, 3.0), "N/A");
        assert_eq!(change(0.0, 0.0), "+0.00%");
    }
}
