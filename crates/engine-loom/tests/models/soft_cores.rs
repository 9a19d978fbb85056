//! Models of the shootdown: a core inside an access against threads that take
//! pages out and reuse them.
//!
//! A page's bytes are in a cell that loom watches: a shootdown that does not
//! wait for a core, or does not order its reads before the reuse, ends the
//! model as a data race.

use std::sync::Arc;

use crate::model::explore;
use crate::model::spawn;
use loom::cell::UnsafeCell;
use loom::sync::atomic::AtomicU64;
use loom::sync::atomic::Ordering::{Acquire, Relaxed};
use softfault_engine_loom::mmu::soft::cores::{CoreHandle, Cores};

/// One page, and the entry that leads to it.
struct Page {
    cores: Cores,
    entry: AtomicU64,
    bytes: UnsafeCell<u32>,
}

// SAFETY: `bytes` is protected by the modelled protocol; loom checks it.
unsafe impl Sync for Page {}
// SAFETY: as above.
unsafe impl Send for Page {}

/// The contents of the page until it is reused.
const FIRST: u32 = 1;

impl Page {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            cores: Cores::new(2),
            entry: AtomicU64::new(1),
            bytes: UnsafeCell::new(FIRST),
        })
    }

    /// An access by a buffered translation, or else by the entry, which is then
    /// buffered.
    fn access(&self, handle: &mut CoreHandle, buffered: &mut Option<u64>) -> bool {
        let inside = self.cores.enter(handle);
        if *buffered != Some(inside.generation) {
            if self.entry.load(Acquire) == 0 {
                return false;
            }
            *buffered = Some(inside.generation);
        }
        // SAFETY: inside an access, found there; loom checks it.
        let bytes = self.bytes.with(|bytes| unsafe { *bytes });
        assert_eq!(bytes, FIRST, "the page of another");
        true
    }

    fn zap(&self) {
        self.entry.store(0, Relaxed);
        self.cores.shootdown();
    }

    fn reuse(&self) {
        // SAFETY: nobody uses the page after the shootdown; loom checks it.
        self.bytes.with_mut(|bytes| unsafe { *bytes += 1 });
    }
}

fn two_accesses_beside_a_zap_and_reuse() {
    let page = Page::new();
    let mut handle = page.cores.add_core().unwrap();
    let reader = {
        let page = Arc::clone(&page);
        spawn(move || {
            let mut buffered = None;
            let first = page.access(&mut handle, &mut buffered);
            let second = page.access(&mut handle, &mut buffered);
            assert!(first || !second, "a page that came back");
            (handle, buffered)
        })
    };
    page.zap();
    page.reuse();
    let (mut handle, mut buffered) = reader.join().unwrap();
    assert!(!page.access(&mut handle, &mut buffered));
}

#[test]
fn accesses_against_a_zap_and_reuse() {
    explore(None, two_accesses_beside_a_zap_and_reuse);
}

#[test]
fn accesses_against_a_zap_that_spins() {
    explore(Some(3), || {
        sync::model::spin();
        two_accesses_beside_a_zap_and_reuse();
    });
}

#[test]
fn a_core_that_comes_late() {
    explore(None, || {
        let page = Page::new();
        let reader = {
            let page = Arc::clone(&page);
            spawn(move || {
                let mut handle = page.cores.add_core().unwrap();
                page.access(&mut handle, &mut None);
                page.cores.remove_core(handle);
            })
        };
        page.zap();
        page.reuse();
        reader.join().unwrap();
    });
}

#[test]
fn a_seat_that_changes_hands() {
    explore(Some(3), || {
        let page = Page::new();
        let sitter = || {
            let page = Arc::clone(&page);
            spawn(move || {
                let mut handle = page.cores.add_core().unwrap();
                page.access(&mut handle, &mut None);
                page.cores.remove_core(handle);
            })
        };
        let sitters = [sitter(), sitter()];
        page.zap();
        page.reuse();
        for sitter in sitters {
            sitter.join().unwrap();
        }
    });
}

#[test]
fn two_shootdowns_at_a_time() {
    explore(Some(3), || {
        let page = Page::new();
        let mut handle = page.cores.add_core().unwrap();
        let reader = {
            let page = Arc::clone(&page);
            spawn(move || {
                let mut buffered = None;
                page.access(&mut handle, &mut buffered);
                page.access(&mut handle, &mut buffered);
            })
        };
        let other = {
            let page = Arc::clone(&page);
            // Of something else.
            spawn(move || page.cores.shootdown())
        };
        page.zap();
        page.reuse();
        reader.join().unwrap();
        other.join().unwrap();
    });
}
