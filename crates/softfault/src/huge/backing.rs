//! What huge memory is made of, and what the machine allows.

use super::machine;
use super::pool::Pool;
use super::size::HugeSize;
use core::fmt;

/// What huge memory is made of, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HugeBacking {
    /// Pages of the machine's pool (hugetlb): reserved when they are mapped.
    Hugetlb,
    /// Huge pages where the kernel finds some when they are touched, ordinary ones else.
    TransparentHuge,
    /// Pages of 4 KiB. They are asked for 2 MiB at a time all the same.
    Ordinary,
}

impl fmt::Display for HugeBacking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hugetlb => "hugetlb",
            Self::TransparentHuge => "transparent huge pages",
            Self::Ordinary => "ordinary pages",
        })
    }
}

impl HugeBacking {
    /// The best that the machine has for pages of this size.
    pub(super) fn best(size: HugeSize) -> Self {
        match Pool::of(size) {
            Some(pool) if pool.has_any() => Self::Hugetlb,
            _ => Self::without_pool(),
        }
    }

    /// The best for a file that is of no pool.
    pub(super) fn without_pool() -> Self {
        match machine::gives_transparent() {
            true => Self::TransparentHuge,
            false => Self::Ordinary,
        }
    }
}
