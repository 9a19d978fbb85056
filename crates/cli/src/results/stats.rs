//! Means, medians and whether a difference is more than noise.

use statrs::distribution::{ContinuousCDF, StudentsT};

/// A difference that chance brings about less often than this is marked.
pub const LEVEL: f64 = 0.05;

/// The middle, of two middles the mean; `None` of nothing.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let (low, high) = (values.len().checked_sub(1)? / 2, values.len() / 2);
    Some((values[low] + values[high]) / 2.0)
}

/// The harmonic mean, the right one for rates over equal work; zero if a rate is; `None` of nothing.
pub fn harmonic_mean(rates: &[f64]) -> Option<f64> {
    let times: f64 = rates.iter().map(|rate| 1.0 / rate).sum();
    (!rates.is_empty()).then(|| rates.len() as f64 / times)
}

/// The verdict about a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Chance alone would rarely bring it about.
    Differ,
    /// It may be noise.
    Noise,
    /// The runs do not tell.
    CannotTell,
}

/// Whether the rates differ by more than the noise between runs: Welch's t-test, two-sided, on the times
/// per unit of work (which a harmonic mean averages). One run on a side tells nothing, and a rate of zero
/// has no time.
pub fn judge(before: &[f64], after: &[f64]) -> Verdict {
    let times = |rates: &[f64]| rates.iter().map(|rate| 1.0 / rate).collect::<Vec<_>>();
    let zero = before.iter().chain(after).any(|&rate| rate <= 0.0);
    if zero || before.len().min(after.len()) < 2 {
        return Verdict::CannotTell;
    }
    match differ(&times(before), &times(after)) {
        true => Verdict::Differ,
        false => Verdict::Noise,
    }
}

/// Welch's t-test; two values or more a side.
fn differ(before: &[f64], after: &[f64]) -> bool {
    let ((mean_a, error_a), (mean_b, error_b)) = (mean(before), mean(after));
    let error = error_a + error_b;
    if error == 0.0 {
        return mean_a != mean_b;
    }
    let t = (mean_a - mean_b).abs() / error.sqrt();
    let part = |error: f64, n: usize| error * error / (n - 1) as f64;
    // Welch and Satterthwaite's degrees of freedom.
    let freedom = error * error / (part(error_a, before.len()) + part(error_b, after.len()));
    match StudentsT::new(0.0, 1.0, freedom) {
        Ok(student) => 2.0 * (1.0 - student.cdf(t)) < LEVEL,
        // So small a spread that its square is lost: any difference is beyond it.
        Err(_) => mean_a != mean_b,
    }
}

/// The mean, and the square of its standard error.
fn mean(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, squares / (n - 1.0) / n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_even_and_none() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(vec![]), None);
    }

    #[test]
    fn the_harmonic_mean_is_of_the_whole_way() {
        // There at 40, back at 60: 48 on the whole.
        assert!((harmonic_mean(&[40.0, 60.0]).unwrap() - 48.0).abs() < 1e-9);
        assert_eq!(harmonic_mean(&[40.0, 0.0]), Some(0.0));
        assert_eq!(harmonic_mean(&[]), None);
    }

    /// A textbook's samples, with p = 0.021 (27.5 … against 27.1 …), and noise that stays noise.
    #[test]
    fn welch_marks_changes_beyond_the_noise() {
        let a = [
            27.5, 21.0, 19.0, 23.6, 17.0, 17.9, 16.9, 20.1, 21.9, 22.6, 23.1, 19.6, 19.0, 21.7,
            21.4,
        ];
        let b = [
            27.1, 22.0, 20.8, 23.4, 23.4, 23.5, 25.8, 22.0, 24.8, 20.2, 21.9, 22.1, 22.9, 30.5,
            24.4,
        ];
        assert!(differ(&a, &b));
        assert!(!differ(&a[..3], &b[..3]));
        use Verdict::{Differ, Noise};
        assert_eq!(judge(&[100.0, 101.0, 99.0], &[110.0, 111.0, 109.0]), Differ);
        assert_eq!(judge(&[100.0, 130.0, 80.0], &[110.0, 140.0, 90.0]), Noise);
    }

    /// The level is p < 0.05: with t(4) = 2.776, three runs a side that spread by d (deviation d) differ
    /// from 2.267 d on.
    #[test]
    fn the_level_is_where_students_table_has_it() {
        let around = |mean: f64| [mean - 1.0, mean, mean + 1.0];
        assert!(!differ(&around(10.0), &around(12.26)));
        assert!(differ(&around(10.0), &around(12.28)));
    }

    #[test]
    fn one_run_zero_rates_and_equal_runs_are_judged_without_a_spread() {
        use Verdict::{CannotTell, Differ, Noise};
        assert_eq!(judge(&[1.0], &[1000.0, 1001.0]), CannotTell);
        assert_eq!(judge(&[], &[1000.0, 1001.0]), CannotTell);
        assert_eq!(judge(&[0.0, 0.0], &[1000.0, 1001.0]), CannotTell);
        assert_eq!(judge(&[2.0, 2.0], &[3.0, 3.0]), Differ);
        assert_eq!(judge(&[2.0, 2.0], &[2.0, 2.0]), Noise);
    }
}
