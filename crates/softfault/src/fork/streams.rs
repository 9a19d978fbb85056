//! The C library's list of streams, locked before anything of ours.
//!
//! glibc's `fork` locks that list itself, after it has called the handlers. A thread that is within `fgets(3)` or
//! `fprintf(3)` has its stream locked, and touches private memory, which the fork keeps still; another, within
//! `fflush(NULL)`, has the list locked and waits for that stream; so the fork, which has the memory, would wait for
//! the list for ever. With the list locked first, that thread has done with it before memory is kept still.
//!
//! The lock is one that its thread may take again. A child that is made without handlers ([`super::prepare`] called by
//! hand) does not lock it in glibc either. musl's list cannot be locked from outside: there, a program must not fork while
//! one of its threads calls `fflush(NULL)`.

use std::cell::Cell;

thread_local! {
    /// How often this thread has it locked: twice in a fork where two libraries ask for it, and a handler may fork.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// The list is locked in front of all handlers that are registered by now.
///
/// Handlers before a fork are called in the opposite order of their registration.
pub fn lock_streams_first() {
    // SAFETY: plain functions that live as long as the process.
    unsafe { libc::pthread_atfork(Some(lock), Some(unlock), None) };
}

/// In a child, the list is unlocked in front of all handlers that are registered later: they may start threads.
pub(super) fn unlock_in_child_first() {
    // SAFETY: as above.
    unsafe { libc::pthread_atfork(None, None, Some(reset)) };
}

extern "C" fn lock() {
    DEPTH.set(DEPTH.get() + 1);
    list::lock();
}

extern "C" fn unlock() {
    // None in a child that was forked by a handler, within the fork that it goes on with.
    if let Some(depth) = DEPTH.get().checked_sub(1) {
        DEPTH.set(depth);
        list::unlock();
    }
}

extern "C" fn reset() {
    if DEPTH.replace(0) > 0 {
        list::reset();
    }
}

#[cfg(target_env = "gnu")]
mod list {
    unsafe extern "C" {
        safe fn _IO_list_lock();
        safe fn _IO_list_unlock();
        safe fn _IO_list_resetlock();
    }

    pub fn lock() {
        _IO_list_lock();
    }

    /// By the thread that has locked it.
    pub fn unlock() {
        _IO_list_unlock();
    }

    /// By a process's only thread.
    pub fn reset() {
        _IO_list_resetlock();
    }
}

#[cfg(not(target_env = "gnu"))]
mod list {
    pub fn lock() {}
    pub fn unlock() {}
    pub fn reset() {}
}
