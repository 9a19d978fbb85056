//! The lock of a stream of the C library's: a call that is several here is one for the program's other threads.

use libc::FILE;

unsafe extern "C" {
    /// flockfile(3): the thread that has it may take it once more.
    fn flockfile(stream: *mut FILE);
    fn funlockfile(stream: *mut FILE);
}

/// A stream that this thread has locked.
pub struct LockedStream(Option<*mut FILE>);

impl LockedStream {
    /// Locks it; `None`: a call that takes no lock.
    pub fn of(stream: Option<*mut FILE>) -> Self {
        if let Some(stream) = stream {
            // SAFETY: the program's call is about to use it.
            unsafe { flockfile(stream) };
        }
        Self(stream)
    }
}

impl Drop for LockedStream {
    fn drop(&mut self) {
        if let Some(stream) = self.0 {
            // SAFETY: locked by this thread; the call that uses it is not over.
            unsafe { funlockfile(stream) };
        }
    }
}
