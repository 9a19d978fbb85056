//! Speeds, in the shape of mmtests' comparisons, which is that of document 004.

use super::cases::{Cases, Line};
use super::cells::shown;
use crate::results::group::{Group, Rate, speed_of};
use crate::results::row::Row;
use crate::results::stats::{Verdict, harmonic_mean, judge};
use crate::table::{Table, heading};

/// Rates that have lines of their own, as document 004 calls them.
const NAMED: [(&str, Rate); 3] = [
    ("faults/cpu", Row::faults_per_cpu),
    ("faults/sec", Row::fault_rate),
    ("maps/sec", |row| row.maps_per_s),
];

/// A line for each rate of each work, workload by workload, rate by rate, threads going up.
pub fn table(cases: &Cases) -> String {
    let names = cases
        .names
        .iter()
        .flat_map(|name| [heading(name), String::new()]);
    let header: Vec<String> = [String::new(), String::new()]
        .into_iter()
        .chain(names)
        .collect();
    let mut table = Table::plain(&header, 2);
    let (mut starred, mut untold) = (false, false);
    for lines in alike(&cases.lines) {
        for (name, rate) in rates(&lines) {
            for line in &lines {
                if let Some(row) = row(line, &name, rate) {
                    starred |= row.iter().any(|cell| cell.starts_with('*'));
                    untold |= row.iter().any(|cell| cell.starts_with('?'));
                    table.row(row);
                }
            }
        }
    }
    let mut text = table.titled("Rates, harmonic means over the runs; more is better");
    if starred || untold {
        text += "\n";
    }
    if starred {
        text += "*..*  beyond the noise between runs: Welch's t-test, two-sided, p < 0.05\n";
    }
    if untold {
        text += "?..?  not known: it takes two runs or more on each side, ended and above zero\n";
    }
    text
}

/// Lines of the same work that differ in threads, brought together, threads going up.
fn alike<'l, 'a>(lines: &'l [Line<'a>]) -> Vec<Vec<&'l Line<'a>>> {
    let mut sets: Vec<Vec<&Line>> = Vec::new();
    for line in lines {
        match sets.iter_mut().find(|set| set[0].name == line.name) {
            Some(set) => set.push(line),
            None => sets.push(vec![line]),
        }
    }
    for set in &mut sets {
        set.sort_by_key(|line| line.first().key.threads);
    }
    sets
}

/// The rates that any of the lines has; a workload without faults has its speed.
fn rates(lines: &[&Line]) -> Vec<(String, Rate)> {
    let groups = || lines.iter().flat_map(|line| line.groups.iter().flatten());
    let any = |rate: Rate| groups().any(|group| !group.values(rate).is_empty());
    let mut rates: Vec<(String, Rate)> = Vec::new();
    if !any(Row::fault_rate) {
        let (unit, speed) = speed_of(&groups().collect::<Vec<_>>());
        rates.push((unit.into(), speed));
    }
    let named = NAMED.iter().filter(|(_, rate)| any(*rate));
    rates.extend(named.map(|&(name, rate)| (name.to_owned(), rate)));
    rates
}

/// Mean and change of each case; `None` if none has the rate.
fn row(line: &Line, name: &str, rate: Rate) -> Option<Vec<String>> {
    let values = |group: &Option<Group>| group.as_ref().map(|group| group.values(rate));
    let values: Vec<Vec<f64>> = (line.groups.iter())
        .map(|group| values(group).unwrap_or_default())
        .collect();
    if values.iter().all(Vec::is_empty) {
        return None;
    }
    let threads = line.first().key.threads;
    let mut row = vec!["Hmean".into(), format!("{} {name}-{threads}", line.name)];
    for (at, group) in line.groups.iter().enumerate() {
        let mean = harmonic_mean(&values[at]);
        row.push(shown(group.as_ref(), mean.map(|mean| format!("{mean:.4}"))));
        row.push(match at {
            0 => mean.map_or(String::new(), |_| "(   0.00%)".into()),
            _ => change(line, at, &values[0], &values[at]),
        });
    }
    Some(row)
}

fn change(line: &Line, at: usize, before: &[f64], after: &[f64]) -> String {
    let (Some(mean), Some(first)) = (harmonic_mean(after), harmonic_mean(before)) else {
        return String::new();
    };
    let change = match first > 0.0 {
        true => format!("{:7.2}%", 100.0 * (mean / first - 1.0)),
        false => format!("{:>8}", "N/A"),
    };
    // A run that was given up might have gone on at another speed than it began.
    let sides = [&line.groups[0], &line.groups[at]];
    let ended = sides
        .into_iter()
        .flatten()
        .all(|group| group.gave_up() == 0);
    match judge(before, after) {
        Verdict::Differ if ended => format!("*{change}*"),
        Verdict::Noise if ended => format!("({change})"),
        _ => format!("?{change}?"),
    }
}
