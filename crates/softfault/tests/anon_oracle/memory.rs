//! One side's private memory of one process.

use crate::places::Places;
use softfault_engine::mm::MmError;
use softfault_oracle::{Expected, MemoryVerb, Paid};
use std::ops::Range;

/// Memory of one process that does the operations. Pages are those of the arena.
pub trait Memory: Sync {
    /// Where they are.
    fn places(&self) -> &Places;
    /// Maps zeros, or a private copy of pages of the file.
    fn map(&mut self, pages: Range<usize>, from: Option<usize>) -> Result<(), MmError>;
    fn unmap(&mut self, pages: Range<usize>);
    /// A whole map may be written to, or not.
    fn set_writable(&mut self, pages: Range<usize>, is_writable: bool);
    /// A whole map has so many pages.
    fn resize(&mut self, pages: Range<usize>, len: usize);
    fn manage(&mut self, pages: Range<usize>, verb: MemoryVerb) -> Expected;
    /// Everything is unmapped.
    fn clear(&mut self);

    /// Asserts the invariants.
    fn check(&self, _paid: Paid) {}
    /// The first that is not in memory.
    fn absent(&self, _pages: &[usize]) -> Option<usize> {
        None
    }
    /// Everything goes that can.
    fn evict(&mut self) {}
    /// So many 256ths of the budget more.
    fn set_memory(&mut self, _more: u8) {}
}
