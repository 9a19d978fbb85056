//! Threads that are cancelled in calls and in touches: `cancel.c`.

use crate::{BYTES, compile, directory, file, same_each_way};

fn runs(case: &str) {
    let directory = directory(&format!("cancel-{case}"));
    let Some(program) = compile("cancel.c", &directory.join("program"), &[]) else {
        return;
    };
    let data = file(&directory, BYTES);
    let swap = format!("{}:300M", directory.display());
    let options = ["--min-size", "1M", "--anonymous", "--swap", &swap];
    // A lock that stays held would be waited for without end.
    let command = ["timeout".as_ref(), "300".as_ref(), program.as_ref()];
    let command = [&command[..], &[data.as_ref(), case.as_ref()]].concat();
    same_each_way(&directory, &command, &options, |stats, how| {
        assert!(stats.last().unwrap().taken() >= 2, "{how}");
    });
}

#[test]
fn threads_that_work_are_cancelled_a_thousand_times() {
    runs("work");
}

/// No call that changes mappings is a cancellation point, and no touch.
#[test]
fn a_cancelled_thread_goes_on_to_its_next_cancellation_point() {
    runs("pending");
}

#[test]
fn threads_that_wait_in_calls_are_cancelled() {
    runs("calls");
}
