//! The answer as a table, as JSON, and in a line.

use super::check::{Finding, State};
use super::{run_messages, served_fault};
use crate::table::Table;

/// Columns of the widest terminal that the table uses.
const COLUMNS: u16 = 100;

/// A row for each finding; the cost of a missing feature and its remedy stand below the observation.
pub fn table(findings: &[Finding]) -> String {
    let mut table = Table::ruled(&["", "", "found"], 0..0).at_most(COLUMNS);
    for finding in findings {
        let mut text = finding.found.clone();
        for (word, part) in [("costs", &finding.costs), ("mend", &finding.mend)] {
            if let Some(part) = part {
                text += &format!("\n{word}: {part}");
            }
        }
        table.row([finding.name, finding.state.name(), &text]);
    }
    format!("{table}\n")
}

/// An array of objects.
pub fn json(findings: &[Finding]) -> String {
    let mut text = serde_json::to_string_pretty(findings).expect("findings are plain data");
    text.push('\n');
    text
}

/// Whether maps can be served.
pub fn is_served(findings: &[Finding]) -> bool {
    is_ok(findings, served_fault::NAME)
}

fn is_ok(findings: &[Finding], name: &str) -> bool {
    let mut named = findings.iter().filter(|finding| finding.name == name);
    named.any(|finding| finding.state == State::Ok)
}

/// All of it in a line.
pub fn summary(findings: &[Finding]) -> String {
    let verdict = match is_served(findings) {
        true => "Maps can be served here",
        false if is_ok(findings, run_messages::NAME) => {
            "No map can be served here, but by messages (softfault run, or SOFTFAULT_FAULTS=messages)"
        }
        false => "No map can be served here",
    };
    let named = |state| {
        let names = findings.iter().filter(|finding| finding.state == state);
        names
            .map(|finding| finding.name)
            .collect::<Vec<_>>()
            .join(", ")
    };
    let mut line = verdict.to_owned();
    for state in [State::Slower, State::Missing] {
        let names = named(state);
        if !names.is_empty() {
            line += &format!("; {}: {names}", state.name());
        }
    }
    line + ".\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(name: &'static str, state: State) -> Finding {
        Finding {
            name,
            state,
            found: "word ".repeat(60),
            costs: Some("word ".repeat(60)),
            mend: Some("word ".repeat(60)),
        }
    }

    #[test]
    fn a_table_fits_its_columns() {
        let findings = [finding("page-table-freeing", State::Missing)];
        let table = table(&findings);
        assert!(
            table
                .lines()
                .all(|line| line.chars().count() <= COLUMNS.into()),
            "{table}"
        );
    }

    #[test]
    fn the_line_names_the_lack() {
        let served = finding(served_fault::NAME, State::Ok);
        let findings = [
            served,
            finding("a", State::Slower),
            finding("b", State::Missing),
            finding("c", State::Missing),
        ];
        assert!(is_served(&findings));
        assert_eq!(
            summary(&findings),
            "Maps can be served here; slower: a; missing: b, c.\n"
        );
        assert_eq!(
            summary(&findings[1..2]),
            "No map can be served here; slower: a.\n"
        );
        let findings = [finding(run_messages::NAME, State::Ok)];
        assert!(!is_served(&findings));
        assert!(summary(&findings).contains("but by messages"));
    }
}
