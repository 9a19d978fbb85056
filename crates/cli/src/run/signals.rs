//! Changes of the Rust runtime before `main` that are undone for the program: SIGPIPE, which it ignores.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

static SIGPIPE: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);

#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = before_main;

extern "C" fn before_main() {
    let mut now = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: only asks; a sigaction of zeros is valid, and the call fills it.
    let now = unsafe {
        libc::sigaction(libc::SIGPIPE, std::ptr::null(), now.as_mut_ptr());
        now.assume_init()
    };
    // Relaxed: there is one thread.
    SIGPIPE.store(now.sa_sigaction, Relaxed);
}

/// The program's signals are as ours were.
pub fn as_we_got_them() {
    // SAFETY: the default, or to be ignored: no handler outlives an exec.
    unsafe { libc::signal(libc::SIGPIPE, SIGPIPE.load(Relaxed)) };
}
