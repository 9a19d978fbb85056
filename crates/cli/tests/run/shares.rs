//! Children that share their parent's memory and map: `shares.c`.

use crate::{BYTES, assert_same_but_told, compile, directory, file, run_with, ways};
use std::ffi::OsStr;
use std::process::Command;

/// A case each way: the child's two mappings are declined, and the parent's are taken.
fn run(case: &str, taken: u64) {
    let directory = directory(&format!("shares-{case}"));
    let Some(program) = compile("shares.c", &directory.join("program"), &[]) else {
        return;
    };
    let data = file(&directory, BYTES);
    // One that waits for its child for ever ends, too.
    let ends = ["timeout", "120"].map(OsStr::new);
    let own = [program.as_ref(), OsStr::new(case), data.as_ref()];
    let command = [&ends[..], &own].concat();
    let without = Command::new("env").args(&command).output().unwrap();
    assert!(without.status.success(), "{without:?}");
    for how in ways() {
        let written = directory.join(format!("{how}.stats"));
        let swap = format!("{}:100M", directory.display());
        let options = ["--faults", how, "--anonymous", "--swap", &swap];
        let (with, stats) = run_with(&options, &command, &written);
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
