//! The program forks: the table does not change meanwhile, and in the child the kernel serves the taken mappings.
//!
//! ```text
//!              pthread_atfork(3) calls, in fork(3):        _Fork(3), clone(2) without CLONE_VM:
//!   before     streams, table, the engine's, heap          the same but streams, by `before`
//!   after      heap, the engine's, table, streams          `in_parent`, `in_child`
//!              (in the child glibc has unlocked the streams before)
//! ```

use crate::inside::{self, Inside};
use crate::table::{self, Table};
use crate::{count, give, heap, marked, mode, reports, swap_failed, tree};
use core::cell::{Cell, UnsafeCell};
use core::sync::atomic::{AtomicBool, AtomicI32, Ordering::Relaxed};
use softfault::Engine;
use std::sync::MutexGuard;

/// The locks of the forking thread.
struct Held(UnsafeCell<Option<(MutexGuard<'static, Table>, Option<Inside>)>>);

// SAFETY: only the thread that has the table locked looks at it.
unsafe impl Sync for Held {}

static HELD: Held = Held(UnsafeCell::new(None));

thread_local! {
    /// Forks that this thread is within: a handler of the program's may fork, too.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// True when [`watch`] was called. Relaxed: only of one call.
static WATCHED: AtomicBool = AtomicBool::new(false);

/// Forks are prepared for, from the first call on: when the library is loaded, before the program has threads, or before a library that
/// is initialised earlier maps something or registers handlers of its own. A fork that has begun when the first mapping is taken has
/// called its handlers, and its child would touch windows that it does not have. And a handler that is older than ours would run while
/// the table is held, and in the child while nothing is where the windows were: what it maps would come to be there.
///
/// Handlers before a fork are called in the opposite order: so the table is held first, the engine's locks next, and the
/// heap, which both allocate from, last; they are let go in the order in which they stand here.
pub fn watch() {
    if WATCHED.swap(true, Relaxed) {
        return;
    }
    note_process();
    // SAFETY: plain functions that live as long as the process.
    unsafe {
        libc::pthread_atfork(
            Some(heap::hold),
            Some(heap::let_go),
            Some(heap::let_go_in_child),
        )
    };
    softfault::fork::watch();
    // SAFETY: as above.
    unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
    // A stream's buffer may grow, by a call that locks the table, while the stream is locked.
    softfault::fork::lock_streams_first();
}

/// A fork that calls no handlers. One of the functions of the returned value is to be called afterwards.
pub fn before() -> Forking {
    prepare();
    softfault::fork::prepare();
    heap::hold();
    Forking(())
}

/// The locks of a fork without handlers.
pub struct Forking(());

impl Forking {
    /// In the parent, errno kept.
    pub fn in_parent(self) {
        let errno = crate::call::errno();
        heap::let_go();
        softfault::fork::parent();
        parent();
        crate::call::set_errno(errno);
    }

    /// In the child.
    pub fn in_child(self) {
        heap::let_go_in_child();
        softfault::fork::child();
        child();
    }
}

extern "C" fn prepare() {
    let depth = DEPTH.get();
    DEPTH.set(depth + 1);
    if depth > 0 {
        // All is held already.
        return;
    }
    let inside = inside::enter();
    // A fork cannot be refused here: it goes on, and may go well.
    let _ = give::leave_stack();
    let mut table = table::lock();
    hand_over_if_lost(&mut table);
    // SAFETY: this thread has the table locked.
    unsafe { *HELD.0.get() = Some((table, inside)) };
}

/// The process whose memory this is; 0 before this library is initialised. Relaxed: set before anybody needs it.
static PROCESS: AtomicI32 = AtomicI32::new(0);

fn note_process() {
    // SAFETY: only asks.
    PROCESS.store(unsafe { libc::getpid() }, Relaxed);
}

/// True in a child that shares its parent's memory (vfork).
pub fn is_in_parents_memory() -> bool {
    // SAFETY: only asks.
    process() != unsafe { libc::getpid() }
}

/// The number of the process whose memory this is. Libraries that the program is linked with are initialised before ours: so early
/// every process counts as its own.
pub fn process() -> i32 {
    match PROCESS.load(Relaxed) {
        // SAFETY: only asks.
        0 => unsafe { libc::getpid() },
        number => number,
    }
}

/// Private memory that a child would lose is handed over before, and the kernel's from then on: both have it.
fn hand_over_if_lost(table: &mut Table) {
    let rooms: Vec<_> = (table.private.iter_mut())
        .map(|mapping| mapping.room.clone())
        .collect();
    if rooms.is_empty() {
        return;
    }
    let engine = table.inherited.as_ref().or(table.engine.as_ref());
    let Some(memory) = engine.map(|engine| engine.stats().budget_bytes) else {
        return;
    };
    if !mode::can_begin_in_child(memory as usize) {
        for room in rooms {
            // Memory that cannot be handed over, for want of memory, stays: a touch of it in the child is a SIGSEGV.
            give::hand_over(table, &room);
        }
    }
}

fn take_held() -> Option<(MutexGuard<'static, Table>, Option<Inside>)> {
    // SAFETY: this thread has locked the table in `prepare`, or its parent's copy of it has.
    unsafe { (*HELD.0.get()).take() }
}

extern "C" fn parent() {
    // None in a child that was forked by a handler, within the fork that it goes on with.
    let Some(depth) = DEPTH.get().checked_sub(1) else {
        return;
    };
    DEPTH.set(depth);
    if depth == 0 {
        drop(take_held());
    }
}

extern "C" fn child() {
    note_process();
    DEPTH.set(0);
    let Some((mut table, inside)) = take_held() else {
        return;
    };
    // The kernel's mappings of the files are there by now, where windows were; the maps are the parent's.
    for (_, taken) in table.take_all() {
        marked::mark(&taken.window, false);
        core::mem::forget(taken);
    }
    // Private memory is the child's own by now, over the same engine, which has begun anew.
    table.forget_idle();
    let engine = table.engine.take();
    match table.private.is_empty() || table.inherited.is_some() {
        true => core::mem::forget(engine),
        false => table.inherited = engine,
    }
    give::forked(&mut table);
    table.refused = None;
    table.why_failed = None;
    table.leases.forked();
    table.written = None;
    table.tree = None;
    tree::forked();
    count::forked();
    reports::forked();
    if let Some(engine) = &table.inherited {
        swap_failed::prepare();
        join_tree(engine.clone());
        reports::begin_if_wanted();
    }
    drop(table);
    drop(inside);
}

/// Of a thread that joins a tree.
const STACK: usize = 256 << 10;

/// In a child that goes on with its parent's private memory: the engine of that has a share of the tree's budget, as
/// soon as the others have given some. The child does not wait for it.
fn join_tree(engine: Engine) {
    let joined = softfault::start_thread(c"softfault-tree", STACK, move || {
        let _inside = inside::enter();
        let tree = tree::join_with(&engine);
        table::lock().tree = tree;
    });
    // Without a thread it keeps its parent's share.
    drop(joined);
}
