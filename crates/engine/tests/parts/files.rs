//! Files for tests of faults and of reclaim.

use softfault_engine::PAGE_SIZE;
use softfault_engine::cache::PageCache;
use softfault_engine::fault::{self, Interrupt, NeverInterrupted, Pin};
use softfault_engine::page::Advice;
use softfault_oracle::{Rig, TestStore};
use std::ops::Range;
use std::sync::Arc;

/// Bytes of so many pages.
pub fn pages(count: usize) -> u64 {
    (count * PAGE_SIZE) as u64
}

/// A map of which single pages are read, and where it begins.
pub fn random(rig: &Rig, store: &Arc<TestStore>) -> (Arc<PageCache>, usize) {
    let cache = rig.map(store);
    let addresses = cache.addresses();
    rig.space
        .madvise(addresses.clone(), Advice::Random)
        .unwrap();
    (cache, addresses.start)
}

/// Pins pages of a map.
#[track_caller]
pub fn pin(rig: &Rig, cache: &Arc<PageCache>, range: Range<usize>) {
    let start = range.start;
    let pin = fault::pin(&rig.space, cache, range, start, &NeverInterrupted);
    assert_eq!(pin, Pin::Done);
}

/// For waits that something interrupts at once.
pub struct AlwaysInterrupted;

impl Interrupt for AlwaysInterrupted {
    fn pending(&self) -> bool {
        true
    }
}
