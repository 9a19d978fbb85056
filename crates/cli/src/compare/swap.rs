//! What the workloads that swap are about: how near the device's own speed, the kernel's swap and an exact LRU
//! they come, what they read and wrote for it, and how long single touches took.

use super::cases::{Cases, Line};
use super::cells::{count, headings, plain, titled, with_changes};
use crate::results::group::Group;
use crate::results::{RANGES, Row, figure, on};
use crate::size;
use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{ContentArrangement, Table};

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

/// Touches that are told apart, and what they are called.
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
    let mut table = Table::new();
    table
        .load_style(ASCII_MARKDOWN)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(HEADER);
    for (name, group) in cases.names.iter().zip(&line.groups) {
        if let Some(group) = group {
            table.add_row(cells(name, group, line));
        }
    }
    let title = format!("Memory and swap: {}, medians over the runs", line.title());
    titled(&title, &table)
}

fn cells(name: &str, group: &Group, line: &Line) -> Vec<String> {
    let Some(speed) = group.speed() else {
        let mut cells = vec![name.to_owned(), group.without().to_owned()];
        cells.resize(HEADER.len(), "-".into());
        return cells;
    };
    let against = |engine: &str| {
        let groups = line.groups.iter().flatten();
        let other = groups
            .filter(|group| on::same(group.on, engine))
            .find_map(Group::speed);
        times(
            other
                .filter(|other| *other > 0.0)
                .map(|other| speed / other),
        )
    };
    let of = |figure: fn(&Row) -> Option<f64>| group.median(figure);
    let bytes = |figure: fn(&Row) -> Option<u64>| {
        group
            .count(figure)
            .map_or("-".into(), |bytes| size::show(bytes as u64))
    };
    let percent =
        |rate: Option<f64>| rate.map_or("-".into(), |rate| format!("{:.2}", 100.0 * rate));
    let (hits, lru) = (of(|row| row.hit_rate), of(|row| row.lru_hit_rate));
    let of_lru = hits.zip(lru.filter(|lru| *lru > 0.0));
    vec![
        name.to_owned() + &group.mark(),
        format!("{} {}", figure::show(speed), group.unit()),
        against("direct"),
        against("kernel"),
        percent(hits),
        percent(lru),
        times(of_lru.map(|(hits, lru)| hits / lru)),
        bytes(|row| row.bytes_read),
        bytes(|row| row.bytes_written),
        bytes(|row| row.over_budget_bytes),
        bytes(|row| row.child_peak_rss_bytes),
    ]
}

fn times(ratio: Option<f64>) -> String {
    ratio.map_or("-".into(), |ratio| format!("{ratio:.3} x"))
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
        let mut ranges = plain(&header, 1);
        for (at, range) in RANGES.iter().enumerate() {
            let mut row = vec![range.to_string()];
            row.extend(with_changes(
                &line,
                &line.figures(|group| group.waits_in(kind, at)),
                count,
            ));
            ranges.add_row(row);
        }
        text += &titled(&format!("Time of {name}: {}", line.title()), &ranges);
    }
    text
}
