//! The C library's list of streams, locked before anything of ours.
//!
//! If there are several threads, glibc's `fork` locks that list itself, after it has called the handlers. A thread that is within
//! `fgets(3)` or `fprintf(3)` has its stream locked, and touches private memory, which the fork keeps still; another, within
//! `fflush(NULL)`, has the list locked and waits for that stream; so the fork, which has the memory, would wait for
//! the list for ever. With the list locked first, that thread has done with it before memory is kept still.
//!
//! The lock is recursive, and glibc makes it anew in the child. While a process has one thread, glibc does not touch it, so that a
//! handler of a signal may fork; nor do we. A child that is made without handlers ([`super::prepare`] called by
//! hand) does not lock it in glibc either. musl's list cannot be locked from outside: there, a program must not fork while
//! one of its threads calls `fflush(NULL)`.

use std::cell::Cell;

thread_local! {
    /// How often this thread has it locked: twice in a fork where two libraries ask for it, and a handler may fork.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// The list is locked in front of all handlers that are registered by now.
///
/// Handlers before a fork are called in the opposite order of their registration. A handler that was registered earlier is called
/// with the list locked: it must not wait for a thread that opens, closes or flushes streams.
pub fn lock_streams_first() {
    list::prepare();
    // SAFETY: plain functions that live as long as the process.
    unsafe { libc::pthread_atfork(Some(lock), Some(unlock), None) };
}

/// In a child nothing is locked any more, for handlers that are registered later.
pub(super) fn forget_in_child_first() {
    // SAFETY: as above.
    unsafe { libc::pthread_atfork(None, None, Some(forget)) };
}

extern "C" fn lock() {
    if list::lock() {
        DEPTH.set(DEPTH.get() + 1);
    }
}

extern "C" fn unlock() {
    // None in a child that was forked by a handler, within the fork that it goes on with, and where there was one thread.
    if let Some(depth) = DEPTH.get().checked_sub(1) {
        DEPTH.set(depth);
        list::unlock();
    }
}

extern "C" fn forget() {
    if DEPTH.replace(0) > 0 {
        list::forget();
    }
}

#[cfg(target_env = "gnu")]
mod list {
    use core::ffi::c_char;
    use core::ptr::null_mut;
    use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};

    unsafe extern "C" {
        safe fn _IO_list_lock();
        safe fn _IO_list_unlock();
        safe fn _IO_list_resetlock();
    }

    /// glibc's `__libc_single_threaded`: not 0 while the process has one thread. Null before glibc 2.32. Relaxed: of one value.
    static SINGLE_THREADED: AtomicPtr<c_char> = AtomicPtr::new(null_mut());

    pub fn prepare() {
        // SAFETY: looks a name up.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__libc_single_threaded".as_ptr()) };
        SINGLE_THREADED.store(found.cast(), Relaxed);
    }

    /// False if the process has one thread.
    pub fn lock() -> bool {
        let single = SINGLE_THREADED.load(Relaxed);
        // SAFETY: a variable of the C library's, which changes where this thread starts another or has joined the last.
        let locks = single.is_null() || unsafe { single.read_volatile() } == 0;
        if locks {
            _IO_list_lock();
        }
        locks
    }

    /// By the thread that has locked it.
    pub fn unlock() {
        _IO_list_unlock();
    }

    /// By a child's only thread: an old glibc has not made it anew if its parent had one thread.
    pub fn forget() {
        if SINGLE_THREADED.load(Relaxed).is_null() {
            _IO_list_resetlock();
        }
    }
}

#[cfg(not(target_env = "gnu"))]
mod list {
    pub fn prepare() {}
    pub fn lock() -> bool {
        false
    }
    pub fn unlock() {}
    pub fn forget() {}
}
