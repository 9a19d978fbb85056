//! What a mapping shows.

/// Where the pages of a VMA come from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Backing {
    /// Nothing: a touch is an error.
    #[default]
    None,
    /// A number, for tests of everything above the page cache.
    Test(u64),
}
