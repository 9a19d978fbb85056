//! A section's figures as a table.

use super::engines::Engines;
use crate::results::group::Group;
use crate::results::row::Row;
use crate::table::figure;
use maud::{Markup, html};

const HEADER: [&str; 17] = [
    "speed",
    "ratio",
    "faults/CPU s",
    "maps",
    "time",
    "read",
    "written",
    "read/used",
    "in memory",
    "LRU",
    "CPU/page",
    "peak",
    "over budget",
    "child's peak",
    "ahead, used",
    "retries",
    "folio gone",
];

/// A figure that does not apply, or that the machine does not tell.
const DASH: &str = "–";

/// The table; ratios are against the first engine of the same row.
pub fn table(groups: &[&Group], engines: &Engines) -> Markup {
    // A column that no engine here has says nothing, and of memory without a file nothing is read.
    let nothing = |text: &str| match groups[0].key.is_anonymous() {
        true => [DASH, "0", "0 B", "0 ×"].contains(&text),
        false => text == DASH,
    };
    let lines: Vec<_> = (groups.iter())
        .map(|group| figures(group, groups[first_like(groups, group)]))
        .collect();
    let has = |at: &usize| lines.iter().any(|line| !nothing(&line[*at]));
    let columns: Vec<usize> = (0..HEADER.len()).filter(has).collect();
    let remarks = groups.iter().any(|group| !group.remarks().is_empty());
    html! {
        div.scroll tabindex="0" role="region" aria-label="All figures" {
            table {
                thead { tr {
                    th scope="col" { "pattern" }
                    th scope="col" { "threads" }
                    th scope="col" { "on" }
                    @for &at in &columns { th.figure scope="col" { (HEADER[at]) } }
                    @if remarks { th scope="col" { "remarks" } }
                } }
                tbody {
                    @for (at, group) in groups.iter().enumerate() {
                        @let first = first_like(groups, group);
                        tr.first[at > 0 && first == at] {
                            td { (group.key.variant()) }
                            td.figure { (group.key.threads) }
                            th scope="row" { (engines.mark(group.on)) (group.on) }
                            @for &column in &columns { td.figure { (lines[at][column]) } }
                            @if remarks { td { (group.remarks()) } }
                        }
                    }
                }
            }
        }
    }
}

fn first_like(groups: &[&Group], group: &Group) -> usize {
    let first = groups.iter().position(|other| other.key == group.key);
    first.expect("a group is like itself")
}

fn figures(group: &Group, first: &Group) -> [String; HEADER.len()] {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| DASH.into());
    let bytes = |bytes: Option<f64>| or_dash(bytes.map(figure::bytes));
    let count = |count: Option<f64>| or_dash(count.map(figure::rounded));
    let percent = |rate: Option<f64>| or_dash(rate.map(figure::share));
    let speed = group.speed();
    let ratio = match (speed, first.speed()) {
        (Some(speed), Some(base)) if base > 0.0 && group.unit() == first.unit() => {
            Some(figure::times(speed / base))
        }
        _ => None,
    };
    let used = group.median(|row| match row.readahead_pages? {
        0 => None,
        pages => Some(100.0 * row.readahead_used? as f64 / pages as f64),
    });
    [
        or_dash(speed.map(|speed| format!("{} {}", figure::show(speed), group.unit()))),
        or_dash(ratio),
        count(group.median(Row::faults_per_cpu)),
        or_dash(
            group
                .median(|row| row.maps_per_s)
                .map(|maps| format!("{} /s", figure::show(maps))),
        ),
        or_dash(group.median(|row| Some(row.elapsed_s)).map(figure::seconds)),
        bytes(group.count(|row| row.bytes_read)),
        bytes(
            group
                .count(|row| row.bytes_written)
                .filter(|_| group.key.swaps()),
        ),
        or_dash(group.median(Row::read_per_used).map(figure::times)),
        percent(group.median(|row| row.hit_rate)),
        percent(group.median(|row| row.lru_hit_rate)),
        or_dash(
            group
                .median(Row::cpu_per_access_us)
                .map(|us| format!("{} µs", figure::show(us))),
        ),
        bytes(group.count(|row| row.peak_bytes)),
        bytes(group.count(|row| row.over_budget_bytes)),
        bytes(group.count(|row| row.child_peak_rss_bytes)),
        or_dash(used.map(|percent| format!("{} %", figure::show(percent)))),
        count(group.count(|row| row.retry_mmap_drop)),
        or_dash(group.count(|row| row.retry_io_miss).map(|gone| {
            let percent = group
                .median(Row::miss_per_drop)
                .filter(|percent| *percent > 0.0);
            let percent = percent.map(|percent| format!(", {} %", figure::show(percent)));
            figure::rounded(gone) + &percent.unwrap_or_default()
        })),
    ]
}
