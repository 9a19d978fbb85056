//! The program forks: the table is still meanwhile, and in the child the kernel has what was taken.

use crate::inside::{self, Inside};
use crate::table::{self, Table};
use crate::{count, marked, tree};
use core::cell::UnsafeCell;
use std::sync::{MutexGuard, Once};

/// What the forking thread holds.
struct Held(UnsafeCell<Option<(MutexGuard<'static, Table>, Option<Inside>)>>);

// SAFETY: only the thread that has the table locked looks at it.
unsafe impl Sync for Held {}

static HELD: Held = Held(UnsafeCell::new(None));

/// From the first call on, forks are prepared for. Called when the engine's own handlers are registered: ours begin
/// before them and end behind them.
pub fn watch() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        // SAFETY: plain functions that live as long as the process.
        unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
    });
}

extern "C" fn prepare() {
    let inside = inside::enter();
    let table = table::lock();
    // SAFETY: this thread has the table locked.
    unsafe { *HELD.0.get() = Some((table, inside)) };
}

fn take_held() -> Option<(MutexGuard<'static, Table>, Option<Inside>)> {
    // SAFETY: this thread has locked the table in `prepare`, or its parent's copy of it has.
    unsafe { (*HELD.0.get()).take() }
}

extern "C" fn parent() {
    drop(take_held());
}

extern "C" fn child() {
    let Some((mut table, inside)) = take_held() else {
        return;
    };
    // The kernel's mappings of the files are there by now, where windows were; the maps are the parent's.
    for (_, taken) in table.take_all() {
        marked::mark(&taken.window, false);
        core::mem::forget(taken);
    }
    core::mem::forget(table.engine.take());
    table.refused = None;
    table.leases.forked();
    table.tree = None;
    tree::forked();
    count::forked();
    drop(table);
    drop(inside);
}
