//! Unit tests in a child of fork, which tells its test the line; 255 is a panic.

/// Runs `child` in a child; its number is the answer, 0 if all is well.
#[track_caller]
pub fn forked(child: impl FnOnce() -> i32) {
    // SAFETY: the child does what its test says, and ends.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: a child that hangs is killed.
        unsafe { libc::alarm(300) };
        // A child in a child fails by a panic in the first one.
        let child = std::panic::AssertUnwindSafe(child);
        let answer = std::panic::catch_unwind(child).unwrap_or(255);
        // SAFETY: ends the child.
        unsafe { libc::_exit(answer) };
    }
    let mut status = 0;
    // SAFETY: fills the status.
    unsafe { libc::waitpid(pid, &mut status, 0) };
    assert_eq!(status >> 8, 0, "the child's line; status {status:#x}");
    assert_eq!(status, 0, "a signal");
}

/// The line at which a child found something wrong.
macro_rules! check {
    ($holds:expr) => {
        if !$holds {
            return line!() as i32 % 254 + 1;
        }
    };
}
pub(crate) use check;
