//! Bytes that several threads may access at a time.
//!
//! The bytes themselves are plain memory: loom runs one thread at a time, and
//! switches only at its own operations. So that it explores the orders of these
//! accesses, each is an operation on one atomic of the model. So that it sees
//! unordered accesses, each page has cells: [`load`] and [`store`] may race
//! with each other, [`clear`] and the target of [`copy`] with nothing, and the source of [`copy`] with
//! all that only read.

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, Ordering::Relaxed};
use loom::thread::ThreadId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

const PAGE: usize = 4096;

/// Threads of a model, at most.
const THREADS: usize = loom::MAX_THREADS;

/// A page, to loom.
#[derive(Default)]
struct Page {
    /// Changed by those that are alone, and looked at by all others.
    any: UnsafeCell<()>,
    /// Each changed by the stores of one thread, and looked at by those that copy from the page: so stores race with these
    /// copies and not with each other.
    stores: [UnsafeCell<()>; THREADS],
}

// SAFETY: there is nothing in it; loom checks that accesses are ordered.
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

loom::lazy_static! {
    /// Makes all accesses depend on each other's order.
    static ref TURN: AtomicU32 = AtomicU32::new(0);
    /// By address. The standard mutex is held for no operation of loom's.
    static ref PAGES: Mutex<HashMap<usize, Arc<Page>>> = Mutex::new(HashMap::new());
    /// The threads that have stored, in the order of their first stores. As above.
    static ref STORING: Mutex<Vec<ThreadId>> = Mutex::new(Vec::new());
}

/// The place of the present thread among those that store.
fn storing() -> usize {
    let thread = loom::thread::current().id();
    let mut threads = STORING.lock().unwrap();
    let known = threads.iter().position(|other| *other == thread);
    known.unwrap_or_else(|| {
        threads.push(thread);
        threads.len() - 1
    })
}

/// The page of an access that is about to begin.
fn page(addr: *const u8) -> Arc<Page> {
    // Relaxed: orders nothing that the code does not.
    TURN.fetch_add(0, Relaxed);
    page_of(addr)
}

fn page_of(addr: *const u8) -> Arc<Page> {
    let mut pages = PAGES.lock().unwrap();
    pages.entry(addr as usize / PAGE).or_default().clone()
}

/// Copies `bytes` from shared memory at `source`, within a page.
///
/// # Safety
/// `source` is readable and `target` writable for `bytes`.
pub unsafe fn load(source: *const u8, target: *mut u8, bytes: usize) {
    page(source).any.with(|_| {
        // SAFETY: the caller's promise.
        unsafe { core::ptr::copy_nonoverlapping(source, target, bytes) };
    });
}

/// Copies `bytes` to shared memory at `target`, within a page.
///
/// # Safety
/// As [`load`].
pub unsafe fn store(source: *const u8, target: *mut u8, bytes: usize) {
    let page = page(target);
    page.stores[storing()].with_mut(|_| ());
    page.any.with(|_| {
        // SAFETY: the caller's promise.
        unsafe { core::ptr::copy_nonoverlapping(source, target, bytes) };
    });
}

/// Fills `bytes` at `target`, a page or less, with zeros.
///
/// # Safety
/// `target` is writable for `bytes`, by the caller alone.
pub unsafe fn clear(target: *mut u8, bytes: usize) {
    page(target).any.with_mut(|_| {
        // SAFETY: the caller's promise.
        unsafe { target.write_bytes(0, bytes) };
    });
}

/// Copies `bytes`, a page or less.
///
/// # Safety
/// `source` is readable for `bytes` and written by nobody; `target` is writable
/// for `bytes`, by the caller alone.
pub unsafe fn copy(source: *const u8, target: *mut u8, bytes: usize) {
    let to = page(target);
    let from = page_of(source);
    from.any.with(|_| ());
    from.stores.iter().for_each(|stores| stores.with(|_| ()));
    to.any.with_mut(|_| {
        // SAFETY: the caller's promise.
        unsafe { core::ptr::copy_nonoverlapping(source, target, bytes) };
    });
}
