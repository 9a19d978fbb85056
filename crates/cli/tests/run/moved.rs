//! The kernel puts mappings where a part of private memory was: `moved.c`.

use crate::{MEMORY, assert_same, compile, directory, softfault_run, stats, ways};
use std::process::Command;

#[test]
fn a_mapping_is_moved_to_where_a_part_was_unmapped() {
    let directory = directory("moved");
    let Some(program) = compile("moved.c", &directory.join("program"), &[]) else {
        return;
    };
    let without = Command::new(&program).output().unwrap();
    assert!(without.status.success(), "{without:?}");
    let swap = format!("{}:100M", directory.display());
    for how in ways() {
        let written = directory.join(format!("{how}.stats"));
        let _ = std::fs::remove_file(&written);
        let mut with = softfault_run();
        with.args(["--memory", MEMORY, "--min-size", "1M", "--faults", how]);
        with.args(["--anonymous", "--swap", &swap, "--stats=json"]);
        with.arg("--stats-file").arg(&written);
        let with = with.arg("--").arg(&program).output().unwrap();
        assert_same(&with, &without, how);
        let stats = stats::read(&written);
        assert_eq!((stats[0].taken(), stats[0].handed_back()), (3, 3), "{how}");
    }
}
