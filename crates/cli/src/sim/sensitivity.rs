//! How far policies' rates depend on each cost of the machine: what they are, as multiples of the first policy's, with
//! that cost halved and doubled.

use super::plan::FACTORS;
use super::rates::{Rate, distinct, rates, title};
use super::row::simulated;
use crate::results::row::Row;
use crate::table::figure::times;
use crate::table::{Table, heading};

/// A multiple that differs by less than this part of it is as it was.
const SAME: f64 = 0.01;

/// Machines that are named, at most.
const FEW: usize = 3;

/// A cost, and the multiples of each policy but the first, for each of `FACTORS`; `None` where a run failed.
type Line = (String, Vec<[Option<f64>; 2]>);

/// The table of one workload's rows.
pub fn table(rows: &[Row]) -> String {
    let policies = distinct(rows, |row| simulated(row).policy.clone());
    let rate = rates(&rows[0].workload)
        .last()
        .expect("each workload has a rate");
    let multiple = |policy: &String, cost: Option<(String, f64)>| {
        let of = |policy: &String| figure(rows, policy, &cost, rate);
        Some(of(policy)? / of(&policies[0])?)
    };
    let as_is: Vec<Option<f64>> = policies[1..]
        .iter()
        .map(|policy| multiple(policy, None))
        .collect();
    let costs = distinct(rows, |row| {
        simulated(row).changed_cost.clone().map(|(name, _)| name)
    });
    let mut lines: Vec<Line> = costs
        .into_iter()
        .flatten()
        .map(|cost| {
            let of = |policy| FACTORS.map(|factor| multiple(policy, Some((cost.clone(), factor))));
            let multiples = policies[1..].iter().map(of).collect();
            (cost, multiples)
        })
        .collect();
    lines.sort_by(|a, b| largest_change(&b.1, &as_is).total_cmp(&largest_change(&a.1, &as_is)));

    let mut header = vec!["cost".to_owned()];
    for policy in &policies[1..] {
        header.extend([format!("{}, halved", heading(policy)), "doubled".to_owned()]);
    }
    let mut table = Table::plain(&header, 1);
    let mut first = vec!["as the machine has them".to_owned()];
    first.extend(
        as_is
            .iter()
            .flat_map(|multiple| [show(*multiple), String::new()]),
    );
    table.row(first);
    let (matter, same): (Vec<&Line>, Vec<&Line>) = lines
        .iter()
        .partition(|line| largest_change(&line.1, &as_is) >= SAME || failed(rows, &line.0));
    for (cost, multiples) in matter {
        let mut cells = vec![cost.clone()];
        cells.extend(multiples.iter().flatten().map(|multiple| show(*multiple)));
        table.row(cells);
    }
    let over = format!(
        "{}, {} cores; {} as multiples of {}",
        title(rows),
        simulated(&rows[0]).cores,
        rate.0,
        policies[0]
    );
    let mut text = table.titled(&over);
    if !same.is_empty() {
        let names: Vec<&str> = same.iter().map(|(name, _)| &name[..]).collect();
        text += &format!("\nLess than {} %: {}\n", 100.0 * SAME, names.join(", "));
    }
    for (at, policy) in policies[1..].iter().enumerate() {
        text += &verdict(policy, &policies[0], at, as_is[at], &lines);
    }
    text
}

/// A rate of the run with this cost changed.
fn figure(rows: &[Row], policy: &str, cost: &Option<(String, f64)>, rate: &Rate) -> Option<f64> {
    let run = rows.iter().find(|row| {
        let of = simulated(row);
        of.policy == policy && of.changed_cost == *cost && row.error.is_none()
    });
    run.map(rate.1).filter(|figure| *figure > 0.0)
}

/// By how much any of the multiples differs, as a part of what it is with the machine's costs.
fn largest_change(multiples: &[[Option<f64>; 2]], as_is: &[Option<f64>]) -> f64 {
    let pairs = multiples.iter().zip(as_is);
    let changes = pairs
        .flat_map(|(both, as_is)| both.map(|multiple| Some((multiple? / (*as_is)? - 1.0).abs())));
    changes.flatten().fold(0.0, f64::max)
}

/// Whether a run with this cost changed has failed.
fn failed(rows: &[Row], cost: &str) -> bool {
    rows.iter().any(|row| {
        let changed = simulated(row).changed_cost.as_ref();
        row.error.is_some() && changed.is_some_and(|(name, _)| name == cost)
    })
}

/// The range over all machines, and what it says.
fn verdict(policy: &str, first: &str, at: usize, as_is: Option<f64>, lines: &[Line]) -> String {
    let of = |line: &Line| {
        let named = FACTORS.into_iter().zip(line.1[at]);
        let named = named.filter_map(|(factor, multiple)| Some((multiple?, factor)));
        let named = named.map(|(multiple, factor)| (multiple, format!("{} × {factor}", line.0)));
        named.collect::<Vec<_>>()
    };
    let Some(as_is) = as_is else {
        return format!("\n{policy}: the run failed with the machine's own costs\n");
    };
    let changed: Vec<(f64, String)> = lines.iter().flat_map(of).collect();
    let all = || changed.iter().map(|(multiple, _)| *multiple).chain([as_is]);
    let low = all().fold(f64::INFINITY, f64::min);
    let high = all().fold(f64::NEG_INFINITY, f64::max);
    let count = all().count();
    let faster = all().filter(|multiple| *multiple > 1.0).count();
    // The few machines that turn the result round have names.
    let others = (changed.iter()).filter(|(multiple, _)| (*multiple > 1.0) != (as_is > 1.0));
    let others: Vec<&str> = others.map(|(_, name)| &name[..]).collect();
    let names = match (others.len(), as_is > 1.0) {
        (1..=FEW, true) => format!(", not with {}", others.join(", ")),
        (1..=FEW, false) => format!(", with {}", others.join(", ")),
        _ => String::new(),
    };
    let holds = format!("faster than {first} on {faster} of {count} machines{names}");
    format!("{policy}: {} to {}; {holds}\n", times(low), times(high))
}

fn show(multiple: Option<f64>) -> String {
    multiple.map_or("-".to_owned(), times)
}
