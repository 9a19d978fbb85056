//! The second table, of the workloads that time single operations: what each waited at most in any of
//! the repeats, and how many mappings were made meanwhile.

use super::figure::{figure, median};
use super::{Group, align_right, empty, group, pattern};
use crate::lab::row::Row;
use crate::lab::waits::LongestWaits;
use comfy_table::{Cell, Table};

/// A wait's heading, and where it is.
type Column = (&'static str, fn(&LongestWaits) -> Option<f64>);

/// All there are; what nobody timed has no column.
const COLUMNS: [Column; 8] = [
    ("touch", |waits| waits.touch_us),
    ("priority touch", |waits| waits.priority_touch_us),
    ("map", |waits| waits.map_us),
    ("unmap", |waits| waits.unmap_us),
    ("fork", |waits| waits.fork_us),
    ("touch at fork", |waits| waits.fork_touch_us),
    ("touch in walk", |waits| waits.walk_touch_us),
    ("walk", |waits| waits.walk_us),
];

/// The table over `rows`, if any of them has timed anything.
pub fn waits(rows: &[Row]) -> Option<Table> {
    let timed = |group: &Group| group.iter().any(|row| row.longest_waits.is_some());
    let groups: Vec<Group> = group(rows).into_iter().filter(timed).collect();
    let first = groups.first()?[0];
    let used = |(_, of): &Column| {
        let mut waits = rows.iter().filter_map(|row| row.longest_waits.as_ref());
        waits.any(|waits| of(waits).is_some())
    };
    let columns: Vec<Column> = COLUMNS.into_iter().filter(used).collect();
    let maps = rows.iter().any(|row| row.maps_per_s.is_some());
    let header = ["longest wait", "pattern", "on"].into_iter();
    let header = header.chain(columns.iter().map(|(name, _)| *name));
    let mut table = empty(header.chain(maps.then_some("maps")));
    let differ = groups.iter().any(|group| group[0].threads != first.threads);
    for group in &groups {
        table.add_row(line(group, &columns, maps, differ));
    }
    align_right(&mut table, 3..12);
    Some(table)
}

fn line(rows: &Group, columns: &[Column], maps: bool, threads_differ: bool) -> Vec<Cell> {
    let row = rows[0];
    let longest = |(_, of): &Column| {
        let waits = rows
            .iter()
            .filter_map(|row| of(row.longest_waits.as_ref()?));
        waits.max_by(f64::total_cmp).map_or("-".into(), time)
    };
    let mut cells = vec![
        row.workload.to_owned(),
        pattern(row, threads_differ),
        row.on.to_string(),
    ];
    cells.extend(columns.iter().map(longest));
    if maps {
        let maps = median(rows, |row| row.maps_per_s);
        cells.push(maps.map_or("-".into(), |maps| format!("{}/s", figure(maps))));
    }
    cells.into_iter().map(Cell::new).collect()
}

/// Microseconds for a reader.
fn time(us: f64) -> String {
    match us {
        us if us < 1e3 => format!("{us:.1} µs"),
        us if us < 1e6 => format!("{:.1} ms", us / 1e3),
        us => format!("{:.2} s", us / 1e6),
    }
}
