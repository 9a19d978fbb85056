//! Groups of like rows: the runs behind one line of a table or one bar of a chart.

use super::names;
use super::row::{self, Lock, LongestWait, Row};
use super::stats::median;
use crate::size;
use std::collections::BTreeSet;

/// The properties that two rows must share to be compared: the work, without the engine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Key<'a> {
    /// The workload's name.
    pub workload: &'a str,
    /// Its pattern.
    pub pattern: &'a str,
    /// Threads that touched pages.
    pub threads: u64,
    /// Length of all files.
    pub file_bytes: u64,
    /// The budget.
    pub memory_bytes: u64,
    /// Percent of the accesses that write, where it is not the usual one.
    pub writes: Option<u64>,
    /// Pages between two flushes, if there are any before the end.
    pub flush_every: Option<u64>,
    /// Percent of the pages that are touched, where it is not the usual one.
    pub touch: Option<f64>,
}

/// The runs of one key on one engine. All fields immutable.
#[derive(Clone, Debug)]
pub struct Group<'a> {
    /// The work that was done.
    pub key: Key<'a>,
    /// The engine's name.
    pub on: &'a str,
    /// The runs that did not fail.
    pub runs: Vec<&'a Row>,
    /// How many failed.
    pub failed: usize,
    /// Why there was no run, if the machine does not allow it.
    pub skipped: Option<&'a str>,
}

impl<'a> Key<'a> {
    /// The work of `row`.
    pub fn of(row: &'a Row) -> Self {
        Self {
            workload: &row.workload,
            pattern: &row.pattern,
            threads: row.threads,
            file_bytes: row.file_bytes,
            memory_bytes: row.memory_bytes,
            // Rows of old files, which do not tell, are those of the usual runs.
            writes: (row.writes).filter(|&writes| writes != row::usual_writes(&row.workload)),
            flush_every: row.flush_every,
            touch: row.touch.filter(|&percent| percent != 1.0),
        }
    }

    /// Workload and pattern, once if they are the same, and what else is not as usual.
    pub fn name(&self) -> String {
        match self.workload == self.pattern {
            true => self.workload.into(),
            false => format!("{} {}", self.workload, self.variant()),
        }
    }

    /// The pattern, and what else is not as usual.
    pub fn variant(&self) -> String {
        let mut text = self.pattern.to_owned();
        if let Some(writes) = self.writes {
            text += &format!(", {writes} % writes");
        }
        if let Some(pages) = self.flush_every {
            text += &format!(", flush every {pages}");
        }
        if let Some(percent) = self.touch {
            text += &format!(", {percent} % of the pages");
        }
        text
    }

    /// Whether no file is mapped.
    pub fn is_anonymous(&self) -> bool {
        self.file_bytes == 0 || ["pft", "spf", "loops"].contains(&self.workload)
    }

    /// Whether its files are holes: they cost softfault no memory, so it pages nothing, and speeds are no race.
    pub fn is_of_holes(&self) -> bool {
        (self.workload, self.pattern) == ("thrash", "holes")
    }

    /// Whether the touched memory is anonymous memory that swap has to hold.
    pub fn swaps(&self) -> bool {
        row::swaps(self.workload)
    }

    /// Length of each thread's own memory; `None` where all have the same files.
    pub fn thread_bytes(&self) -> Option<u64> {
        let own = ["thrash", "pft", "spf", "loops"].contains(&self.workload);
        self.file_bytes.checked_div(self.threads).filter(|_| own)
    }

    /// All of it, for a reader.
    pub fn describe(&self) -> String {
        let Self {
            file_bytes,
            memory_bytes,
            ..
        } = *self;
        let mut text = format!("{}, {}", self.name(), threads(self.threads));
        let what = match self.is_anonymous() || self.swaps() {
            true => "touched",
            false => "file",
        };
        for (what, bytes) in [(what, file_bytes), ("memory", memory_bytes)] {
            if bytes > 0 {
                text += &format!(", {what} {}", size::show(bytes));
            }
        }
        text
    }
}

/// `1 thread`, `2 threads`.
pub fn threads(threads: u64) -> String {
    match threads {
        1 => "1 thread".into(),
        n => format!("{n} threads"),
    }
}

/// The groups of `rows`, in the order of their first appearance.
pub fn group<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Vec<Group<'a>> {
    let mut groups: Vec<Group> = Vec::new();
    for row in rows {
        let key = Key::of(row);
        let like = |group: &Group| group.key == key && group.on == row.on;
        let at = groups.iter().position(like).unwrap_or_else(|| {
            groups.push(Group {
                key,
                on: &row.on,
                runs: Vec::new(),
                failed: 0,
                skipped: None,
            });
            groups.len() - 1
        });
        match (&row.error, &row.skipped) {
            (Some(_), _) => groups[at].failed += 1,
            (None, Some(why)) => groups[at].skipped = Some(why),
            (None, None) => groups[at].runs.push(row),
        }
    }
    groups
}

/// A rate of a row.
pub type Rate = fn(&Row) -> Option<f64>;

/// The rate that `groups` are compared by: rounds if one has them, else faults, else touched pages; the unit, and
/// the figure.
pub fn speed_of(groups: &[&Group]) -> (&'static str, Rate) {
    let any = |rate: Rate| {
        let mut runs = groups.iter().flat_map(|group| &group.runs);
        runs.any(|row| rate(row).is_some())
    };
    let rounds: Rate = |row| row.rounds_per_s;
    match () {
        _ if any(rounds) => ("rounds/s", rounds),
        _ if any(Row::touch_rate) => ("touches/s", Row::touch_rate),
        _ if any(Row::fault_rate) => ("faults/s", Row::fault_rate),
        _ => ("pages/s", |row| row.accesses_per_s),
    }
}

impl Group<'_> {
    /// The middle of a figure over the runs; `None` if no run has it.
    pub fn median(&self, figure: impl Fn(&Row) -> Option<f64>) -> Option<f64> {
        median(self.values(figure))
    }

    /// The middle of a count.
    pub fn count(&self, figure: impl Fn(&Row) -> Option<u64>) -> Option<f64> {
        self.median(|row| figure(row).map(|count| count as f64))
    }

    /// A figure of each run that has it.
    pub fn values(&self, figure: impl Fn(&Row) -> Option<f64>) -> Vec<f64> {
        self.runs.iter().filter_map(|row| figure(row)).collect()
    }

    /// The mean of a lock's figure over the runs, as document 002 gives it; `None` if no run has the lock.
    pub fn lock_mean(&self, lock: &str, figure: impl Fn(&Lock) -> f64) -> Option<f64> {
        let values = self.lock_values(lock, figure);
        let sum: f64 = values.iter().sum();
        (!values.is_empty()).then(|| sum / values.len() as f64)
    }

    /// The longest wait for a lock in any run, in microseconds.
    pub fn longest_wait_us(&self, lock: &str) -> f64 {
        let waits = self.lock_values(lock, |lock| lock.wait_max_us);
        waits.into_iter().fold(0.0, f64::max)
    }

    fn lock_values(&self, lock: &str, figure: impl Fn(&Lock) -> f64) -> Vec<f64> {
        self.values(|row| Some(figure(row.locks.as_ref()?.get(lock)?)))
    }

    /// The names of the locks that were taken in any run.
    pub fn locks_taken(&self) -> BTreeSet<&str> {
        let locks = self.runs.iter().filter_map(|row| row.locks.as_ref());
        let taken = locks.flatten().filter(|(_, lock)| lock.count > 0);
        taken.map(|(name, _)| name.as_str()).collect()
    }

    /// The middle speed.
    pub fn speed(&self) -> Option<f64> {
        self.median(Row::speed)
    }

    /// Its speed beside that of `on` over the same work, of all `groups`.
    pub fn against(&self, groups: &[&Group], on: &str) -> Option<f64> {
        let like = |other: &&&Group| other.key == self.key && names::same(other.on, on);
        let other = groups.iter().find(like)?.speed();
        Some(self.speed()? / other.filter(|speed| *speed > 0.0)?)
    }

    /// The unit of its speed.
    pub fn unit(&self) -> &'static str {
        speed_of(&[self]).0
    }

    /// Why it has no figure.
    pub fn without(&self) -> &'static str {
        match (self.runs.is_empty(), self.skipped) {
            (true, Some(_)) => "not run",
            (true, None) => "failed",
            (false, _) => "not known",
        }
    }

    /// The mean over the runs of how many operations of a kind were in a range of waits; `None` if no run
    /// timed any.
    pub fn waits_in(&self, kind: &str, range: usize) -> Option<f64> {
        let values = self.values(|row| Some(row.wait_ranges.as_ref()?.get(kind)?[range] as f64));
        let sum: f64 = values.iter().sum();
        (!values.is_empty()).then(|| sum / values.len() as f64)
    }

    /// Words behind a figure of runs of which one was given up.
    pub fn given_up(&self) -> &'static str {
        match self.gave_up() {
            0 => "",
            _ => ", given up",
        }
    }

    /// How many runs were given up.
    pub fn gave_up(&self) -> usize {
        self.runs.iter().filter(|row| row.gave_up).count()
    }

    /// The mark behind each of its figures: `+` if a run was given up, `!` if one failed.
    pub fn mark(&self) -> String {
        let marks = [("+", self.gave_up()), ("!", self.failed)];
        let marks = marks.into_iter().filter(|(_, runs)| *runs > 0);
        marks.map(|(mark, _)| mark).collect()
    }

    /// The middle of the runs' longest waits of a kind.
    pub fn longest_wait(&self, of: LongestWait) -> Option<f64> {
        self.median(|row| of(row.longest_waits.as_ref()?))
    }

    /// Notes for the reader beside the figures.
    pub fn remarks(&self) -> String {
        let mut remarks = Vec::new();
        remarks.extend(self.skipped.map(|why| format!("not run: {why}")));
        let of = |some: usize, all: usize, what: &str| match (some, all) {
            (1, 1) => what.to_owned(),
            _ => format!("{what} {some} of {all}"),
        };
        let all = self.runs.len() + self.failed;
        if self.gave_up() > 0 {
            remarks.push(of(self.gave_up(), all, "given up"));
        }
        if self.failed > 0 {
            remarks.push(of(self.failed, all, "failed"));
        }
        if !["pread", "direct"].contains(&self.on) && self.runs.iter().any(|row| !row.limited) {
            remarks.push("not limited".into());
        }
        if self.runs.iter().any(|row| row.checked == Some(false)) {
            remarks.push("not checked".into());
        }
        remarks.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_shares_of_the_pages_are_other_work() {
        let row = |touch| Row {
            workload: "sparse".into(),
            pattern: "random".into(),
            touch,
            ..Row::default()
        };
        let [old, usual, few] = [None, Some(1.0), Some(0.01)].map(row);
        assert_eq!(Key::of(&old), Key::of(&usual));
        assert_ne!(Key::of(&usual), Key::of(&few));
        assert_eq!(Key::of(&few).name(), "sparse random, 0.01 % of the pages");
    }

    #[test]
    fn other_writes_and_flushes_are_other_work() {
        let row = |workload: &str, writes, flush_every| Row {
            workload: workload.into(),
            pattern: "zipf".into(),
            writes,
            flush_every,
            ..Row::default()
        };
        let old = row("anon", None, None);
        let [usual, reads, writes] = [50, 0, 100].map(|writes| row("anon", Some(writes), None));
        let flushes = row("write", None, Some(8));
        assert_eq!(Key::of(&old), Key::of(&usual));
        assert_ne!(Key::of(&reads), Key::of(&writes));
        assert_eq!(Key::of(&reads).name(), "anon zipf, 0 % writes");
        assert_ne!(Key::of(&flushes), Key::of(&row("write", None, None)));
        assert_eq!(Key::of(&flushes).name(), "write zipf, flush every 8");
    }
}
