//! The documents' own figures, to stand beside: data in `documents.json`.

use serde::Deserialize;

/// The contents of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Documents {
    /// Document 004's tables, one a machine.
    pub pft: Vec<Pft>,
    /// Document 000's table.
    pub thrash: Thrash,
    /// Document 002's tables.
    pub warm_start: WarmStart,
    /// Document 001's lines.
    pub hugetlb: Hugetlb,
}

/// A table of fault rates.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pft {
    pub document: String,
    pub machine: String,
    pub source: String,
    /// Which policies its columns are.
    pub sides: [String; 2],
    pub rows: Vec<PftRow>,
}

/// Before and after, at a number of CPUs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PftRow {
    pub cpus: usize,
    pub faults_per_cpu: [f64; 2],
    pub faults_per_s: [f64; 2],
}

/// Document 000's runs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Thrash {
    pub document: String,
    pub machine: String,
    pub source: String,
    pub seconds: u64,
    pub rows: Vec<ThrashRow>,
}

/// One of them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ThrashRow {
    pub case: String,
    pub rounds: u64,
    pub rounds_per_s: f64,
    pub miss_drop_percent: f64,
    pub retry_mmap_drop: u64,
    pub retry_io_miss: u64,
}

/// Document 002's locks and waits, before and after.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WarmStart {
    pub document: String,
    pub machine: String,
    pub source: String,
    pub metrics: Vec<(String, f64, f64)>,
    pub read_ranges: Vec<[u64; 2]>,
    pub write_ranges: Vec<[u64; 2]>,
}

/// Document 001's lines, before and after.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hugetlb {
    pub document: String,
    pub machine: String,
    pub source: String,
    pub cpus: usize,
    pub metrics: Vec<(String, f64, f64)>,
}

/// All of them.
pub fn documents() -> Documents {
    serde_json::from_str(include_str!("documents.json")).expect("a test reads it")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::row::RANGES;

    #[test]
    fn the_documents_figures_fit_their_own_sums() {
        let documents = documents();
        let changes = |table: &Pft, cpus| {
            let row = table.rows.iter().find(|row| row.cpus == cpus).unwrap();
            let [before, after] = row.faults_per_s;
            100.0 * (after / before - 1.0)
        };
        // As the documents print them.
        assert!((changes(&documents.pft[0], 21) - 14.77).abs() < 0.01);
        assert!((changes(&documents.pft[1], 128) - 18.40).abs() < 0.01);
        for row in &documents.thrash.rows {
            let seconds = documents.thrash.seconds as f64;
            assert!((row.rounds as f64 / seconds - row.rounds_per_s).abs() < 0.1);
            let share = 100.0 * row.retry_io_miss as f64 / row.retry_mmap_drop as f64;
            assert!((share - row.miss_drop_percent).abs() < 0.1);
        }
        let waits = &documents.warm_start;
        assert_eq!(waits.read_ranges.len(), RANGES.len());
        let sum: u64 = waits.read_ranges.iter().map(|range| range[0]).sum();
        // Averages of runs, so not to the last one.
        assert!((sum as f64 - waits.metrics[0].1).abs() < 10.0);
    }
}
