//! The comparison of the workloads that swap: how near direct reads and writes, the kernel's swap and an exact LRU
//! they come, their reads and writes for it, and how long single touches took.

use super::cases::{Cases, Line};
use super::cells::{headings, with_changes};
use crate::results::group::Group;
use crate::results::row::{RANGES, Row};
use crate::table::Table;
use crate::table::figure::{NONE, bytes, count, or_none, show};

const HEADER: [&str; 11] = [
    "Case",
    "Speed",
    "of direct",
    "of kernel",
    "In memory(%)",
    "LRU(%)",
    "of LRU",
    "Read",
    "Written",
    "Over budget",
    "Child's peak",
];

/// Kinds of touches, and their names.
const TOUCHES: [(&str, &str); 4] = [
    ("touch", "touches"),
    ("priority_touch", "high-priority touches"),
    ("fork_touch", "touches at the fork"),
    ("walk_touch", "touches in the walk"),
];

/// The tables of all work that swaps.
pub fn tables(cases: &Cases) -> String {
    let lines = cases.lines.iter().filter(|line| line.first().key.swaps());
    let of = |line: &Line| table(cases, line) + &distributions(cases, line);
    lines.map(of).collect()
}

/// A line for each case.
fn table(cases: &Cases, line: &Line) -> String {
    let mut table = Table::markdown(&HEADER);
    for (name, group) in cases.names.iter().zip(&line.groups) {
        if let Some(group) = group {
            table.row(cells(name, group, line));
        }
    }
    let title = format!("Memory and swap: {}, medians over the runs", line.title());
    table.titled(&title)
}

fn cells(name: &str, group: &Group, line: &Line) -> Vec<String> {
    let Some(speed) = group.speed() else {
        let mut cells = vec![name.to_owned(), group.without().to_owned()];
        cells.resize(HEADER.len(), NONE.into());
        return cells;
    };
    let others: Vec<&Group> = line.groups.iter().flatten().collect();
    let against = |engine: &str| times(group.against(&others, engine));
    let of = |figure: fn(&Row) -> Option<f64>| group.median(figure);
    let of_bytes = |figure: fn(&Row) -> Option<u64>| or_none(group.count(figure), bytes);
    let percent = |rate: Option<f64>| or_none(rate, |rate| format!("{:.2}", 100.0 * rate));
    let (hits, lru) = (of(|row| row.hit_rate), of(|row| row.lru_hit_rate));
    let of_lru = hits.zip(lru.filter(|lru| *lru > 0.0));
    vec![
        name.to_owned() + &group.mark(),
        format!("{} {}", show(speed), group.unit()),
        against("direct"),
        against("kernel"),
        percent(hits),
        percent(lru),
        times(of_lru.map(|(hits, lru)| hits / lru)),
        of_bytes(|row| row.bytes_read),
        of_bytes(|row| row.bytes_written),
        of_bytes(|row| row.over_budget_bytes),
        of_bytes(|row| row.child_peak_rss_bytes),
    ]
}

fn times(ratio: Option<f64>) -> String {
    or_none(ratio, |ratio| format!("{ratio:.3} x"))
}

/// How long touches took, in document 002's ranges.
fn distributions(cases: &Cases, line: &Line) -> String {
    let mut text = String::new();
    for (kind, name) in TOUCHES {
        let (names, line) = cases.narrowed(line, |group| group.waits_in(kind, 0).is_some());
        if line
            .groups
            .iter()
            .flatten()
            .all(|group| group.waits_in(kind, 0).is_none())
        {
            continue;
        }
        let mut header = vec!["Range (us)".to_owned()];
        header.extend(headings(cases, &names, ["Before (Avg)", "After (Avg)"]));
        let mut ranges = Table::plain(&header, 1);
        for (at, range) in RANGES.iter().enumerate() {
            let mut row = vec![range.to_string()];
            row.extend(with_changes(
                &line,
                &line.figures(|group| group.waits_in(kind, at)),
                count,
            ));
            ranges.row(row);
        }
        text += &ranges.titled(&format!("Time of {name}: {}", line.title()));
    }
    text
}
