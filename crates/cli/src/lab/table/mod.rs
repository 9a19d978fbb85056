//! The closing tables: a line for each workload, pattern, number of threads and engine, with medians over
//! the repeats and the speed relative to the first engine of the list. `rounds`, `waits`, `swap` and `huge` have
//! others, of the workloads that there is more to say of.

mod huge;
mod rounds;
mod swap;
mod waits;

use super::plan::Workload;
use crate::results::group::{Group, Key, group};
use crate::results::on::On;
use crate::results::row::Row;
use crate::table::Table;
use crate::table::figure::{bytes, or_none, seconds, show, times};
use clap::ValueEnum;

/// All tables that there is something to say in, under one another.
pub fn tables(rows: &[Row]) -> String {
    let groups = group(rows);
    let more = [
        rounds::table(&groups),
        waits::table(&groups),
        swap::table(&groups),
        huge::table(&groups),
    ];
    let all = std::iter::once(table(&groups)).chain(more.into_iter().flatten());
    all.map(|table| format!("{table}\n")).collect()
}

/// The first of them, and that of rounds.
pub fn short(rows: &[Row]) -> String {
    let groups = group(rows);
    let rounds = rounds::table(&groups).map(|table| format!("{table}\n"));
    format!("{}\n{}", table(&groups), rounds.unwrap_or_default())
}

fn table(groups: &[Group]) -> Table {
    let header = [
        "workload", "pattern", "on", "time", "speed", "ratio", "read", "CPU", "peak", "",
    ];
    let mut table = Table::ruled(&header, 3..9);
    for group in groups {
        table.row(line(group, groups));
    }
    table
}

fn line(group: &Group, all: &[Group]) -> Vec<String> {
    let first = all.iter().find(|other| other.key == group.key);
    let baseline = first.and_then(Group::speed).filter(|speed| *speed > 0.0);
    let ratio = group.speed().zip(baseline);
    let touched = match group.unit() {
        "touches/s" => "touch",
        _ => "page",
    };
    let cpu = |us: f64| format!("{us:.1} µs/{touched}");
    vec![
        group.key.workload.into(),
        pattern(group.key, all),
        group.on.into(),
        or_none(group.median(|row| Some(row.elapsed_s)), seconds),
        or_none(group.speed(), |speed| {
            format!("{} {}", show(speed), group.unit())
        }),
        or_none(ratio, |(speed, baseline)| times(speed / baseline)),
        or_none(group.count(|row| row.bytes_read), bytes),
        or_none(group.median(Row::cpu_per_access_us), cpu),
        or_none(group.count(|row| row.peak_bytes), bytes),
        match group.skipped {
            Some(_) => "not run".into(),
            None => group.remarks(),
        },
    ]
}

/// Pattern and, where the workload's rows differ in it, number of threads.
fn pattern(key: Key, all: &[Group]) -> String {
    let other =
        |other: &Group| other.key.workload == key.workload && other.key.threads != key.threads;
    match all.iter().any(other) {
        true => format!("{} ×{}", key.pattern, key.threads),
        false => key.pattern.into(),
    }
}

/// How far the kernel's rows read ahead, of files and of swap, which decides most of their figures; a line for each
/// that there are rows of.
pub fn read_ahead(rows: &[Row]) -> String {
    let files = rows.iter().filter(|row| reads_ahead(row));
    let files = told(files.filter_map(|row| row.read_ahead_kb).collect(), |kb| {
        format!("the kernel reads {kb} KiB ahead on this device")
    });
    let swaps = rows
        .iter()
        .filter(|row| row.skipped.is_none() && row.on.parse().is_ok_and(On::is_kernel));
    let swaps = told(
        swaps.filter_map(|row| row.page_cluster).collect(),
        |cluster| format!("the kernel swaps in by vm.page-cluster {cluster}"),
    );
    files + &swaps
}

/// A line that tells of values, each once; nothing of none.
fn told(mut values: Vec<u32>, tell: impl Fn(&str) -> String) -> String {
    values.sort_unstable();
    values.dedup();
    let values: Vec<String> = values.iter().map(u32::to_string).collect();
    match &values[..] {
        [] => String::new(),
        [one] => tell(one) + "\n",
        [most @ .., last] => {
            let all = format!("{} and {last}", most.join(", "));
            format!("{}; each row has its own\n", tell(&all))
        }
    }
}

/// Whether the kernel read ahead, as far as the device says.
fn reads_ahead(row: &Row) -> bool {
    let reads = Workload::from_str(&row.workload, false).is_ok_and(Workload::reads_files);
    reads && row.on.parse().is_ok_and(On::reads_ahead)
}

/// The notes of all rows, each once.
pub fn notes(rows: &[Row]) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    for row in rows {
        for note in &row.notes {
            let note = format!("{}: {note}", row.on);
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
    }
    notes
}
