//! Unit tests in a child of fork, which tells its test the line; 255 is a panic. And tests in a process that has nothing of other tests.

/// Runs `child` in a child; its number is the answer, 0 if all is well.
#[track_caller]
pub fn forked(child: impl FnOnce() -> i32) {
    let parent = core::panic::Location::caller();
    // SAFETY: the child does what its test says, and ends.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: a child that hangs is killed.
        unsafe { libc::alarm(300) };
        // A child in a child fails by a panic in the first one.
        let child = std::panic::AssertUnwindSafe(child);
        let answer = std::panic::catch_unwind(child).unwrap_or(255);
        if answer != 0 {
            // What a panic printed stays in the child where the test's output is captured.
            let said = format!("a child of fork found something wrong, at {parent}: {answer}\n");
            // SAFETY: writes these bytes.
            unsafe { libc::write(2, said.as_ptr().cast(), said.len()) };
        }
        // SAFETY: ends the child.
        unsafe { libc::_exit(answer) };
    }
    let mut status = 0;
    // SAFETY: fills the status.
    unsafe { libc::waitpid(pid, &mut status, 0) };
    assert_eq!(status >> 8, 0, "the child's line; status {status:#x}");
    assert_eq!(status, 0, "a signal");
}

/// Runs one test of this program in a process of its own, which finds `key` in its environment.
#[track_caller]
pub fn run_alone(name: &str, key: &str, value: &str) {
    let mut test = std::process::Command::new(std::env::current_exe().unwrap());
    let test = test.args(["--exact", name, "--nocapture"]).env(key, value);
    let output = test.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let passed = output.status.success() && said.contains("1 passed");
    assert!(passed, "{name}, {key}={value}: {output:?}");
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
