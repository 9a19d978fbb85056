//! Children that share their parent's memory and map: `shares.c`.

use crate::{
    BYTES, MEMORY, assert_same_but_told, compile, directory, file, softfault_run, stats, ways,
};
use std::path::Path;
use std::process::Command;

/// A case each way: the child's two mappings are declined, and the parent's are taken.
fn run(case: &str, taken: u64) {
    let directory = directory(&format!("shares-{case}"));
    let Some(program) = compile("shares.c", &directory.join("program"), &[]) else {
        return;
    };
    let data = file(&directory, BYTES);
    // One that waits for its child for ever ends, too.
    let ends = |mut command: Command| {
        let command = command.args(["timeout", "120"]);
        command.args([&program, Path::new(case), &data]).output()
    };
    let without = ends(Command::new("env")).unwrap();
    assert!(without.status.success(), "{without:?}");
    for how in ways() {
        let written = directory.join(format!("{how}.stats"));
        let _ = std::fs::remove_file(&written);
        let swap = format!("{}:100M", directory.display());
        let mut with = softfault_run();
        with.args(["--memory", MEMORY, "--faults", how, "--anonymous"]);
        with.args(["--swap", &swap, "--stats=json", "--stats-file"]);
        with.arg(&written).arg("--");
        let with = ends(with).unwrap();
        let stats = stats::read(&written);
        assert_same_but_told(&with, &without, &stats, how);
        assert_eq!(stats[0].taken(), taken, "{how}");
        let declined: Vec<_> = stats[0].declined();
        assert_eq!(declined, [("no_engine".to_owned(), 2)], "{how}");
    }
}

/// Failed before: the engine's threads were the child's. It stayed for ever, and its parent waited for it.
#[test]
fn a_child_in_its_parents_memory_maps_first_and_returns() {
    run("returns", 1);
    run("returns-to-waiting", 1);
}

/// Failed before: they ended with the child, and the parent's next touch was not served.
#[test]
fn a_child_in_its_parents_memory_maps_first_and_exits() {
    run("exits", 1);
    run("exits-to-waiting", 1);
}

#[test]
fn a_child_in_its_parents_memory_maps_beside_its_engine() {
    run("comes-later", 2);
}
