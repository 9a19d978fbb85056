//! Sizes of huge pages.

use core::fmt;

/// How large a huge page is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HugeSize {
    /// 2 MiB: an entry of the second level of page tables.
    #[default]
    TwoMiB,
    /// 1 GiB: an entry of the third. Only from a pool.
    OneGiB,
}

impl HugeSize {
    /// In bytes.
    pub const fn bytes(self) -> usize {
        1 << self.shift()
    }

    pub(crate) const fn shift(self) -> u32 {
        match self {
            Self::TwoMiB => 21,
            Self::OneGiB => 30,
        }
    }

    /// The one of so many bytes.
    pub(crate) fn of(bytes: u64) -> Option<Self> {
        [Self::TwoMiB, Self::OneGiB]
            .into_iter()
            .find(|size| size.bytes() as u64 == bytes)
    }
}

impl fmt::Display for HugeSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TwoMiB => "2 MiB",
            Self::OneGiB => "1 GiB",
        })
    }
}
