//! The userfaultfd of huge maps.
//!
//! One a process: in SIGBUS mode a fault takes no lock of it. What a child of fork has inherited acts
//! on the parent: it is closed there before anything else runs. In a child that ran no handlers
//! (a bare `clone`) the number says that it is not its own.

use crate::uffd::{Offers, open, register};
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};
use libc::c_int;

/// Who opened it in the upper half, one more than the descriptor in the lower; 0: nobody yet.
static OPENED: AtomicU64 = AtomicU64::new(0);

/// Registers a mapping for missing pages, or the errno.
pub(super) fn watch(range: &Range<usize>) -> Result<(), c_int> {
    register(descriptor()?, range, false)
}

/// In a child: its own is another.
pub(super) fn fork_child() {
    let word = OPENED.swap(0, Ordering::Relaxed);
    if word != 0 {
        close(number(word));
    }
}

fn descriptor() -> Result<c_int, c_int> {
    // Acquire pairs with the Release below.
    let before = OPENED.load(Ordering::Acquire);
    let me = u64::from(std::process::id());
    if before >> 32 == me {
        return Ok(number(before));
    }
    let fresh = open(Offers {
        protect: false,
        moves: false,
    })?;
    let word = me << 32 | (fresh as u64 + 1);
    let (set, failed) = (Ordering::AcqRel, Ordering::Acquire);
    match OPENED.compare_exchange(before, word, set, failed) {
        Ok(_) => Ok(fresh),
        Err(other) => {
            close(fresh);
            Ok(number(other))
        }
    }
}

fn number(word: u64) -> c_int {
    word as u32 as c_int - 1
}

fn close(fd: c_int) {
    // SAFETY: of this module, and nobody uses it any more.
    unsafe { libc::close(fd) };
}
