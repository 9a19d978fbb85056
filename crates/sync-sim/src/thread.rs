//! Threads: the machine's inside one, real ones outside.

use crate::machine;
pub use crate::machine::JoinHandle;

/// Starts a thread.
#[track_caller]
pub fn spawn<T, F>(f: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    if machine::is_running() {
        machine::spawn_named("", 0, f)
    } else {
        JoinHandle::of_real(std::thread::spawn(f))
    }
}

/// Lets another thread that waits for this processor run.
#[track_caller]
pub fn yield_now() {
    if !machine::yield_now() {
        std::thread::yield_now();
    }
}
