//! Calls with lengths that nobody looks at, and a child of vfork that sets handlers: `odd_calls.c`.

use crate::{MEMORY, assert_same, compile, directory, file, softfault_run, stats, ways};
use std::process::Command;

#[test]
fn odd_arguments_and_children_of_vfork() {
    let directory = directory("odd-calls");
    let Some(program) = compile("odd_calls.c", &directory.join("program"), &[]) else {
        return;
    };
    let data = file(&directory, 16 << 20);
    let without = Command::new(&program).arg(&data).output().unwrap();
    assert!(without.status.success(), "{without:?}");
    for how in ways() {
        let written = directory.join(format!("{how}.stats"));
        let _ = std::fs::remove_file(&written);
        let mut with = softfault_run();
        with.args(["--memory", MEMORY, "--faults", how, "--stats=json"]);
        with.arg("--stats-file").arg(&written).arg("--");
        let with = with.arg(&program).arg(&data).output().unwrap();
        assert_same(&with, &without, how);
        let stats = stats::read(&written);
        assert_eq!(stats.last().expect("the program's own").taken(), 1, "{how}");
    }
}
