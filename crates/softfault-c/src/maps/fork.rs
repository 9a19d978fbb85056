//! The table while the process forks: no thread is in the middle of a change, and no map is taken out of it, so that the child has it whole.

use super::change::wait;
use super::kept::KeptRange;
use super::take_out::TAKEN;
use super::{Maps, Range, change};
use crate::boundary;
use core::cell::{Cell, UnsafeCell};
use softfault::Done;
use std::sync::RwLockWriteGuard;

/// The lock from before a fork until after it.
struct Held(UnsafeCell<Option<RwLockWriteGuard<'static, Maps>>>);

// SAFETY: a thread that looks has the lock that is in it, or is about to put it there and has it.
unsafe impl Sync for Held {}

static HELD: Held = Held(UnsafeCell::new(None));

std::thread_local! {
    /// Forks that this thread is within: a handler of the program's own may fork, within a fork.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Children of fork inherit pages of a map of the kernel's, or do not. A call keeps the pages.
pub(crate) fn allow_inherit(pages: &Range<usize>, allowed: bool) {
    if let Some(window) = change().window_mut(pages.start) {
        window.allow_inherit(pages, allowed);
    }
}

/// True between this thread's `prepare` and its end, where handlers of the program's own run: this thread has the locks of the
/// table and of the library, and would wait for itself.
pub(crate) fn is_forking() -> bool {
    DEPTH.get() > 0
}

/// The handlers of fork are registered, in this process and in all its children.
static WATCHED: Done = Done::new();

/// Has forks wait for changes from now on.
pub(super) fn watch() {
    WATCHED.once(|| {
        // SAFETY: the handlers are functions of this library, which is never unloaded.
        unsafe { libc::pthread_atfork(Some(prepare), Some(resume), Some(resume_child)) };
    });
}

unsafe extern "C" fn prepare() {
    let depth = DEPTH.get();
    DEPTH.set(depth + 1);
    if depth == 0 {
        let held = loop {
            let held = change();
            // A map that this thread has taken out is the child's to enter again, in a fork of a signal handler's.
            if held.taken == TAKEN.get() {
                break held;
            }
            // Registered later than the library's own, this runs earlier: no lock keeps the others from ending their change.
            drop(held);
            wait();
        };
        // SAFETY: this thread has the lock.
        unsafe { *HELD.0.get() = Some(held) };
    }
}

/// In the parent.
unsafe extern "C" fn resume() {
    // 0 in a child that a handler forked, within the fork that it goes on with: it has let go already.
    let Some(depth) = DEPTH.get().checked_sub(1) else {
        return;
    };
    DEPTH.set(depth);
    if depth == 0 {
        // SAFETY: this thread has had the lock since `prepare`.
        let held = unsafe { (*HELD.0.get()).take() };
        drop(held);
    }
}

/// In the child, whose only thread is a copy of the one that has forked: nobody changes anything.
unsafe extern "C" fn resume_child() {
    // Also if a thread of the parent's had them registered and had not said so yet.
    WATCHED.set();
    DEPTH.set(0);
    // SAFETY: this thread is the copy of the one that has had the lock since `prepare`.
    let held = unsafe { (*HELD.0.get()).take() };
    if let Some(mut maps) = held {
        maps.taken = TAKEN.get();
        for window in maps.windows.values_mut() {
            window.changing = None;
            window.locking.clear();
            window.kept.iter_mut().for_each(KeptRange::inherit);
            if boundary::is_within_call() {
                // This thread goes on with its call, and which of these are its own is not known. What the parent's other threads
                // used stays in use: EBUSY. Nobody waits for an unmap that nobody ends.
                window
                    .giving_back
                    .iter_mut()
                    .for_each(|unmapped| unmapped.in_use = true);
                continue;
            }
            window.giving_back.clear();
            window.calls.forget();
            // SAFETY: no thread of this process is within a call.
            unsafe { window.forget_users() };
        }
        let childless = maps
            .windows
            .iter()
            .filter(|(_, window)| window.is_childless());
        let childless: Vec<_> = childless.map(|(&start, _)| start).collect();
        for start in childless {
            let window = maps.windows.remove(&start);
            maps.childless.extend(window);
        }
    }
}
