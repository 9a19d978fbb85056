//! The second table, of the workloads that time single operations: what each waited at most in any of
//! the repeats, and how many mappings were made meanwhile.

use super::figure::{figure, median};
use super::{Group, align_right, empty, group, pattern};
use crate::lab::row::Row;
use crate::lab::waits::LongestWaits;
use comfy_table::{Cell, Table};

/// The table over `rows`, if any of them has timed anything.
pub fn waits(rows: &[Row]) -> Option<Table> {
    let timed = |group: &Group| group.iter().any(|row| row.longest_waits.is_some());
    let groups: Vec<Group> = group(rows).into_iter().filter(timed).collect();
    let first = groups.first()?[0];
    let mut table = empty([
        "longest wait",
        "pattern",
        "on",
        "touch",
        "priority touch",
        "map",
        "unmap",
        "fork",
        "maps",
    ]);
    let differ = groups.iter().any(|group| group[0].threads != first.threads);
    for group in &groups {
        table.add_row(line(group, differ));
    }
    align_right(&mut table, 3..9);
    Some(table)
}

fn line(rows: &Group, threads_differ: bool) -> Vec<Cell> {
    let row = rows[0];
    let longest = |of: fn(&LongestWaits) -> Option<f64>| {
        let waits = rows
            .iter()
            .filter_map(|row| of(row.longest_waits.as_ref()?));
        Cell::new(waits.max_by(f64::total_cmp).map_or("-".into(), time))
    };
    let maps = median(rows, |row| row.maps_per_s);
    vec![
        Cell::new(row.workload),
        Cell::new(pattern(row, threads_differ)),
        Cell::new(row.on),
        longest(|waits| waits.touch_us),
        longest(|waits| waits.priority_touch_us),
        longest(|waits| waits.map_us),
        longest(|waits| waits.unmap_us),
        longest(|waits| waits.fork_us),
        Cell::new(maps.map_or("-".into(), |maps| format!("{}/s", figure(maps)))),
    ]
}

/// Microseconds for a reader.
fn time(us: f64) -> String {
    match us {
        us if us < 1e3 => format!("{us:.1} µs"),
        us if us < 1e6 => format!("{:.1} ms", us / 1e3),
        us => format!("{:.2} s", us / 1e6),
    }
}
