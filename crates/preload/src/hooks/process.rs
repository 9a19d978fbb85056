//! Children, those that are made without the handlers of pthread_atfork(3) too, and these handlers.

use super::next::hooks;
use crate::fork;
use libc::{c_int, c_void, pid_t};

/// A handler of pthread_atfork(3).
type Handler = Option<extern "C" fn()>;

/// The start of a child of clone(2).
struct Start {
    act: extern "C" fn(*mut c_void) -> c_int,
    with: *mut c_void,
    forking: Option<fork::Forking>,
}

/// Runs in it, on a stack of its own, with a copy of its parent's memory.
extern "C" fn begin(start: *mut c_void) -> c_int {
    // SAFETY: on the stack of the thread that has made this process, which is here as it was.
    let start = unsafe { &mut *start.cast::<Start>() };
    if let Some(forking) = start.forking.take() {
        forking.in_child();
    }
    let status = (start.act)(start.with);
    // The C library would end this thread alone, and threads of ours would go on.
    // SAFETY: ends the process.
    unsafe { libc::_exit(status) }
}

/// True if such a child has memory and descriptors of its own, and runs beside its parent.
pub fn is_fork(flags: c_int) -> bool {
    flags & (libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_FILES) == 0
}

hooks! {
    /// pthread_atfork(3), of which each object has a copy that calls this: ours are registered before all others.
    fn __register_atfork(before: Handler, parent: Handler, child: Handler, object: *mut c_void) -> c_int = |next| {
        fork::watch();
        next(before, parent, child, object)
    };

    /// _Fork(3), which may be called by a handler of a signal.
    fn _Fork() -> pid_t = |next| {
        let forking = fork::before();
        match next() {
            0 => {
                forking.in_child();
                0
            }
            child => {
                forking.in_parent();
                child
            }
        }
    };

    /// clone(2), the C library's. In C it has the last arguments only with flags that say so: otherwise they are not
    /// looked at.
    fn clone(act: extern "C" fn(*mut c_void) -> c_int, stack: *mut c_void, flags: c_int, with: *mut c_void, parent_id: *mut pid_t, tls: *mut c_void, child_id: *mut pid_t) -> c_int = |next| {
        if !is_fork(flags) {
            return next(act, stack, flags, with, parent_id, tls, child_id);
        }
        let mut start = Start { act, with, forking: Some(fork::before()) };
        let child = next(begin, stack, flags, (&raw mut start).cast(), parent_id, tls, child_id);
        if let Some(forking) = start.forking.take() {
            forking.in_parent();
        }
        child
    };
}
