//! pthread_cancel(3): a thread that is cancelled in the middle of a fault would never
//! release its locks. The reads of a fault are cancellation points, unless
//! cancelling is disabled. With the asynchronous type every instruction is one, and a signal
//! that was sent before it was disabled cancels all the same: so the handler masks it, which
//! `sigfillset` does not, and the type is the deferred one meanwhile. glibc before 2.41 does not say
//! `PTHREAD_CANCELED` of a thread that it cancels because cancelling is enabled again; it does of one whose type
//! becomes the asynchronous one again.

use core::ffi::c_int;
use core::ptr::null_mut;

const DISABLE: c_int = 1;
const DEFERRED: c_int = 0;
const ASYNCHRONOUS: c_int = 1;
/// The signal behind pthread_cancel: the first that Linux's C libraries keep to themselves.
pub const SIGCANCEL: c_int = 32;

// The C library's; the crate `libc` does not have them for Linux. They unwind a thread of the
// asynchronous type that was cancelled meanwhile.
unsafe extern "C-unwind" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
    fn pthread_setcanceltype(of: c_int, before: *mut c_int) -> c_int;
}

/// The calling thread is not cancelled while this lives.
pub struct NoCancel {
    state: c_int,
    kind: c_int,
}

/// Keeps the calling thread from being cancelled. Writes to a word of the thread: fit for a
/// signal handler.
pub fn disabled() -> NoCancel {
    let (mut state, mut kind) = (0, 0);
    // SAFETY: changes this thread only; fills both.
    unsafe {
        pthread_setcanceltype(DEFERRED, &mut kind);
        pthread_setcancelstate(DISABLE, &mut state);
    }
    NoCancel { state, kind }
}

impl Drop for NoCancel {
    fn drop(&mut self) {
        // SAFETY: the thread's state and type from before.
        unsafe {
            pthread_setcancelstate(self.state, null_mut());
            if self.kind == ASYNCHRONOUS {
                pthread_setcanceltype(ASYNCHRONOUS, null_mut());
            }
        }
    }
}
