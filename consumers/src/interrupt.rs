//! Ctrl-C, or the end of the terminal, ends the run under way, and then this program as an error does: what was set is put back.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

static CAME: AtomicBool = AtomicBool::new(false);

/// From now on SIGINT, SIGTERM and SIGHUP are only noted; SIGHUP that nohup(1) has set to be ignored stays so.
pub fn watch() {
    extern "C" fn note(_: libc::c_int) {
        CAME.store(true, Relaxed);
    }
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler stores a flag, and nothing else.
        unsafe {
            let before = libc::signal(signal, note as *const () as libc::sighandler_t);
            if signal == libc::SIGHUP && before == libc::SIG_IGN {
                libc::signal(signal, libc::SIG_IGN);
            }
        }
    }
}

/// An error once there was one.
pub fn check() -> Result<(), String> {
    match CAME.load(Relaxed) {
        true => Err("interrupted".to_owned()),
        false => Ok(()),
    }
}
