//! The table while the process forks: no thread is in the middle of a change, so that the child has it whole.

use super::{Maps, change};
use core::cell::UnsafeCell;
use std::sync::{Once, RwLockWriteGuard};

/// The lock from before a fork until after it.
struct Held(UnsafeCell<Option<RwLockWriteGuard<'static, Maps>>>);

// SAFETY: a thread that looks has the lock that is in it, or is about to put it there and has it.
unsafe impl Sync for Held {}

static HELD: Held = Held(UnsafeCell::new(None));

/// Has forks wait for changes from now on.
pub(super) fn watch() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        // SAFETY: the handlers are functions of this library, which is never unloaded.
        unsafe { libc::pthread_atfork(Some(prepare), Some(resume), Some(resume_child)) };
    });
}

unsafe extern "C" fn prepare() {
    let held = change();
    // SAFETY: this thread has the lock.
    unsafe { *HELD.0.get() = Some(held) };
}

/// In the parent.
unsafe extern "C" fn resume() {
    // SAFETY: this thread has had the lock since `prepare`.
    let held = unsafe { (*HELD.0.get()).take() };
    drop(held);
}

/// In the child, whose only thread is a copy of the one that has forked: nobody changes anything.
unsafe extern "C" fn resume_child() {
    // SAFETY: this thread is the copy of the one that has had the lock since `prepare`.
    let held = unsafe { (*HELD.0.get()).take() };
    if let Some(mut maps) = held {
        for window in maps.windows.values_mut() {
            window.changing = None;
            window.giving_back.clear();
        }
    }
}
