//! The program forks: the table is still meanwhile, and in the child the kernel has what was taken.

use crate::inside::{self, Inside};
use crate::table::{self, Table};
use crate::{count, give, marked, tree};
use core::cell::UnsafeCell;
use softfault::Engine;
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
    give::leave_stack();
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
    // Private memory is the child's own by now, over the same engine, which has begun anew.
    for window in core::mem::take(&mut table.idle) {
        marked::mark(&window, false);
    }
    let engine = table.engine.take();
    match table.private.is_empty() || table.inherited.is_some() {
        true => core::mem::forget(engine),
        false => table.inherited = engine,
    }
    give::forked(&mut table);
    table.refused = None;
    table.leases.forked();
    table.tree = None;
    tree::forked();
    count::forked();
    if let Some(engine) = &table.inherited {
        join_tree(engine.clone());
    }
    drop(table);
    drop(inside);
}

/// In a child that goes on with its parent's private memory: the engine of that has a share of the tree's budget, as
/// soon as the others have given some. The child does not wait for it.
fn join_tree(engine: Engine) {
    let joins = std::thread::Builder::new().name("softfault-tree".into());
    let joined = joins.spawn(move || {
        let _inside = inside::enter();
        let tree = tree::join_with(&engine);
        table::lock().tree = tree;
    });
    // Without a thread it stays with what its parent had.
    drop(joined);
}
