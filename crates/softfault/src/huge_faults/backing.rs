//! What huge memory is made of.

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
