//! Sizes of huge pages.

use crate::PAGE_SIZE;

/// How large the pages of a pool are. Of x86-64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum HugeSize {
    /// 2 MiB: a page middle directory's entry.
    #[default]
    TwoMiB,
    /// 1 GiB: a page upper directory's entry.
    OneGiB,
}

impl HugeSize {
    /// Bytes of a page.
    pub const fn bytes(self) -> usize {
        match self {
            Self::TwoMiB => 2 << 20,
            Self::OneGiB => 1 << 30,
        }
    }

    /// Base pages of a huge page.
    pub const fn pages(self) -> usize {
        self.bytes() / PAGE_SIZE
    }
}
