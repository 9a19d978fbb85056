//! The table of the workloads that time single operations: the longest wait of each in any of
//! the repeats, the time that all but one of a thousand touches did not exceed (the median of the repeats), and how many
//! mappings were made meanwhile.

use super::pattern;
use crate::results::group::Group;
use crate::results::row::{LONGEST_WAITS, LongestWait};
use crate::table::Table;
use crate::table::figure::{or_none, seconds, show};

/// The table, if any row has timed anything; figures that were not timed have no column.
pub fn table(all: &[Group]) -> Option<Table> {
    let longest = |group: &Group, of: LongestWait| {
        let waits = group.values(|row| of(row.longest_waits.as_ref()?));
        waits.into_iter().max_by(f64::total_cmp)
    };
    let used = |of: LongestWait| all.iter().any(|group| longest(group, of).is_some());
    let columns = LONGEST_WAITS.into_iter().filter(|(_, of)| used(*of));
    let columns: Vec<(&str, LongestWait)> = columns.collect();
    let maps = |group: &Group| group.median(|row| row.maps_per_s);
    let p999 = |group: &Group| group.median(|row| row.touch_p999_us);
    let has_p999 = all.iter().any(|group| p999(group).is_some());
    let has_maps = all.iter().any(|group| maps(group).is_some());
    let mut header = ["longest wait", "pattern", "on"].map(String::from).to_vec();
    header.extend(columns.iter().map(|(name, _)| name.to_lowercase()));
    header.extend(has_p999.then(|| "touch, p99.9".into()));
    header.extend(has_maps.then(|| "maps".into()));
    let mut table = Table::ruled(&header, 3..header.len());
    for group in all {
        let waits: Vec<_> = columns.iter().map(|(_, of)| longest(group, *of)).collect();
        if waits.iter().all(Option::is_none) {
            continue;
        }
        let mut cells = vec![
            group.key.workload.to_owned(),
            pattern(group.key, all),
            group.on.to_owned(),
        ];
        cells.extend(
            waits
                .into_iter()
                .map(|us| or_none(us, |us| seconds(us / 1e6))),
        );
        if has_p999 {
            cells.push(or_none(p999(group), |us| seconds(us / 1e6)));
        }
        if has_maps {
            cells.push(or_none(maps(group), |maps| {
                format!("{} maps/s", show(maps))
            }));
        }
        table.row(cells);
    }
    (!columns.is_empty()).then_some(table)
}
