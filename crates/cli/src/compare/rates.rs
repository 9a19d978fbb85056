//! Speeds, in the shape of mmtests' comparisons.

use super::pairs::{Pair, Sides};
use super::{plain, titled};
use crate::results::Row;
use crate::results::stats::{harmonic_mean, rates_differ};

/// A line for each pair that has rates.
pub fn table(sides: &Sides) -> String {
    let [before, after] = &sides.names;
    let mut table = plain(&["", "", before, "", after, ""], 2);
    let mut few_runs = false;
    for pair in &sides.pairs {
        if let Some(line) = line(sides, pair) {
            few_runs |= pair.before.runs.len().min(pair.after.runs.len()) < 2;
            table.add_row(line);
        }
    }
    if table.row_count() == 0 {
        return String::new();
    }
    let mut text = titled(
        "Rates, harmonic means over the runs; more is better",
        &table,
    );
    text += match few_runs {
        true => "\nA side with a single run is never marked: its noise is not known.\n",
        false => "",
    };
    text
}

fn line(sides: &Sides, pair: &Pair) -> Option<Vec<String>> {
    let (before, after) = (
        pair.before.values(Row::speed),
        pair.after.values(Row::speed),
    );
    let (mean_before, mean_after) = (harmonic_mean(&before)?, harmonic_mean(&after)?);
    let unit = pair.after.unit();
    let threads = pair.before.key.threads;
    let change = match mean_before > 0.0 {
        true => format!("{:7.2}%", 100.0 * (mean_after / mean_before - 1.0)),
        false => format!("{:>8}", "N/A"),
    };
    let change = match rates_differ(&before, &after) {
        true => format!("*{change}*"),
        false => format!("({change})"),
    };
    Some(vec![
        "Hmean".into(),
        format!("{} {unit}-{threads}", sides.name(pair)),
        format!("{mean_before:.4}"),
        "(   0.00%)".into(),
        format!("{mean_after:.4}"),
        change,
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::parse;

    /// Two runs at each of the speeds.
    fn rows(on: &str, speeds: &[f64]) -> Vec<Row> {
        let row = |speed: &f64| {
            format!(
                r#"{{"workload":"pft","pattern":"own","on":"{on}","threads":4,"accesses":1,
                    "elapsed_s":1,"accesses_per_s":{speed}}}"#
            )
        };
        let rows: Vec<String> = speeds.iter().map(row).collect();
        parse(&format!("[{}]", rows.join(","))).unwrap()
    }

    fn compared(before: &[f64], after: &[f64]) -> String {
        let (before, after) = (rows("soft", before), rows("soft", after));
        table(&Sides::new(&before, &after, &[], ["a".into(), "b".into()]))
    }

    #[test]
    fn changes_beyond_the_noise_are_marked_and_others_are_not() {
        let text = compared(&[100.0, 101.0, 99.0], &[111.0, 110.0, 112.0]);
        assert!(
            text.contains("Hmean") && text.contains("pft own soft pages/s-4"),
            "{text}"
        );
        assert!(text.contains("*  11.00%*"), "{text}");
        let text = compared(&[100.0, 140.0, 80.0], &[111.0, 150.0, 90.0]);
        assert!(!text.contains("%*") && text.contains("%)"), "{text}");
        let text = compared(&[100.0], &[200.0]);
        assert!(
            text.contains("( 100.00%)") && text.contains("single run"),
            "{text}"
        );
        let text = compared(&[0.0, 0.0], &[200.0, 201.0]);
        assert!(text.contains("N/A)"), "{text}");
    }
}
