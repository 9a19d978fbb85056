//! Dirty pages when the process ends.
//!
//! They are written back by a handler of atexit(3), and once more after all of those: handlers that were registered before ours, and
//! destructors of what is global, run after it, and may store to maps. The first time is for a program that a later handler
//! ends by `_exit`.

use super::idle::SharedTable;
use super::lock;
use super::writable::write_back_all;
use crate::generation::{Done, PerProcess};
use crate::signal;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};

/// The tables that are written back.
#[derive(Default)]
struct AtExit(Mutex<Vec<Weak<SharedTable>>>);

static AT_EXIT: PerProcess<AtExit> = PerProcess::new();
/// True once there was one. Relaxed: the thread that ends the process has it from the start, or ends beside the other.
static IS_USED: AtomicBool = AtomicBool::new(false);

/// The last of this program or library: a lower number runs later, and what has none runs before.
#[used]
#[unsafe(link_section = ".fini_array.00000")]
static LAST: extern "C" fn() = at_exit;

/// Has a table written back at exit; it may have been told before.
pub(super) fn write_back_at_exit(shared: &Arc<SharedTable>) {
    let mut tables = lock(&AT_EXIT.get().0);
    let is_other = |table: &Weak<SharedTable>| table.as_ptr() != Arc::as_ptr(shared);
    tables.retain(|table| table.strong_count() > 0 && is_other(table));
    tables.push(Arc::downgrade(shared));
    drop(tables);
    static REGISTERED: Done = Done::new();
    REGISTERED.once(|| {
        IS_USED.store(true, Relaxed);
        // What links a static library takes the parts of it that something refers to.
        core::hint::black_box(&LAST);
        // SAFETY: a function that stays.
        unsafe { libc::atexit(at_exit) };
    });
}

extern "C" fn at_exit() {
    if !IS_USED.load(Relaxed) {
        return;
    }
    let tables: Vec<_> = {
        let _masked = signal::masked();
        lock(&AT_EXIT.get().0)
            .iter()
            .filter_map(Weak::upgrade)
            .collect()
    };
    tables.iter().for_each(|table| write_back_all(table));
}
