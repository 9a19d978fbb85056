//! The backing of huge memory.

use core::fmt;

/// The backing of huge memory, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HugeBacking {
    /// Pages of the machine's pool (hugetlb): reserved when they are mapped.
    Hugetlb,
    /// Transparent huge pages, if the kernel finds some at a touch; base pages otherwise.
    TransparentHuge,
    /// Pages of 4 KiB, requested in units of 2 MiB.
    BasePages,
}

impl fmt::Display for HugeBacking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hugetlb => "hugetlb",
            Self::TransparentHuge => "transparent huge pages",
            Self::BasePages => "base pages",
        })
    }
}
