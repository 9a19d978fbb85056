//! Figures for readers.

/// The middle of the rows' figures, of two middles the mean; `None` if no row has one.
pub fn median<T>(rows: &[T], figure: impl Fn(&T) -> Option<f64>) -> Option<f64> {
    let mut figures: Vec<f64> = rows.iter().filter_map(figure).collect();
    figures.sort_by(f64::total_cmp);
    let (low, high) = (figures.len().checked_sub(1)? / 2, figures.len() / 2);
    Some((figures[low] + figures[high]) / 2.0)
}

/// A time for a reader.
pub fn seconds(value: Option<f64>) -> String {
    match value {
        None => "-".into(),
        Some(value) if value < 0.1 => format!("{:.1} ms", value * 1e3),
        Some(value) if value < 10.0 => format!("{value:.2} s"),
        Some(value) => format!("{value:.1} s"),
    }
}

/// How many times the baseline.
pub fn ratio(speed: f64, baseline: f64) -> String {
    match baseline > 0.0 {
        true => format!("{} ×", figure(speed / baseline)),
        false => "-".into(),
    }
}

/// Three figures, thousands set apart.
pub fn figure(value: f64) -> String {
    if value < 10.0 {
        return format!("{value:.2}");
    }
    if value < 100.0 {
        return format!("{value:.1}");
    }
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_for_readers() {
        assert_eq!(figure(1.0), "1.00");
        assert_eq!(figure(45.67), "45.7");
        assert_eq!(figure(123.0), "123");
        assert_eq!(figure(1_234_567.8), "1,234,568");
        assert_eq!(ratio(5.0, 0.0), "-");
    }

    #[test]
    fn medians_of_odd_and_even() {
        let of = |values: &[f64]| median(values, |&value| Some(value));
        assert_eq!(of(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(of(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(of(&[]), None);
    }
}
