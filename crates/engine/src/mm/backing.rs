//! What a mapping shows.

use crate::cache::PageCache;
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
}

impl PartialEq for Backing {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::None, Self::None) => true,
            (Self::Test(one), Self::Test(other)) => one == other,
            (Self::File(one), Self::File(other)) => Arc::ptr_eq(one, other),
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
        }
    }
}
