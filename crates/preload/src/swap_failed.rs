//! The line about swap that cannot be written to. It is told in a fault, in any state of the program: so its text is made before.

use crate::options;
use crate::{program, standard_error};
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// What disks answer: no space, no quota, an error of theirs; and RLIMIT_FSIZE.
const ERRORS: [i32; 4] = [libc::ENOSPC, libc::EDQUOT, libc::EIO, libc::EFBIG];

type Lines = [String; ERRORS.len()];

/// The lines of this process; null before there is an engine with swap.
static LINES: AtomicPtr<Lines> = AtomicPtr::new(core::ptr::null_mut());

/// It was told; in children of fork too. Relaxed: set once, and guards nothing.
static IS_TOLD: AtomicBool = AtomicBool::new(false);

/// Before an engine is made, and in a child of fork that goes on with one.
pub fn prepare() {
    let Some(swap) = &options::get().swap else {
        return;
    };
    let (prefix, dir) = (program::line_prefix(), swap.dir());
    let lines = ERRORS.map(|errno| {
        let why = std::io::Error::from_raw_os_error(errno);
        format!("{prefix}: swap in {dir:?}: {why}; a store that needs memory raises SIGBUS\n")
    });
    // Leaked: a thread may read the one before. Release: a reader sees the lines.
    LINES.store(Box::into_raw(Box::new(lines)), Ordering::Release);
    softfault::on_swap_failure(tell);
}

fn tell(errno: i32) {
    // SAFETY: null, or leaked above. Acquire pairs with the Release above.
    let lines = unsafe { LINES.load(Ordering::Acquire).as_ref() };
    let at = ERRORS.iter().position(|&known| known == errno);
    if let (Some(lines), Some(at)) = (lines, at)
        && !IS_TOLD.swap(true, Ordering::Relaxed)
    {
        standard_error::print_line(&lines[at]);
    }
}
