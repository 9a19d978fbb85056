//! The engine that a row is measured on.

use super::{Engine, cached, direct, kernel, soft, softfault};
use crate::lab::job::Swap;
use crate::results::on::On;
use memmap2::Advice;

/// The engine behind `on` with a budget of `memory` bytes, and swap if the work needs it; `None` for pread
/// and direct reads and writes of a file.
/// The error is the caller's to act on: a budget that is too small, a machine that does not allow it.
pub fn build(on: On, memory: u64, swap: Option<&Swap>) -> Result<Option<Box<dyn Engine>>, String> {
    Ok(match on {
        On::Kernel(_) => Some(kernel::build(None)),
        On::KernelRandom(_) => Some(kernel::build(Some(Advice::Random))),
        On::KernelSequential(_) => Some(kernel::build(Some(Advice::Sequential))),
        On::KernelHugePage(_) => Some(kernel::build(Some(Advice::HugePage))),
        On::KernelParked => Some(kernel::build_parked()),
        On::Pread => None,
        On::PreadCached => Some(cached::build(memory)),
        // Of a file of the work's own, it is nothing that maps.
        On::Direct => swap.map(direct::build).transpose()?,
        On::Softfault(policies, reads) => Some(softfault::build(memory, policies, reads, swap)?),
        On::Soft(policies) => Some(soft::build(memory, policies, swap)?),
    })
}
