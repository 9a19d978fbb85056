//! The work of a child for a pattern.

use super::pattern::{Kind, Pattern};
use super::{FileFrom, Plan};
use crate::lab::files::LabFile;
use crate::lab::job::{Memory, ROUND_PAGES, Work};

/// Times that a warm start goes through as many files as there are, and swap-retry through its memory.
const PASSES: u64 = 2;

impl Pattern {
    /// The work of the child, over these files.
    pub fn work(&self, plan: &Plan, files: &[LabFile]) -> Work {
        let bytes = match plan.file {
            FileFrom::Made(bytes) => bytes,
            FileFrom::Path(_) => 0,
        };
        let memory = |spread| Memory {
            bytes,
            spread,
            writes: plan.writes,
        };
        match self.kind {
            Kind::Sparse(order) => {
                let pages = files[0].pages();
                Work::Sparse {
                    order,
                    accesses: ((pages as f64 * plan.touch / 100.0) as u64).clamp(1, pages),
                }
            }
            Kind::Random => Work::Random,
            Kind::Many { present } => Work::Many { present },
            Kind::Orders(family) => Work::Orders(family),
            Kind::Scan(pass) => Work::Scan(pass),
            Kind::Write(how) => Work::Write {
                how,
                flush_every: plan.flush_every,
            },
            Kind::Append => Work::Append {
                flush_every: plan.flush_every,
            },
            Kind::Thrash(_) => Work::Thrash,
            Kind::WarmStart => Work::WarmStart {
                rounds: (!plan.timed).then_some(PASSES * files.len() as u64),
            },
            Kind::Pft { shared } => Work::Pft { shared, bytes },
            Kind::Spf => Work::Spf { bytes },
            Kind::Loops { verb, contended } => Work::Loops {
                verb,
                contended,
                bytes,
            },
            Kind::Storm => Work::Storm,
            Kind::Anon(spread) => Work::Anon(memory(spread)),
            Kind::SwapRetry(spread) => {
                let memory = memory(spread);
                let passes = PASSES * memory.pages() / ROUND_PAGES;
                Work::SwapRetry {
                    memory,
                    rounds: (!plan.timed).then_some(passes.max(1)),
                }
            }
            Kind::Hugetlb(start) => Work::Hugetlb { bytes, start },
            Kind::Snapshot(spread) => Work::Snapshot(memory(spread)),
        }
    }
}
