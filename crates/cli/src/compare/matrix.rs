//! Bytes read and the time taken, in the shape of document 003's matrix and its ablation, and the
//! cost.

use super::cases::Cases;
use super::cells::{headings, shown, with_changes};
use crate::results::group::Group;
use crate::results::names;
use crate::results::row::Row;
use crate::table::figure::{self, or_none};
use crate::table::{Table, heading};

const GIB: f64 = (1u64 << 30) as f64;

/// `GiB read/elapsed seconds` of each case, then CPU and peak.
pub fn tables(cases: &Cases) -> String {
    let mut text = String::new();
    let names: Vec<&str> = cases.names.iter().map(String::as_str).collect();
    let variants = names::variants(&names).into_iter();
    let variants: Vec<_> = variants.map(|(at, name)| (at, name.to_owned())).collect();
    if variants.len() < cases.names.len() {
        let columns = cases.names.iter().enumerate();
        let columns: Vec<_> = columns.map(|(at, name)| (at, heading(name))).collect();
        let columns = match cases.is_two() {
            true => vec![(0, "before".to_owned()), (1, "after".to_owned())],
            false => columns,
        };
        text += &matrix(cases, &columns, "GiB read / elapsed seconds, medians");
    }
    if !variants.is_empty() {
        text += &matrix(
            cases,
            &variants,
            "Miss accounting: GiB read / elapsed seconds, medians",
        );
    }
    text + &costs(cases)
}

fn matrix(cases: &Cases, columns: &[(usize, String)], title: &str) -> String {
    let mut header = vec!["workload".to_owned(), "threads".to_owned()];
    header.extend(columns.iter().map(|(_, name)| name.clone()));
    let mut table = Table::plain(&header, 1);
    for line in &cases.lines {
        let groups: Vec<Option<&Group>> = (columns.iter())
            .map(|(at, _)| line.groups[*at].as_ref())
            .collect();
        // Memory without a file is not read.
        if line.first().key.is_anonymous() || groups.iter().all(Option::is_none) {
            continue;
        }
        let places = places(&groups);
        let mut row = vec![line.name.clone(), line.first().key.threads.to_string()];
        row.extend((0..groups.len()).map(|at| {
            cell(
                groups[at],
                groups[0].filter(|_| at > 0),
                places,
                columns.len() > 2,
            )
        }));
        table.row(row);
    }
    let ratio = match columns.len() > 2 {
        true => format!(
            "; in brackets, bytes against {}",
            columns[0].1.replace('\n', "")
        ),
        false => String::new(),
    };
    table.titled(&format!("{title}{ratio}"))
}

fn gib(group: &Group) -> Option<f64> {
    group.count(|row| row.bytes_read).map(|bytes| bytes / GIB)
}

/// As few places as tell the cases apart, and not fewer than three.
fn places(groups: &[Option<&Group>]) -> usize {
    let read = groups.iter().flatten().filter_map(|group| gib(group));
    match read.filter(|gib| *gib > 0.0).fold(f64::INFINITY, f64::min) {
        gib if gib < 0.01 => 6,
        _ => 3,
    }
}

fn cell(group: Option<&Group>, first: Option<&Group>, places: usize, ratios: bool) -> String {
    let text = group.filter(|group| !group.runs.is_empty()).map(|group| {
        let read = or_none(gib(group), |gib| format!("{gib:.places$} GiB"));
        let seconds = group.median(|row| Some(row.elapsed_s));
        let seconds = or_none(seconds, |s| format!("{s:.3}s"));
        format!("{read}/{seconds}")
    });
    let ratio = first.and_then(gib).filter(|first| ratios && *first > 0.0);
    let ratio = ratio
        .zip(group.and_then(gib))
        .map(|(first, gib)| gib / first);
    let ratio = ratio.map_or(String::new(), |ratio| format!(" ({ratio:.4})"));
    shown(group, text.map(|text| text + &ratio))
}

/// CPU time and memory.
fn costs(cases: &Cases) -> String {
    let table = |title: &str, figure: fn(&Row) -> Option<f64>, show: fn(f64) -> String| {
        let mut header = vec!["workload".to_owned(), "threads".to_owned()];
        header.extend(headings(cases, &cases.names, ["before", "after"]));
        let mut table = Table::plain(&header, 1);
        for line in &cases.lines {
            let figures = line.figures(|group| group.median(figure));
            if figures.iter().flatten().count() > 0 {
                let mut row = vec![line.name.clone(), line.first().key.threads.to_string()];
                row.extend(with_changes(line, &figures, show));
                table.row(row);
            }
        }
        table.titled(title)
    };
    let cpu = |us| format!("{} us", figure::show(us));
    let peak = |row: &Row| row.peak_bytes.map(|bytes| bytes as f64);
    table(
        "CPU time for a page touched, medians",
        Row::cpu_per_access_us,
        cpu,
    ) + &table("Peak of memory, medians", peak, figure::bytes)
}
