//! Whether the command was started with its standard input closed. The Rust runtime opens /dev/null in place of a closed one
//! before `main`, from which nothing is read, without an error.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

static WAS_CLOSED: AtomicBool = AtomicBool::new(false);

#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = before_main;

extern "C" fn before_main() {
    // SAFETY: only asks.
    let flags = unsafe { libc::fcntl(libc::STDIN_FILENO, libc::F_GETFD) };
    // Relaxed: there is one thread.
    WAS_CLOSED.store(flags < 0, Relaxed);
}

/// True if it was.
pub fn was_closed() -> bool {
    WAS_CLOSED.load(Relaxed)
}
