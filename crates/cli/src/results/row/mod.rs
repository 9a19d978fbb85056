//! One run's figures, as a result file has them: the one definition for writers of rows (`lab`, `sim`) and
//! for readers of them (`results`, `compare`, `report`).
//!
//! Reading is lenient where rows may grow (a field that is not known here, or not there yet) and strict where a
//! figure would be wrong.

mod huge;
mod simulated;
mod swap;
mod waits;

pub use huge::{Huge, MeasuredHuge, SimulatedHuge};
pub use simulated::Simulated;
pub use swap::Swap;
pub use waits::{
    FINE_RANGES, LONGEST_WAITS, Lock, LongestWait, LongestWaits, RANGES, WAITED, WaitRanges,
    Waited, by_name, fine_range_of, longest_of_thousand, range_of,
};

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Workloads that are nothing but faults: compared by these, not by pages touched.
const OF_FAULTS: [&str; 2] = ["pft", "spf"];
/// Workloads that touch anonymous memory larger than the budget.
const SWAPS: [&str; 3] = ["anon", "swap-retry", "snapshot"];

/// Percent of the accesses that write in a workload that swaps, unless something else is asked for.
pub fn usual_writes(workload: &str) -> u64 {
    match workload {
        "snapshot" => 100,
        "swap-retry" => 10,
        _ => 50,
    }
}

/// The lab counts touched pages of this size.
pub const PAGE: f64 = 4096.0;

/// A row; `None` (null) where a figure does not apply or the machine does not tell it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Row {
    /// Its name on the command line.
    pub workload: String,
    /// The order, pass or kind of files; of a simulation its cores.
    pub pattern: String,
    /// Its engine, policies that are not the default included.
    pub on: String,
    /// Which of the repeats, from 1.
    pub run: Option<u32>,
    /// Threads that touched pages; those that stand beside them (of high priority, forking, mapping) are
    /// not counted.
    pub threads: u64,
    /// Seed of the data and of random orders; of a simulation that of its machine too.
    pub seed: Option<u64>,
    /// Length of the file the touches go to, of all files where there are many, or of the anonymous memory
    /// of all threads, of loops one region of each; in a simulation the part of each thread.
    #[serde(default)]
    pub file_bytes: u64,
    /// The budget.
    #[serde(default)]
    pub memory_bytes: u64,
    /// For workloads that swap: percent of the accesses that write. Rows of old files do not tell.
    pub writes: Option<u64>,
    /// write: pages between two flushes; without, there is one flush, at the end.
    pub flush_every: Option<u64>,
    /// sparse: percent of the pages that are touched. Rows of old files do not tell.
    pub touch: Option<f64>,
    /// For how many seconds the run was to last, where that has an effect. Rows of old files do not tell.
    pub seconds: Option<f64>,
    /// Read-ahead in KiB of the device that the file lies on (or, without a file, the directory for files),
    /// as it was while the run was under way.
    pub read_ahead_kb: Option<u32>,
    /// For workloads that swap: the machine's vm.page-cluster, by which the kernel swaps in 2 to its power pages at a time.
    pub page_cluster: Option<u32>,
    /// Whether a memory cgroup bounded the run.
    #[serde(default)]
    pub limited: bool,
    /// Whether the run did not end in time and was killed; the figures are those until then.
    #[serde(default)]
    pub gave_up: bool,
    /// Whether the touched bytes were compared with the file's.
    pub checked: Option<bool>,
    /// Pages touched; each page of a scan counts once.
    pub accesses: u64,
    /// Wall clock until the last thread ended or was given up; of a simulation virtual time.
    pub elapsed_s: f64,
    /// Touched pages a second.
    pub accesses_per_s: Option<f64>,
    /// Thrash, warm start and swap-retry: files mapped, touched and unmapped.
    pub rounds: Option<u64>,
    /// Rounds a second.
    pub rounds_per_s: Option<f64>,
    /// Rounds of the thread that had the fewest.
    pub min_rounds: Option<u64>,
    /// The median of the threads' rounds.
    pub median_rounds: Option<f64>,
    /// Anonymous memory: pages touched for the first time since they were mapped. hugetlb: touches of a huge page.
    pub faults: Option<u64>,
    /// The same a second; of pft a second of populating, mapping and unmapping left out.
    pub faults_per_s: Option<f64>,
    /// The same a second of user and system time; of pft, of the populating threads' while they populate.
    pub faults_per_cpu: Option<f64>,
    /// Storm and spf: pairs of mapping and unmapping a second.
    pub maps_per_s: Option<f64>,
    /// The longest single operations, where they are timed.
    pub longest_waits: Option<LongestWaits>,
    /// The 99.9th percentile of touches, where they are timed: to an eighth.
    #[serde(default)]
    pub touch_p999_us: Option<f64>,
    /// Bytes read from storage, by /proc/self/io.
    pub bytes_read: Option<u64>,
    /// Bytes written to storage: by /proc/self/io, and of the kernel's swap by /proc/vmstat.
    pub bytes_written: Option<u64>,
    /// anon: the part of the accesses that no I/O was needed for.
    pub hit_rate: Option<f64>,
    /// The same of an exact LRU of the budget's size over the same accesses.
    pub lru_hit_rate: Option<f64>,
    /// User and system time of all threads.
    pub cpu_s: Option<f64>,
    /// The cgroup's own peak: all memory, page cache and page tables included.
    pub peak_bytes: Option<u64>,
    /// anon, swap-retry, snapshot: by how much the peak, the group's or the process's own, was above the budget.
    pub over_budget_bytes: Option<u64>,
    /// The most that the process itself had resident, ever.
    pub peak_rss_bytes: Option<u64>,
    /// snapshot: the same of its child.
    pub child_peak_rss_bytes: Option<u64>,
    /// The kernel's count of faults that needed I/O.
    pub major_faults: Option<u64>,
    /// The kernel's count of the others; a fault that softfault serves is none of these.
    pub minor_faults: Option<u64>,
    /// Faults that dropped their lock to wait for I/O, of files and of swap.
    pub retry_mmap_drop: Option<u64>,
    /// Of those, the ones whose folio was gone when they came back.
    pub retry_io_miss: Option<u64>,
    /// Pages read ahead of need.
    pub readahead_pages: Option<u64>,
    /// Of those, the ones that were touched.
    pub readahead_used: Option<u64>,
    /// The engine's counts of swap.
    pub swap: Option<Swap>,
    /// Waits for the engine's locks, by their names.
    pub locks: Option<BTreeMap<String, Lock>>,
    /// Timed operations by how long they took, in each of `RANGES`, by their names.
    pub wait_ranges: Option<BTreeMap<String, [u64; RANGES.len()]>>,
    /// Problems of this machine during the run, in words.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Of huge memory: document 001's figures.
    pub huge: Option<Huge>,
    /// Why there was no run, if the machine does not allow it.
    pub skipped: Option<String>,
    /// Why the run failed, if it did.
    pub error: Option<String>,
    /// The further figures of a simulation.
    #[serde(flatten)]
    pub simulated: Option<Simulated>,
}

impl Row {
    /// The name of a figure that cannot be: all of them count something.
    pub(super) fn senseless(&self) -> Option<&'static str> {
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

    /// The speed that it is compared by: rounds a second, touches of a huge page, faults, or touched pages. Zero is a
    /// speed (a run that was given up before it had done anything), `None` is none.
    pub fn speed(&self) -> Option<f64> {
        self.rounds_per_s
            .or(self.touch_rate())
            .or(self.fault_rate())
            .or(self.accesses_per_s)
    }

    /// Faults a second, if it is them that the workload is about.
    pub fn fault_rate(&self) -> Option<f64> {
        self.faults_per_s.filter(|_| self.is_of_faults())
    }

    /// Touches of a huge page a second: not each of them was a fault, as others have its page table too.
    pub fn touch_rate(&self) -> Option<f64> {
        let touches = self.workload == "hugetlb" && self.simulated.is_none();
        self.faults_per_s.filter(|_| touches)
    }

    /// Faults a second of CPU time, likewise.
    pub fn faults_per_cpu(&self) -> Option<f64> {
        self.faults_per_cpu.filter(|_| self.is_of_faults())
    }

    /// The simulation of huge pages counts faults, the lab touches.
    fn is_of_faults(&self) -> bool {
        let huge = self.workload == "hugetlb" && self.simulated.is_some();
        huge || OF_FAULTS.contains(&&self.workload[..])
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

/// Whether a workload touches anonymous memory that swap has to hold.
pub fn swaps(workload: &str) -> bool {
    SWAPS.contains(&workload)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_simulation_of_huge_pages_has_a_speed() {
        let mut row = Row {
            workload: "hugetlb".into(),
            faults_per_s: Some(3.0),
            accesses_per_s: Some(5.0),
            ..Row::default()
        };
        assert_eq!((row.touch_rate(), row.fault_rate()), (Some(3.0), None));
        row.simulated = Some(Simulated::default());
        assert_eq!((row.touch_rate(), row.fault_rate()), (None, Some(3.0)));
        assert_eq!(row.speed(), Some(3.0));
    }
}
