//! Bytes that several threads may access at a time.
//!
//! Each access has a scheduling point in its middle and is known meanwhile:
//! [`load`] and [`store`] may overlap with each other, [`clear`] and the target of [`copy`]
//! with nothing in the same page. The source of [`copy`] may overlap with all that only read. A frame that is handed to somebody while
//! another still uses it is found out by that.

use crate::point::point;
use softfault_sync_std::bytes as plain;
use std::cell::{Cell, RefCell};

const PAGE: usize = 4096;

struct Access {
    ticket: u64,
    page: usize,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Load,
    Store,
    /// The source of a copy, which nobody writes to.
    Source,
    /// To the target of a copy, or to bytes that are cleared.
    Alone,
}

impl Kind {
    fn clashes(self, other: Self) -> bool {
        match (self, other) {
            (Self::Alone, _) | (_, Self::Alone) => true,
            (Self::Source, Self::Store) | (Self::Store, Self::Source) => true,
            (Self::Load | Self::Store | Self::Source, _) => false,
        }
    }
}

thread_local! {
    static TICKETS: Cell<u64> = const { Cell::new(0) };
    static ACCESSES: RefCell<Vec<Access>> = const { RefCell::new(Vec::new()) };
}

pub(crate) fn reset() {
    ACCESSES.take();
}

/// Does `f` as an access to the page of `addr`.
fn access<R>(addr: *const u8, kind: Kind, f: impl FnOnce() -> R) -> R {
    let ticket = begin(addr, kind);
    point();
    let result = f();
    end(ticket);
    result
}

fn begin(addr: *const u8, kind: Kind) -> u64 {
    let page = addr.addr() / PAGE;
    let ticket = TICKETS.get();
    TICKETS.set(ticket + 1);
    ACCESSES.with_borrow_mut(|accesses| {
        let clash = |other: &Access| other.page == page && kind.clashes(other.kind);
        assert!(
            !accesses.iter().any(clash),
            "bytes of a page are accessed while it is being cleared or copied to, or written while \
             it is being copied, or the other way round"
        );
        accesses.push(Access { ticket, page, kind });
    });
    ticket
}

fn end(ticket: u64) {
    ACCESSES.with_borrow_mut(|accesses| accesses.retain(|other| other.ticket != ticket));
}

/// Copies `bytes` from shared memory at `source`, within a page.
///
/// # Safety
/// As in the std world.
pub unsafe fn load(source: *const u8, target: *mut u8, bytes: usize) {
    // SAFETY: the caller's promise.
    access(source, Kind::Load, || unsafe {
        plain::load(source, target, bytes);
    });
}

/// Copies `bytes` to shared memory at `target`, within a page.
///
/// # Safety
/// As in the std world.
pub unsafe fn store(source: *const u8, target: *mut u8, bytes: usize) {
    // SAFETY: the caller's promise.
    access(target, Kind::Store, || unsafe {
        plain::store(source, target, bytes);
    });
}

/// Fills `bytes` at `target`, a page or less, with zeros.
///
/// # Safety
/// As in the std world.
pub unsafe fn clear(target: *mut u8, bytes: usize) {
    // SAFETY: the caller's promise.
    access(target, Kind::Alone, || unsafe {
        plain::clear(target, bytes)
    });
}

/// Copies `bytes`, a page or less.
///
/// # Safety
/// As in the std world.
pub unsafe fn copy(source: *const u8, target: *mut u8, bytes: usize) {
    let read = begin(source, Kind::Source);
    // SAFETY: the caller's promise.
    access(target, Kind::Alone, || unsafe {
        plain::copy(source, target, bytes);
    });
    end(read);
}
