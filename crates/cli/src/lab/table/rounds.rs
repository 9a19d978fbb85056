//! The table of workloads with rounds: how evenly the threads had their turns.

use super::pattern;
use crate::results::group::Group;
use crate::table::Table;
use crate::table::figure::{count, or_none};

/// The table, if any row is in rounds.
pub fn table(all: &[Group]) -> Option<Table> {
    let rounds = |group: &&Group| group.count(|row| row.rounds).is_some();
    let groups: Vec<&Group> = all.iter().filter(rounds).collect();
    let header = [
        "rounds",
        "pattern",
        "on",
        "all",
        "least of a thread",
        "median",
    ];
    let mut table = Table::ruled(&header, 3..6);
    for group in &groups {
        table.row([
            group.key.workload.to_owned(),
            pattern(group.key, all),
            group.on.to_owned(),
            or_none(group.count(|row| row.rounds), count),
            or_none(group.count(|row| row.min_rounds), count),
            or_none(group.median(|row| row.median_rounds), count),
        ]);
    }
    (!groups.is_empty()).then_some(table)
}
