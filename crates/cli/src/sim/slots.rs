//! Where VMAs come and go: the slots that they lived in, and the memory of one.

use super::band::Band;
use super::rates::{distinct, title, whole};
use super::row::simulated;
use crate::results::row::{Row, Simulated};
use crate::table::figure::{or_none, rounded};
use crate::table::{Table, heading};
use softfault_engine::mm::VmaSlots;

/// The name of a line, and its figure.
type Line = (&'static str, fn(&Simulated) -> f64);

const LINES: [Line; 3] = [
    ("slots made", |of| of.vma_slots as f64),
    ("reused", |of| of.vma_reuses as f64),
    ("most that waited", |of| of.vma_slots_waiting as f64),
];

/// A table for each number of cores, of spf alone.
pub fn table(rows: &[Row]) -> String {
    if rows.first().is_none_or(|first| first.workload != "spf") {
        return String::new();
    }
    let policies = distinct(rows, |row| simulated(row).policy.clone());
    let mut header = vec![String::new()];
    header.extend(policies.iter().map(|policy| heading(policy)));
    let mut text = String::new();
    for cores in distinct(rows, |row| simulated(row).cores) {
        let mut table = Table::plain(&header, 1);
        for (name, figure) in LINES {
            let of = |policy: &String| {
                let rows = whole(rows, cores, policy);
                let figures: Vec<f64> = rows.map(|row| figure(simulated(row))).collect();
                or_none(Band::of(&figures), |band| band.show(rounded))
            };
            let mut cells = vec![name.to_owned()];
            cells.extend(policies.iter().map(of));
            table.row(cells);
        }
        text += &table.titled(&format!("{}; {cores} cores, slots of VMAs", title(rows)));
    }
    let (vma, lock, link) = (VmaSlots::VMA, VmaSlots::VMA_LOCK, VmaSlots::LINK);
    text + &format!(
        "\nA VMA is {vma} bytes, and {link} for its place in the slab; with lock=rwsem {lock} and {link} more, apart.\n"
    )
}
