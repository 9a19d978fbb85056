//! What a mapping shows.

use crate::PAGE_SHIFT;
use crate::anon::Anonymous;
use crate::cache::PageCache;
use crate::mmu::Mmu;
use core::fmt;
use sync::Arc;

/// Where the pages of a VMA come from.
#[derive(Clone, Default)]
pub enum Backing {
    /// Nothing: a touch is an error.
    #[default]
    None,
    /// A number, for tests of everything above the page cache.
    Test(u64),
    /// A file, through its page cache. Whoever drops the last reference does
    /// so outside the fault handler: the owner of the cache keeps one until no
    /// mapping and no fault has another.
    File(Arc<PageCache>),
    /// Memory that begins as zeros, of one address space. The last reference
    /// goes as that of a file does.
    Anonymous(Arc<Anonymous>),
}

impl Backing {
    /// How many pages there are to show; `None` if there is no end.
    pub(super) fn pages(&self) -> Option<u64> {
        let range = match self {
            Self::None | Self::Test(_) => return None,
            Self::File(cache) => cache.addresses(),
            Self::Anonymous(anon) => anon.addresses(),
        };
        Some((range.len() >> PAGE_SHIFT) as u64)
    }

    /// The page tables that have its pages.
    pub(super) fn mmu(&self) -> Option<&Arc<dyn Mmu>> {
        match self {
            Self::None | Self::Test(_) => None,
            Self::File(cache) => Some(&cache.node().mmu),
            Self::Anonymous(anon) => Some(&anon.node().mmu),
        }
    }
}

impl PartialEq for Backing {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::None, Self::None) => true,
            (Self::Test(one), Self::Test(other)) => one == other,
            (Self::File(one), Self::File(other)) => Arc::ptr_eq(one, other),
            (Self::Anonymous(one), Self::Anonymous(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

impl Eq for Backing {}

impl fmt::Debug for Backing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Test(number) => write!(f, "Test({number})"),
            Self::File(cache) => write!(f, "File({:#x?})", cache.addresses()),
            Self::Anonymous(anon) => write!(f, "Anonymous({:#x?})", anon.addresses()),
        }
    }
}
