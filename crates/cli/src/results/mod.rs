//! Result files of the lab, read back: rows, groups of like rows, figures over a group's runs.
//!
//! Reading is lenient where the lab may grow (fields and workloads that are not known here) and strict
//! where a figure would be wrong.

pub mod figure;
pub mod group;
pub mod on;
pub mod stats;

use crate::error::Error;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

/// Ranges of document 002's wait histogram, in microseconds.
pub const RANGES: [&str; 8] = [
    "[0, 1)",
    "[1, 10)",
    "[10, 100)",
    "[100, 1000)",
    "[1000, 10000)",
    "[10000, 100000)",
    "[100000, 1000000)",
    "[1000000, +)",
];

/// One run, as `lab run --json` wrote it; the fields are those of `lab::row::Row`.
#[derive(Clone, Debug, Deserialize)]
pub struct Row {
    pub workload: String,
    pub pattern: String,
    pub on: String,
    pub run: Option<u32>,
    pub threads: u64,
    pub seed: Option<u64>,
    #[serde(default)]
    pub file_bytes: u64,
    #[serde(default)]
    pub memory_bytes: u64,
    #[serde(default)]
    pub limited: bool,
    #[serde(default)]
    pub gave_up: bool,
    pub checked: Option<bool>,
    pub accesses: u64,
    pub elapsed_s: f64,
    pub accesses_per_s: Option<f64>,
    pub rounds: Option<u64>,
    pub rounds_per_s: Option<f64>,
    pub faults_per_s: Option<f64>,
    pub faults_per_cpu: Option<f64>,
    pub maps_per_s: Option<f64>,
    pub bytes_read: Option<u64>,
    pub bytes_written: Option<u64>,
    pub hit_rate: Option<f64>,
    pub lru_hit_rate: Option<f64>,
    pub cpu_s: Option<f64>,
    pub peak_bytes: Option<u64>,
    pub over_budget_bytes: Option<u64>,
    pub child_peak_rss_bytes: Option<u64>,
    pub retry_mmap_drop: Option<u64>,
    pub retry_io_miss: Option<u64>,
    pub readahead_pages: Option<u64>,
    pub readahead_used: Option<u64>,
    pub locks: Option<BTreeMap<String, Lock>>,
    pub longest_waits: Option<LongestWaits>,
    /// Timed operations in each of `RANGES`, by their names.
    pub wait_ranges: Option<BTreeMap<String, [u64; RANGES.len()]>>,
    #[serde(default)]
    pub notes: Vec<String>,
    pub skipped: Option<String>,
    pub error: Option<String>,
}

/// Waits for one lock in one run.
#[derive(Clone, Debug, Deserialize)]
pub struct Lock {
    /// Times it was taken.
    pub count: u64,
    /// Microseconds waited in all.
    pub wait_total_us: f64,
    /// The longest wait in microseconds.
    pub wait_max_us: f64,
    /// Waits in each of `RANGES`.
    pub wait_ranges: [u64; RANGES.len()],
}

/// The longest time that a run's threads were kept waiting, in microseconds; `None` of what it did not do.
#[derive(Clone, Debug, Deserialize)]
pub struct LongestWaits {
    /// Any touch.
    pub touch_us: Option<f64>,
    /// A touch of the one with high priority.
    pub priority_touch_us: Option<f64>,
    pub map_us: Option<f64>,
    pub unmap_us: Option<f64>,
    pub fork_us: Option<f64>,
    /// A touch that was under way while the process forked.
    pub fork_touch_us: Option<f64>,
    /// A touch while the child walked over the memory.
    pub walk_touch_us: Option<f64>,
    /// The child's walk.
    pub walk_us: Option<f64>,
}

/// A wait of `LongestWaits`.
pub type LongestWait = fn(&LongestWaits) -> Option<f64>;

/// All of `LongestWaits` with their names for readers, what document 002 is about first.
pub const LONGEST_WAITS: [(&str, LongestWait); 8] = [
    ("High-priority touch", |waits| waits.priority_touch_us),
    ("Unmap", |waits| waits.unmap_us),
    ("Fork", |waits| waits.fork_us),
    ("Touch at the fork", |waits| waits.fork_touch_us),
    ("Touch in the walk", |waits| waits.walk_touch_us),
    ("Walk", |waits| waits.walk_us),
    ("Touch", |waits| waits.touch_us),
    ("Map", |waits| waits.map_us),
];

/// Workloads that are nothing but faults: compared by these, not by pages touched.
const OF_FAULTS: [&str; 2] = ["pft", "spf"];

/// The rows of a result file; `-` is stdin. The errors name the file and what is wrong with it.
pub fn read(path: &Path) -> Result<Vec<Row>, Error> {
    let wrong = |why: &dyn std::fmt::Display| {
        Error::input(format_args!("cannot read {}: {why}", path.display()))
    };
    let mut text = String::new();
    match path == Path::new("-") {
        true => std::io::stdin().lock().read_to_string(&mut text),
        false => std::fs::File::open(path).and_then(|mut file| file.read_to_string(&mut text)),
    }
    .map_err(|e| wrong(&e))?;
    parse(&text).map_err(|why| wrong(&why))
}

/// The rows that `text` holds, or why it is no result of the lab.
pub fn parse(text: &str) -> Result<Vec<Row>, String> {
    let value: Value = serde_json::from_str(text).map_err(|e| format!("not JSON: {e}"))?;
    let Value::Array(values) = value else {
        return Err("not a result of `lab run`: not an array of rows".into());
    };
    if values.is_empty() {
        return Err("it holds no rows".into());
    }
    let row = |(at, value): (usize, Value)| {
        let why = |why: &dyn std::fmt::Display| {
            format!("not a result of `lab run`: row {}: {why}", at + 1)
        };
        let row: Row = serde_json::from_value(value).map_err(|e| why(&e))?;
        match row.senseless() {
            Some(name) => Err(why(&format_args!("{name} is below zero"))),
            None => Ok(row),
        }
    };
    values.into_iter().enumerate().map(row).collect()
}

impl Row {
    /// The name of a figure that cannot be: all of them count something.
    fn senseless(&self) -> Option<&'static str> {
        let figures = [
            ("elapsed_s", Some(self.elapsed_s)),
            ("accesses_per_s", self.accesses_per_s),
            ("rounds_per_s", self.rounds_per_s),
            ("faults_per_s", self.faults_per_s),
            ("faults_per_cpu", self.faults_per_cpu),
            ("maps_per_s", self.maps_per_s),
            ("hit_rate", self.hit_rate),
            ("lru_hit_rate", self.lru_hit_rate),
            ("cpu_s", self.cpu_s),
        ];
        let wrong = |(_, figure): &(_, Option<f64>)| figure.is_some_and(|figure| figure < 0.0);
        let locks = self.locks.iter().flat_map(BTreeMap::values);
        let mut waits = locks.flat_map(|lock| [lock.wait_total_us, lock.wait_max_us]);
        let longest = LONGEST_WAITS
            .iter()
            .filter_map(|(_, of)| of(self.longest_waits.as_ref()?));
        let below = longest.into_iter().any(|wait| wait < 0.0);
        match figures.into_iter().find(wrong) {
            Some((name, _)) => Some(name),
            None if waits.any(|wait| wait < 0.0) => Some("a lock's wait"),
            None => below.then_some("a longest wait"),
        }
    }

    /// What it is compared by: rounds a second, faults a second, or touched pages a second. Zero is a
    /// speed (a run that was given up before it had done anything), `None` is none.
    pub fn speed(&self) -> Option<f64> {
        self.rounds_per_s
            .or(self.fault_rate())
            .or(self.accesses_per_s)
    }

    /// Faults a second, if it is them that the workload is about.
    pub fn fault_rate(&self) -> Option<f64> {
        self.faults_per_s.filter(|_| self.is_of_faults())
    }

    /// Faults a second of CPU time, likewise.
    pub fn faults_per_cpu(&self) -> Option<f64> {
        self.faults_per_cpu.filter(|_| self.is_of_faults())
    }

    fn is_of_faults(&self) -> bool {
        OF_FAULTS.contains(&&self.workload[..])
    }

    /// Bytes read for each byte of the pages touched.
    pub fn read_per_used(&self) -> Option<f64> {
        let used = self.accesses as f64 * PAGE;
        (used > 0.0).then(|| self.bytes_read.map(|read| read as f64 / used))?
    }

    /// Microseconds of CPU for each page touched.
    pub fn cpu_per_access_us(&self) -> Option<f64> {
        let accesses = self.accesses as f64;
        (accesses > 0.0).then(|| self.cpu_s.map(|cpu| cpu * 1e6 / accesses))?
    }

    /// Percent of the faults that waited for I/O and found its folio gone when they came back.
    pub fn miss_per_drop(&self) -> Option<f64> {
        let (miss, drop) = (self.retry_io_miss?, self.retry_mmap_drop?);
        (drop > 0).then(|| 100.0 * miss as f64 / drop as f64)
    }
}

/// The lab counts touched pages of this size.
pub const PAGE: f64 = 4096.0;

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: &str = r#"[{"workload":"w","pattern":"p","on":"kernel","threads":1,
        "accesses":0,"elapsed_s":0,"from_the_future":{}}]"#;

    #[test]
    fn a_row_of_the_least_fields_is_read_and_divides_by_nothing() {
        let row = &parse(LEAST).unwrap()[0];
        let figures = [
            row.speed(),
            row.read_per_used(),
            row.cpu_per_access_us(),
            row.miss_per_drop(),
        ];
        assert_eq!(figures, [None; 4]);
    }

    #[test]
    fn what_is_no_result_is_refused_with_its_reason() {
        for (text, why) in [
            ("", "not JSON"),
            ("[1", "not JSON"),
            ("{}", "not an array"),
            ("[]", "no rows"),
            ("[7]", "row 1"),
            (&LEAST.replace("\"on\"", "\"off\""), "missing field `on`"),
            (&LEAST.replace("\"threads\":1", "\"threads\":-1"), "row 1"),
            (
                &LEAST.replace("\"elapsed_s\":0", "\"elapsed_s\":-1"),
                "elapsed_s is below zero",
            ),
            (
                &LEAST.replace("\"elapsed_s\":0", "\"elapsed_s\":1e999"),
                "not JSON",
            ),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
