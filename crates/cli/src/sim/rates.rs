//! Rates as bands, in the shape of document 004's table, its machines' own rows beneath ours.

use super::band::Band;
use super::documents::{Pft, PftRow, documents};
use super::row::simulated;
use crate::results::row::{Row, Simulated};
use crate::table::figure::{percent, rate};
use crate::table::{Table, heading};
use softfault_sim::Policies;

/// A rate: its name, and its figure of a run.
pub type Rate = (&'static str, fn(&Row) -> f64);
/// The same of the documents' rows.
type DocumentRate = fn(&PftRow) -> [f64; 2];

const PER_CPU: Rate = ("faults/cpu", |row| row.faults_per_cpu.unwrap_or(0.0));
const PER_SECOND: Rate = ("faults/sec", |row| row.faults_per_s.unwrap_or(0.0));
const TOUCHES: Rate = ("touches/sec", |row| row.accesses_per_s.unwrap_or(0.0));
const REGIONS: Rate = ("regions/sec", |row| row.rounds_per_s.unwrap_or(0.0));
const ROUNDS: Rate = ("rounds/sec", |row| row.rounds_per_s.unwrap_or(0.0));

/// The rates of a workload, the most telling one last.
pub fn rates(workload: &str) -> &'static [Rate] {
    match workload {
        "pft" | "spf" => &[PER_CPU, PER_SECOND],
        "storm" | "anon" => &[PER_SECOND, TOUCHES],
        "loops" => &[REGIONS],
        "swap-retry" => &[PER_SECOND, ROUNDS],
        "hugetlb" => &[PER_SECOND],
        _ => &[ROUNDS],
    }
}

/// The table of one workload's rows.
pub fn table(rows: &[Row]) -> String {
    let Some(first) = rows.first() else {
        return String::new();
    };
    let rates = rates(&first.workload);
    let policies = distinct(rows, |row| simulated(row).policy.clone());
    let cores = distinct(rows, |row| simulated(row).cores);
    let mut header = vec![String::new(), String::new()];
    for (at, policy) in policies.iter().enumerate() {
        header.push(heading(policy));
        header.extend((at > 0).then(|| "Change".to_owned()));
    }
    let mut table = Table::plain(&header, 2);
    let mut sources = Vec::new();
    for rate in rates {
        for &cores in &cores {
            let figures = |policy: &String| of(rows, cores, policy, rate.1);
            let figures: Vec<Vec<f64>> = policies.iter().map(figures).collect();
            let name = format!("{}-{cores}", rate.0);
            table.row(means(&name, &figures));
            if figures.iter().any(|figures| figures.len() > 1) {
                table.row(bands(&figures));
            }
            let documents = match &first.workload[..] {
                "pft" => beside(rate.0, cores, &policies),
                _ => Vec::new(),
            };
            for (row, source) in documents {
                table.row(row);
                if !sources.contains(&source) {
                    sources.push(source);
                }
            }
        }
    }
    let best = rates.last().map_or("", |rate| rate.0);
    let better = match rates[0].0 == PER_SECOND.0 && rates.len() > 1 {
        // The same work with fewer faults is better.
        true => format!("; more {best} is better"),
        false => "; more is better".into(),
    };
    let mut text = table.titled(&(title(rows) + &better));
    for source in sources {
        text += &format!("\n{source}");
    }
    text + if first.workload == "pft" { "\n" } else { "" }
}

/// The workload, and the machines.
pub fn title(rows: &[Row]) -> String {
    let first = &rows[0];
    let of = simulated(first);
    let shared = if of.shared {
        ", one mapping for all"
    } else {
        ""
    };
    let verb = match (&first.workload[..], first.pattern.split_once(", ")) {
        ("loops", Some((verb, _))) => format!(" {verb}"),
        _ => String::new(),
    };
    let seeds = distinct(rows, |row| row.seed).len();
    let over = match seeds {
        1 => format!("seed {}", first.seed.unwrap_or_default()),
        _ => {
            let varied = rows.iter().map(|row| simulated(row).varied_percent);
            format!(
                "{seeds} seeds, low..median..high over machines with costs up to {} % off",
                varied.fold(0.0, f64::max)
            )
        }
    };
    format!(
        "Simulated {}{verb}{shared}, {} page tables, on {}: {over}",
        first.workload, of.mmu, of.topology
    )
}

/// Each value once, in the order of its first appearance.
pub fn distinct<T: PartialEq>(rows: &[Row], of: impl Fn(&Row) -> T) -> Vec<T> {
    let mut values = Vec::new();
    for row in rows {
        let value = of(row);
        if !values.contains(&value) {
            values.push(value);
        }
    }
    values
}

/// A rate of each seed; a run that failed has none, nor have its pairs.
fn of(rows: &[Row], cores: usize, policy: &str, rate: fn(&Row) -> f64) -> Vec<f64> {
    let whole = whole(rows, cores, policy).filter(|row| row.elapsed_s > 0.0);
    whole.map(rate).collect()
}

/// The rows of a policy, of those seeds for which none of the policies failed.
pub fn whole<'a>(rows: &'a [Row], cores: usize, policy: &'a str) -> impl Iterator<Item = &'a Row> {
    let failed = move |seed: Option<u64>| {
        let like = |row: &&Row| (simulated(row).cores, row.seed) == (cores, seed);
        rows.iter().filter(like).any(|row| row.error.is_some())
    };
    rows.iter().filter(move |row| {
        let Simulated {
            cores: on,
            policy: with,
            ..
        } = simulated(row);
        (*on, &with[..]) == (cores, policy) && !failed(row.seed)
    })
}

fn means(name: &str, figures: &[Vec<f64>]) -> Vec<String> {
    let mut cells = vec!["Hmean".to_owned(), name.to_owned()];
    let bands: Vec<Option<Band>> = figures.iter().map(|figures| Band::of(figures)).collect();
    for (at, band) in bands.iter().enumerate() {
        cells.push(band.map_or("-".into(), |band| format!("{:.0}", band.mean)));
        if at > 0 {
            let change = bands[0].zip(*band).filter(|(before, _)| before.mean > 0.0);
            cells.push(change.map_or("-".into(), |(before, after)| {
                percent(100.0 * (after.mean / before.mean - 1.0))
            }));
        }
    }
    cells
}

fn bands(figures: &[Vec<f64>]) -> Vec<String> {
    let mut cells = vec!["".to_owned(), "  band".to_owned()];
    for (at, after) in figures.iter().enumerate() {
        let band = Band::of(after);
        cells.push(band.map_or("-".into(), |band| band.show(rate)));
        if at > 0 {
            let changes = Band::of_changes(&figures[0], after);
            cells.push(changes.map_or("-".into(), |changes| changes.show(percent)));
        }
    }
    cells
}

/// The documents' rows for this rate and as many CPUs, each with its source.
fn beside(name: &str, cores: usize, policies: &[String]) -> Vec<(Vec<String>, String)> {
    let rate: DocumentRate = match name {
        "faults/cpu" => |row| row.faults_per_cpu,
        _ => |row| row.faults_per_s,
    };
    let mut all = Vec::new();
    for table in documents().pft {
        let Some(row) = table.rows.iter().find(|row| row.cpus == cores) else {
            continue;
        };
        let (name, figures) = (label(&table), rate(row));
        let source = format!("{name}: {}; {}", table.machine, table.source);
        let mut cells = vec!["".to_owned(), format!("  {name}")];
        for (at, policy) in policies.iter().enumerate() {
            let side = table.sides.iter().position(|side| same(side, policy));
            cells.push(side.map_or(String::new(), |side| format!("{:.0}", figures[side])));
            if at > 0 {
                let change = (side == Some(1)).then(|| 100.0 * (figures[1] / figures[0] - 1.0));
                cells.push(change.map_or(String::new(), percent));
            }
        }
        all.push((cells, source));
    }
    all
}

/// Our name of a document's table.
fn label(table: &Pft) -> String {
    let machine = table.machine.split(',').next().unwrap_or_default();
    format!("document {}, {machine}", table.document)
}

/// Whether two texts name the same policies.
fn same(a: &str, b: &str) -> bool {
    let parse = |text: &str| text.replace("default", "").parse::<Policies>().ok();
    parse(a).is_some() && parse(a) == parse(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workloads_with_a_cache_are_judged_by_their_work_and_not_by_faults() {
        for workload in ["storm", "anon", "swap-retry"] {
            assert_ne!(
                rates(workload).last().unwrap().0,
                PER_SECOND.0,
                "{workload}"
            );
        }
    }
}
