//! `fork(2)`: private memory goes on in the child, on an engine of its own; files the kernel maps there.
//!
//! ```text
//!   prepare   the list of the C library's streams is locked          streams
//!             the making and dropping of engines and private
//!             maps is locked; VMAs of private memory, and its reclaim, where there is some   held
//!             slots of swap that are in use are kept for the child      swap/lifeline
//!             files that are mapped can be mapped there, too           files/inherited
//!             windows of private memory are lent to it (MADV_DOFORK)
//!             no thread of ours is being started                       thread/starting
//!   parent    all that is taken back, and unlocked
//!   child     descriptors of the parent's closed
//!             files mapped by the kernel, where their windows were     files/inherited
//!             nodes, rings, swap of its own                             child
//!             windows registered, their words taken over, mapped        child
//!             maps that the parent made mean the child's memory         memory
//! ```
//!
//! Objects that the parent's other threads had locked stay locked for ever in the child, so
//! nothing of the parent's is used there any more: neither locked nor dropped. It stays
//! where it is until the child ends. The child uses only immutable objects, and those that
//! `prepare` has locked: the list of those VMAs, the words of pages, where slots lie.
//!
//! Windows are not inherited but for that moment: a child that ran no handlers (a bare
//! `clone`) has none, and dies of SIGSEGV at a touch. It would find zeros otherwise,
//! where a page is missing.

mod child;
mod held;
mod memory;
mod registry;
mod streams;

pub(crate) use memory::Memory;
pub(crate) use registry::{forget_engine, know_engine};
pub use streams::lock_streams_first;

use crate::files::FileWindow;
use crate::generation::{Done, ProcessGeneration};
use crate::managed::Managed;
use crate::process::Process;
use crate::{huge_faults, table, thread};
use core::mem::ManuallyDrop;
use held::ForkLocks;
use std::cell::Cell;
use std::io;

/// An engine, as a fork of the process handles it.
pub(crate) trait AcrossFork: Send + Sync + 'static {
    /// The state that its maps need, if it has that in this process.
    fn managed(&self) -> Option<&Managed>;

    /// Windows of files that its maps show.
    fn file_windows(&self) -> Vec<FileWindow>;

    /// In a child: leaves the present state to the parent.
    fn leave(&self) -> Option<&'static Managed>;

    /// In a child: the state of the last process that had any.
    fn parents(&self) -> Option<&'static Managed>;

    /// In a child: makes the child's own, after the engine that it is within has made its
    /// own. The caller lets one thread at a time do so.
    fn begin_in_child(&self, process: &'static Process) -> io::Result<()>;
}

thread_local! {
    /// The locks of the forking thread between prepare and parent or child. Ordinary
    /// code: fork handlers are not signal handlers. Without a destructor: it is there as long as the thread, which may fork
    /// in a handler of atexit(3) or a destructor of a pthread key, when what has a destructor is gone.
    static HELD: Cell<Option<ManuallyDrop<ForkLocks>>> = const { Cell::new(None) };
    /// Forks that this thread is within.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// The handlers are registered.
static WATCHED: Done = Done::new();

/// From the first call on, forks are prepared for, and a child knows that it is one.
///
/// Building an engine calls it. Code that is loaded into programs it does not know calls it before the program has
/// threads: the handlers of a fork that has begun already are not called again.
pub fn watch() {
    WATCHED.once(|| {
        streams::forget_in_child_first();
        // SAFETY: the handlers are plain functions that live as long as the
        // process.
        unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
        lock_streams_first();
    });
}

/// Before a fork.
pub extern "C" fn prepare() {
    // A handler of the program's own forks, within a fork: all is held already.
    let depth = DEPTH.get();
    DEPTH.set(depth + 1);
    if depth == 0 {
        HELD.set(Some(ManuallyDrop::new(ForkLocks::take())));
    }
}

/// After it, in the parent.
pub extern "C" fn parent() {
    // None in a child that was forked by a handler, within the fork that it goes on with.
    let Some(depth) = DEPTH.get().checked_sub(1) else {
        return;
    };
    DEPTH.set(depth);
    if depth == 0
        && let Some(held) = HELD.take()
    {
        ManuallyDrop::into_inner(held).let_go();
    }
}

/// After it, in the child.
pub extern "C" fn child() {
    // Also where the parent was just about to say so.
    WATCHED.set();
    ProcessGeneration::another();
    thread::forked();
    table::fork_child();
    huge_faults::fork_child();
    DEPTH.set(0);
    // Forked by a process that was a child itself by then: nothing was held, nothing was lent.
    let held = HELD.take().map(ManuallyDrop::into_inner);
    let held = held.unwrap_or_else(ForkLocks::take);
    child::begin(held);
}
