//! Models of a folio by itself: its lock bit, its waiters, and the bits
//! that are read without it. With reclaim and the store it is in `faults.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::model::spawn;
use crate::model::{apart, explore};
use loom::cell::UnsafeCell;
use softfault_engine_loom::cache::folio::{Folio, flag};
use softfault_engine_loom::lock::Mutex;
use softfault_engine_loom::slab::TypeStable;

/// A timeout that is never up here.
const SLICE: u64 = 1;

/// A folio and something that its lock protects.
struct Page {
    folio: Folio,
    value: UnsafeCell<u32>,
    /// The ring's table: true while a read of the folio is in flight.
    in_flight: Mutex<bool>,
}

// SAFETY: `value` is protected by the folio lock; loom checks it.
unsafe impl Sync for Page {}
// SAFETY: as above.
unsafe impl Send for Page {}

impl Page {
    /// A folio of four pages, locked.
    fn locked() -> Arc<Self> {
        let page = Self {
            folio: Folio::new_slot(0),
            value: UnsafeCell::new(0),
            in_flight: Mutex::new(false),
        };
        page.folio.init(core::ptr::null(), 0x10000, 4);
        Arc::new(page)
    }

    fn unlocked() -> Arc<Self> {
        let page = Self::locked();
        page.folio.unlock();
        page
    }

    /// As a fault does: announces itself, and sleeps while nothing has changed.
    fn lock(&self) {
        while !self.folio.try_lock() {
            if let Some(announced) = self.folio.announce_waiter() {
                self.folio.sleep(announced, SLICE);
            }
        }
    }

    fn add(&self) {
        // SAFETY: the folio is locked; loom checks it.
        self.value.with_mut(|value| unsafe { *value += 1 });
    }
}

#[test]
fn a_folio_lock_among_three() {
    explore(Some(3), || {
        let page = Page::unlocked();
        let once = {
            let page = Arc::clone(&page);
            move || {
                page.lock();
                page.add();
                page.folio.unlock();
            }
        };
        let others = [(); 2].map(|()| spawn(once.clone()));
        once();
        for other in others {
            other.join().unwrap();
        }
        page.lock();
        // SAFETY: locked.
        assert_eq!(page.value.with(|value| unsafe { *value }), 3);
    });
}

#[test]
fn a_folio_lock_between_two_that_come_twice() {
    explore(Some(5), || {
        let page = Page::unlocked();
        let twice = {
            let page = Arc::clone(&page);
            move || {
                for _ in 0..2 {
                    page.lock();
                    page.add();
                    page.folio.unlock();
                }
            }
        };
        let other = spawn(twice.clone());
        twice();
        other.join().unwrap();
    });
}

#[test]
fn bits_change_beside_a_waiter() {
    // The holder changes other bits while somebody goes to sleep on them, and
    // a thread that does not hold the lock may take the marker.
    explore(Some(4), || {
        let page = Page::locked();
        page.folio.change(flag::MARKER, 0);
        let waiter = {
            let page = Arc::clone(&page);
            spawn(move || {
                let marked = page.folio.take_marker();
                page.lock();
                page.add();
                page.folio.unlock();
                marked
            })
        };
        page.add();
        page.folio.change(flag::UPTODATE, flag::ASYNC);
        let marked = page.folio.take_marker();
        page.folio.unlock();
        assert!(marked != waiter.join().unwrap(), "one of them takes it");
    });
}

#[test]
fn a_waiter_is_woken_when_the_read_is_submitted() {
    apart(|| {
        // The submitter goes away: only the waiter can reap the read, so it has to
        // look again when it is in flight (`fault::unlocked`).
        let slept = Arc::new(AtomicUsize::new(0));
        explore(None, {
            let slept = Arc::clone(&slept);
            move || {
                let page = Page::locked();
                let waiter = {
                    let (page, slept) = (Arc::clone(&page), Arc::clone(&slept));
                    spawn(move || {
                        while let Some(announced) = page.folio.announce_waiter() {
                            let mine = core::mem::take(&mut *page.in_flight.lock());
                            if mine {
                                page.add();
                                page.folio.change(flag::UPTODATE, 0);
                                page.folio.unlock();
                            } else {
                                slept.fetch_add(1, Relaxed);
                                page.folio.sleep(announced, SLICE);
                            }
                        }
                    })
                };
                *page.in_flight.lock() = true;
                page.folio.wake_while_locked();
                waiter.join().unwrap();
                assert!(page.folio.is(flag::UPTODATE));
            }
        });
        assert!(slept.load(Relaxed) > 0);
    });
}

#[test]
fn two_wait_for_one_read_and_one_reaps_it() {
    explore(Some(2), || {
        let page = Page::locked();
        let waiters = [(); 2].map(|()| {
            let page = Arc::clone(&page);
            spawn(move || {
                while let Some(announced) = page.folio.announce_waiter() {
                    let mine = core::mem::take(&mut *page.in_flight.lock());
                    if mine {
                        page.add();
                        page.folio.change(flag::UPTODATE, 0);
                        page.folio.unlock();
                    } else {
                        page.folio.sleep(announced, SLICE);
                    }
                }
                assert!(page.folio.is(flag::UPTODATE));
            })
        });
        *page.in_flight.lock() = true;
        page.folio.wake_while_locked();
        for waiter in waiters {
            waiter.join().unwrap();
        }
    });
}

#[test]
fn a_reader_that_sees_it_uptodate_sees_its_length() {
    apart(|| {
        let seen = Arc::new(AtomicUsize::new(0));
        explore(None, {
            let seen = Arc::clone(&seen);
            move || {
                let page = Page::locked();
                let reader = {
                    let (page, seen) = (Arc::clone(&page), Arc::clone(&seen));
                    spawn(move || {
                        if page.folio.is(flag::UPTODATE) {
                            assert_eq!(page.folio.pages(), 1);
                            seen.fetch_add(1, Relaxed);
                        }
                    })
                };
                page.folio.shrink(1);
                page.folio.change(flag::UPTODATE, 0);
                reader.join().unwrap();
                page.folio.unlock();
            }
        });
        assert!(seen.load(Relaxed) > 0);
    });
}
