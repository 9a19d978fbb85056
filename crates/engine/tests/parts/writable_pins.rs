//! How many pages of files may be dirty beside pinned ones.

use super::files::pin;
use super::writable::{bytes, finish, scene, write_back};
use softfault_engine::PAGE_SIZE;
use softfault_engine::anon::Anonymous;
use softfault_engine::cache::PageCache;
use softfault_engine::fault::{self, FaultError};
use softfault_engine::policy::Policies;
use softfault_oracle::{Rig, TestStore, TestSwap};
use std::ops::Range;
use std::sync::Arc;

const EIO: i32 = 5;
/// Counted with what a pin may need beside its pages, it is near the half of the budget that may be pinned.
const PINNED: usize = 900;

/// Pins the first pages of a file. For [`unpin`].
fn pin_first(rig: &Rig, cache: &Arc<PageCache>) -> (Range<usize>, u64) {
    let start = cache.addresses().start;
    let range = start..start + PINNED * PAGE_SIZE;
    let pages = cache.admit_pin(&range).expect("room for a pin");
    pin(rig, cache, range.clone());
    (range, pages)
}

fn unpin(cache: &PageCache, (range, pages): (Range<usize>, u64)) {
    fault::unpin(cache, range);
    cache.dismiss_pin(pages);
}

/// Writes a byte to each page of a range.
fn write(rig: &Rig, range: &Range<usize>) {
    for page in range.clone().step_by(PAGE_SIZE) {
        assert_eq!(rig.write(page, &[1]), Ok(()), "at {page:#x}");
    }
}

/// Pages that may be pinned may be written to, and leave others room to be written to.
#[test]
fn dirty_pages_that_are_pinned_are_counted_once() {
    let (rig, _, cache, start) = scene(TestStore::new(bytes(2048)));
    let pinned = pin_first(&rig, &cache);
    write(&rig, &pinned.0);
    write_back(&cache, 0..2048);
    assert_eq!(cache.dirty_pages(), PINNED as u64, "they stay dirty");
    let others = pinned.0.end..start + (PINNED + 100) * PAGE_SIZE;
    write(&rig, &others);
    unpin(&cache, pinned);
    write_back(&cache, 0..2048);
    assert_eq!(cache.dirty_pages(), 0);
    finish(rig, cache);
}

/// Where write-back fails, readers have memory beside the pages that are pinned and those that stay dirty: whichever came first,
/// and also when they are not pinned any more.
#[test]
fn pins_and_a_store_that_takes_nothing_leave_readers_memory() {
    for (before, while_pinned) in [(false, false), (false, true), (true, false)] {
        let (rig, store, cache, start) = scene(TestStore::new(bytes(4096)));
        // A pin that has come and gone is forgotten.
        let pinned = pin_first(&rig, &cache);
        let first = pinned.0.clone();
        write(&rig, &first);
        unpin(&cache, pinned);
        write_back(&cache, 0..4096);
        assert_eq!(cache.dirty_pages(), 0);
        if before {
            write(&rig, &first);
        }
        let pinned = pin_first(&rig, &cache);
        if while_pinned {
            write(&rig, &first);
        }
        (0..4096).for_each(|page| store.fail_writes(page, Some(EIO)));
        let mut at = first.end;
        let refused = loop {
            match rig.write(at, &[1]) {
                Ok(()) => at += PAGE_SIZE,
                Err(error) => break error,
            }
        };
        assert_eq!(refused, FaultError::NoMemory);
        let read = || {
            for page in (start..cache.addresses().end).step_by(PAGE_SIZE) {
                assert!(rig.touch(page).is_ok());
            }
        };
        read();
        unpin(&cache, pinned);
        read();
        (0..4096).for_each(|page| store.fail_writes(page, None));
        finish(rig, cache);
    }
}

/// A call that may make no page dirty has dirty pages written back, and no private memory: that would not help.
#[test]
fn no_private_memory_is_evicted_for_a_page_that_is_to_be_dirty() {
    const PRIVATE: usize = 1000;
    let swap = TestSwap::new(2 * PRIVATE);
    let rig = Rig::with_swap(2048, Policies::default(), &swap);
    let anon = Anonymous::new(rig.node.clone(), PRIVATE * PAGE_SIZE).unwrap();
    rig.map_anonymous(&anon);
    write(&rig, &anon.addresses());
    let store = TestStore::new(bytes(2048));
    let cache = rig.map_writable(&store);
    let start = cache.addresses().start;
    // Fewer than the private pages may be dirty, so private memory goes first where both can.
    assert!(rig.node.try_pin(1000));
    let mut page = 0;
    while store.writes().is_empty() {
        assert!(page < PRIVATE, "more pages are dirty than may be");
        let (addr, content) = (start + page * PAGE_SIZE, [1; PAGE_SIZE]);
        // SAFETY: the bytes can be read; the window is mapped.
        let written = unsafe { fault::write_whole(&cache, addr, &raw const content[..]) };
        assert_eq!(written, PAGE_SIZE);
        page += 1;
    }
    assert_eq!(swap.counts().writes, 0);
    rig.node.unpin_pages(1000);
    rig.unmap(anon.addresses());
    drop(anon);
    finish(rig, cache);
}
