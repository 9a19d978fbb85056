//! VMAs that are measured.

use softfault_engine::PAGE_SIZE;
use softfault_engine::mm::{AddressSpace, Attributes};
use softfault_oracle::Numbered;

/// Address of a VMA that no other merges with.
pub fn address(vma: usize) -> usize {
    (1 + vma) * 16 * PAGE_SIZE
}

pub fn map(space: &AddressSpace, vma: usize) {
    let attributes = Attributes {
        backing: Numbered(vma as u64).into(),
        ..Attributes::default()
    };
    let range = address(vma)..address(vma) + 8 * PAGE_SIZE;
    space.mmap(range, attributes).unwrap();
}

pub fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}
