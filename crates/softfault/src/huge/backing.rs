//! The backings of huge memory that the machine allows.

use super::machine;
use super::pool::MachinePool;
use crate::huge_faults::{HugeBacking, HugeSize};

impl HugeBacking {
    /// The best that the machine has for pages of this size.
    pub(super) fn best(size: HugeSize) -> Self {
        match MachinePool::of(size) {
            Some(pool) if pool.has_any() => Self::Hugetlb,
            _ => Self::without_pool(),
        }
    }

    /// The best for a file that is of no pool.
    pub(super) fn without_pool() -> Self {
        match machine::gives_transparent() {
            true => Self::TransparentHuge,
            false => Self::BasePages,
        }
    }
}
