//! One mapping.

use core::ops::Range;

/// What a caller of `advise` expects of its accesses. The names are those of
/// `madvise(2)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Advice {
    /// No particular pattern: the engine finds it out.
    #[default]
    Normal,
    /// Random: no read-ahead.
    Random,
    /// Sequential: read far ahead.
    Sequential,
}

/// What a mapping may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protection {
    /// Nothing.
    None,
    /// Reading.
    Read,
}

/// Everything of a VMA except its range: two neighbours merge if these agree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attributes {
    /// Page of the backing that the VMA's first page shows.
    pub pgoff: u64,
    /// Protection.
    pub protection: Protection,
    /// Advice.
    pub advice: Advice,
}

/// Bytes of address space, page-aligned.
pub type AddressRange = Range<usize>;
