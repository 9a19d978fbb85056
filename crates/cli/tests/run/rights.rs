//! A program that gives its rights up has no thread that keeps them: `rights.c`.

use crate::nobody::is_root;
use crate::{MEMORY, assert_same, compile, directory, file, softfault_run, ways};
use std::process::Command;

/// Failed before: the threads that have softfault's descriptors went on as root, until something was opened.
#[test]
fn no_thread_keeps_rights_that_the_program_has_given_up() {
    if !is_root() {
        return softfault_skip::skipped("root", "only root can give its rights up");
    }
    let directory = directory("rights");
    let Some(program) = compile("rights.c", &directory.join("program"), &[]) else {
        return;
    };
    let data = file(&directory, 16 << 20);
    for case in ["name", "others", "number"] {
        let arguments = [case.as_ref(), data.as_os_str()];
        let without = Command::new(&program).args(arguments).output().unwrap();
        assert!(without.status.success(), "{case}: {without:?}");
        for how in ways() {
            let mut with = softfault_run();
            with.args(["--memory", MEMORY, "--min-size", "1M", "--faults", how]);
            // A call that waits for ever ends, too.
            with.args(["--", "timeout", "100"])
                .arg(&program)
                .args(arguments);
            assert_same(&with.output().unwrap(), &without, &format!("{case} {how}"));
        }
    }
}
