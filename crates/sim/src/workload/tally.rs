//! The counts of one thread.

use crate::outcome::Longest;

/// An operation whose longest duration is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waited {
    /// A touch of a page.
    Touch,
    /// A touch by the thread whose priority is above the others'.
    PriorityTouch,
    /// Mapping.
    Map,
    /// Unmapping.
    Unmap,
    /// fork.
    Fork,
}

/// The counts of a thread, or of all threads together. Times are virtual nanoseconds.
#[derive(Debug, Default)]
pub struct Tally {
    /// Pages touched.
    pub touches: u64,
    /// Touches that failed.
    pub failed: u64,
    /// Rounds finished.
    pub rounds: u64,
    /// Processor time from the start to the end.
    pub cpu_ns: u64,
    /// hugetlb: this thread's processor time when it saw that counting has begun; 0 where it counts from the start.
    pub cpu_before_ns: u64,
    /// When the thread's work ended, or the last one's; 0 of a thread that is
    /// not waited for.
    pub ended_ns: u64,
    /// pft: pages populated, the time that took, and this thread's processor
    /// time in it.
    pub populated: Populated,
    /// hugetlb: the most bytes of tables that there were at the end of a round.
    pub table_bytes: u64,
    /// The longest operations.
    pub longest: Longest,
}

/// Of pft's populations.
#[derive(Debug, Default)]
pub struct Populated {
    /// Pages.
    pub pages: u64,
    /// From all beginning to the last one's end; one thread counts it.
    pub ns: u64,
    /// Processor time.
    pub cpu_ns: u64,
}

impl Tally {
    /// An operation took so long.
    pub fn longest(&mut self, what: Waited, ns: u64) {
        let longest = match what {
            Waited::Touch => &mut self.longest.touch_ns,
            Waited::PriorityTouch => &mut self.longest.priority_touch_ns,
            Waited::Map => &mut self.longest.map_ns,
            Waited::Unmap => &mut self.longest.unmap_ns,
            Waited::Fork => &mut self.longest.fork_ns,
        };
        *longest = (*longest).max(ns);
    }

    /// Adds another thread's.
    pub fn add(&mut self, other: &Self) {
        self.touches += other.touches;
        self.failed += other.failed;
        self.rounds += other.rounds;
        self.cpu_ns += other.cpu_ns;
        self.ended_ns = self.ended_ns.max(other.ended_ns);
        self.populated.pages += other.populated.pages;
        self.populated.ns += other.populated.ns;
        self.populated.cpu_ns += other.populated.cpu_ns;
        self.table_bytes = self.table_bytes.max(other.table_bytes);
        self.longest = self.longest.or_longer(other.longest);
    }
}
