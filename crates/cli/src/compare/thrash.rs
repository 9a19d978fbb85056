//! Workloads in rounds, in the shape of document 000's table.

use super::pairs::Sides;
use super::titled;
use crate::results::Row;
use crate::results::figure;
use crate::results::group::Group;
use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{ContentArrangement, Table};

/// Two lines for each pair that has rounds; nothing if none has.
pub fn table(sides: &Sides) -> String {
    let mut table = Table::new();
    table
        .load_style(ASCII_MARKDOWN)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header([
            "Case",
            "Total Rounds",
            "Throughput",
            "Miss/Drop(%)",
            "RETRY_MMAP_DROP",
            "RETRY_IO_MISS",
        ]);
    for pair in &sides.pairs {
        let groups = [&pair.before, &pair.after];
        let rounds = |group: &&Group| group.count(|row| row.rounds).is_some();
        if !groups.iter().any(rounds) {
            continue;
        }
        for (group, side) in groups.into_iter().zip(&sides.names) {
            table.add_row(line(format!("{} ({side})", sides.name(pair)), group));
        }
    }
    match table.row_count() {
        0 => String::new(),
        _ => titled("Rounds and retries, medians", &table),
    }
}

fn line(case: String, group: &Group) -> Vec<String> {
    let count = |count: fn(&Row) -> Option<u64>| {
        let count = group.count(count);
        count.map_or("-".into(), |count| figure::whole(count.round() as u64))
    };
    let given_up = if group.gave_up() > 0 {
        ", given up"
    } else {
        ""
    };
    let speed = group.median(|row| row.rounds_per_s);
    let ratio = group.median(Row::miss_per_drop);
    vec![
        format!("{case}{given_up}"),
        count(|row| row.rounds),
        speed.map_or("-".into(), |speed| format!("{speed:.2} /s")),
        ratio.map_or("-".into(), |percent| format!("{percent:.2}")),
        count(|row| row.retry_mmap_drop),
        count(|row| row.retry_io_miss),
    ]
}
