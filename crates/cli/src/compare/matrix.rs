//! What was read and how long it took, in the shape of document 003's matrix, and what it cost.

use super::pairs::{Pair, Sides};
use super::{plain, titled};
use crate::results::Row;
use crate::results::figure;
use crate::results::group::Group;
use crate::size;

const GIB: f64 = (1u64 << 30) as f64;

/// `GiB read/elapsed seconds` before and after, then CPU and peak.
pub fn table(sides: &Sides) -> String {
    let mut matrix = plain(&["workload", "threads", "before", "after"], 1);
    let mut costs = plain(
        &[
            "workload",
            "threads",
            "CPU/page before",
            "after",
            "change",
            "peak before",
            "after",
            "change",
        ],
        1,
    );
    for pair in &sides.pairs {
        let Pair { before, after } = pair;
        let (name, threads) = (sides.name(pair), before.key.threads.to_string());
        let line = [
            name.clone(),
            threads.clone(),
            cell(before, after),
            cell(after, before),
        ];
        matrix.add_row(line);
        let mut line = vec![name, threads];
        line.extend(both(pair, Row::cpu_per_access_us, |us| {
            format!("{} us", figure::show(us))
        }));
        line.extend(both(
            pair,
            |row| Some(row.peak_bytes? as f64),
            |bytes| size::show(bytes as u64),
        ));
        costs.add_row(line);
    }
    let mut groups = (sides.pairs.iter()).flat_map(|pair| [&pair.before, &pair.after]);
    let given_up = match groups.any(|group| group.gave_up() > 0) {
        true => "; + was given up, and has what it had done",
        false => "",
    };
    titled(
        &format!("GiB read / elapsed seconds, medians{given_up}"),
        &matrix,
    ) + &titled(
        "CPU time for a page touched, and peak of memory, medians",
        &costs,
    )
}

/// As few places as tell the two sides apart, and not fewer than three.
fn cell(group: &Group, other: &Group) -> String {
    let read = |group: &Group| group.count(|row| row.bytes_read).map(|bytes| bytes / GIB);
    let least = [read(group), read(other)]
        .into_iter()
        .flatten()
        .filter(|gib| *gib > 0.0);
    let places = match least.fold(f64::INFINITY, f64::min) {
        gib if gib < 0.01 => 6,
        _ => 3,
    };
    let gib = read(group).map_or("-".into(), |gib| format!("{gib:.places$} GiB"));
    let seconds = group.median(|row| Some(row.elapsed_s));
    let seconds = seconds.map_or("-".into(), |s| format!("{s:.3}s"));
    let mark = if group.gave_up() > 0 { "+" } else { "" };
    format!("{gib}/{seconds}{mark}")
}

/// Before, after and change of a figure.
fn both(
    pair: &Pair,
    figure: impl Fn(&Row) -> Option<f64>,
    show: impl Fn(f64) -> String,
) -> [String; 3] {
    let [before, after] = [&pair.before, &pair.after].map(|group| group.median(&figure));
    let change = match (before, after) {
        (Some(before), Some(after)) => figure::change(before, after),
        _ => "N/A".into(),
    };
    let show = |value: Option<f64>| value.map_or("-".into(), &show);
    [show(before), show(after), change]
}
