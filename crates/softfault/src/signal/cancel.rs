//! pthread_cancel(3): a thread that is cancelled in the middle of a fault would never
//! release its locks. The reads of a fault are cancellation points, unless
//! cancelling is disabled. With the asynchronous type every instruction is one, and a signal
//! that was sent before it was disabled cancels all the same: so the handler masks it, which
//! `sigfillset` does not.

use core::ffi::c_int;

const DISABLE: c_int = 1;
/// The signal behind pthread_cancel: the first that Linux's C libraries keep to themselves.
pub const SIGCANCEL: c_int = 32;

// The C library's; the crate `libc` does not have it for Linux. It unwinds a thread of the
// asynchronous type that was cancelled while it was disabled.
unsafe extern "C-unwind" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// The calling thread is not cancelled while this lives.
pub struct NoCancel {
    before: c_int,
}

/// Keeps the calling thread from being cancelled. Writes to a word of the thread: fit for a
/// signal handler.
pub fn disabled() -> NoCancel {
    let mut before = 0;
    // SAFETY: changes this thread only; fills `before`.
    unsafe { pthread_setcancelstate(DISABLE, &mut before) };
    NoCancel { before }
}

impl Drop for NoCancel {
    fn drop(&mut self) {
        // SAFETY: the thread's state from before.
        unsafe { pthread_setcancelstate(self.before, core::ptr::null_mut()) };
    }
}
