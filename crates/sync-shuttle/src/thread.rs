//! Threads: shuttle's.

use crate::point::{Alive, point};

pub use shuttle::thread::{JoinHandle, yield_now};

/// Starts a thread. From here on every access is a scheduling point.
pub fn spawn<F, T>(f: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let alive = Alive::new();
    let handle = shuttle::thread::spawn(move || {
        let _alive = alive;
        f()
    });
    point();
    handle
}
