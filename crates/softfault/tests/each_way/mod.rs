//! Scenarios that run under each way in which faults arrive.

use super::child;
use softfault::{Engine, MIN_MEMORY};
use std::time::Duration;

const WAYS: [&str; 3] = ["signals", "threads", "messages"];

/// Has `test` run again in a process for each way, and is true there: the rest of it is for these. A fault without end ends the process.
#[track_caller]
pub fn alone(test: &str) -> bool {
    let Some(way) = child::scenario() else {
        for way in WAYS {
            let mut command = child::command(test, way);
            child::succeeds_with(command.env("SOFTFAULT_FAULTS", way), way);
        }
        return false;
    };
    // SAFETY: ends this process if it hangs. In the kernel's hands: all signals that
    // are masked in a fault would wait.
    unsafe { libc::alarm(300) };
    std::thread::spawn(|| {
        std::thread::sleep(Duration::from_secs(290));
        eprintln!("a fault without end");
        std::process::abort();
    });
    is_served(&way)
}

/// True if faults arrive in this way here.
fn is_served(way: &str) -> bool {
    let Err(why) = Engine::builder().memory(MIN_MEMORY).build() else {
        return true;
    };
    assert_eq!(way, "messages", "{why}");
    softfault_skip::skipped(
        "messages",
        format_args!("the kernel's faults cannot be served here: {why}"),
    );
    false
}
