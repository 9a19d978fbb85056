//! Ctrl-C ends the run under way, and then this program as an error does: what was set is put back.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

static CAME: AtomicBool = AtomicBool::new(false);

/// From now on SIGINT and SIGTERM are only noted.
pub fn watch() {
    extern "C" fn note(_: libc::c_int) {
        CAME.store(true, Relaxed);
    }
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: the handler stores a flag, and nothing else.
        unsafe { libc::signal(signal, note as *const () as libc::sighandler_t) };
    }
}

/// An error once there was one.
pub fn check() -> Result<(), String> {
    match CAME.load(Relaxed) {
        true => Err("interrupted".to_owned()),
        false => Ok(()),
    }
}
