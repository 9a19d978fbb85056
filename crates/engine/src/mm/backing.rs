//! What a mapping shows.

use crate::PAGE_SHIFT;
use crate::anon::Anonymous;
use crate::cache::PageCache;
use crate::huge::HugeMapping;
use crate::mmu::Mmu;
use core::fmt;
use core::ops::Range;
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
    /// Huge pages of a file, of one address space.
    Huge(Arc<HugeMapping>),
}

impl Backing {
    /// The pages that there are to show; `None` if there is no end.
    pub(super) fn pages(&self) -> Option<Range<u64>> {
        let range = match self {
            Self::None | Self::Test(_) => return None,
            Self::File(cache) => cache.addresses(),
            Self::Anonymous(anon) => anon.addresses(),
            Self::Huge(mapping) => return Some(mapping.pages()),
        };
        Some(0..(range.len() >> PAGE_SHIFT) as u64)
    }

    /// Makes `space` the one that maps it, if only one may: false if it is already, and
    /// may show each page once only.
    pub(super) fn claim(&self, space: u64) -> bool {
        match self {
            Self::None | Self::Test(_) | Self::File(_) => true,
            Self::Anonymous(anon) => anon.claim(space),
            Self::Huge(mapping) => mapping.claim(space),
        }
    }

    /// True if a VMA with this `pgoff` may begin, end or be cut so many bytes on, which
    /// is at `addr`.
    pub(super) fn is_aligned(&self, pgoff: u64, distance: usize, addr: usize) -> bool {
        match self {
            Self::Huge(mapping) => mapping.is_aligned(pgoff, distance, addr),
            _ => true,
        }
    }

    /// `bytes` from a `pgoff` on are about to be shown elsewhere, or to be used
    /// otherwise: nobody may share the tables that they are in.
    pub(super) fn unshare(&self, pgoff: u64, bytes: usize) {
        if let Self::Huge(mapping) = self {
            mapping.unshare(pgoff, bytes);
        }
    }

    /// The page tables that have its pages.
    pub(super) fn mmu(&self) -> Option<&Arc<dyn Mmu>> {
        match self {
            Self::None | Self::Test(_) => None,
            Self::File(cache) => Some(&cache.node().mmu),
            Self::Anonymous(anon) => Some(&anon.node().mmu),
            Self::Huge(mapping) => Some(&mapping.pool().tables),
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
            (Self::Huge(one), Self::Huge(other)) => Arc::ptr_eq(one, other),
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
            Self::Huge(mapping) => write!(f, "Huge({:?})", mapping.pages()),
        }
    }
}
