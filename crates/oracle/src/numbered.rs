//! A backing for tests of everything above the page cache.

use softfault_engine::mm::Backing;
use softfault_engine::mm::backing::VmOps;

/// A backing without pages, which has a number.
#[derive(Debug)]
pub struct Numbered(pub u64);

impl VmOps for Numbered {
    fn object(&self) -> *const () {
        core::ptr::without_provenance(self.0 as usize)
    }
}

impl From<Numbered> for Backing {
    fn from(number: Numbered) -> Self {
        Self::new(number)
    }
}
