//! The table of the workloads that swap: how much was found in memory, beside an exact LRU, how fast
//! that was beside the others, and its cost.

use super::pattern;
use crate::results::group::Group;
use crate::results::row::Row;
use crate::table::Table;
use crate::table::figure::{bytes, or_none, share, times};

/// The table, if any row swaps.
pub fn table(all: &[Group]) -> Option<Table> {
    let groups: Vec<&Group> = all.iter().filter(|group| group.key.swaps()).collect();
    let header = [
        "swap",
        "pattern",
        "on",
        "in memory",
        "LRU",
        "of direct",
        "of kernel",
        "read",
        "written",
        "over budget",
        "child",
    ];
    let mut table = Table::ruled(&header, 3..11);
    for group in &groups {
        let of = |figure: fn(&Row) -> Option<u64>| or_none(group.count(figure), bytes);
        let against = |on: &str| or_none(group.against(&groups, on), times);
        table.row([
            group.key.workload.into(),
            pattern(group.key, all),
            group.on.into(),
            or_none(group.median(|row| row.hit_rate), share),
            or_none(group.median(|row| row.lru_hit_rate), share),
            against("direct"),
            against("kernel"),
            of(|row| row.bytes_read),
            of(|row| row.bytes_written),
            of(|row| row.over_budget_bytes),
            of(|row| row.child_peak_rss_bytes),
        ]);
    }
    (!groups.is_empty()).then_some(table)
}
