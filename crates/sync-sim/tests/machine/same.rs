//! One seed, one run: in a process, in another, and in another build.

use crate::program::mixture;
use std::process::Command;

/// Says to the test in the child that it is one.
const CHILD: &str = "SOFTFAULT_PRINT_DIGEST";

#[test]
fn one_seed_has_one_run_and_others_have_others() {
    let (first, again) = (mixture(1, true), mixture(1, true));
    assert_eq!(first.trace, again.trace);
    assert_eq!(first.digest, again.digest);
    assert_eq!(
        first.digest,
        mixture(1, false).digest,
        "a trace changes nothing"
    );
    let mut digests: Vec<u64> = (0..20).map(|seed| mixture(seed, false).digest).collect();
    digests.sort_unstable();
    digests.dedup();
    assert_eq!(digests.len(), 20);
}

#[test]
fn prints_its_digest_if_asked() {
    if std::env::var_os(CHILD).is_some() {
        println!("digest {:016x}", mixture(7, false).digest);
    }
}

/// The digest in a process's output.
fn digest(command: &mut Command) -> String {
    let output = command.output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let at = text
        .find("digest ")
        .unwrap_or_else(|| panic!("no digest: {output:?}"));
    text[at + 7..at + 7 + 16].to_owned()
}

fn own() -> String {
    format!("{:016x}", mixture(7, false).digest)
}

#[test]
fn another_process_has_the_same_run() {
    let program = std::env::current_exe().expect("the test's own file");
    for environment in ["", "a longer environment moves the stack"] {
        let mut child = Command::new(&program);
        child.args(["--exact", "same::prints_its_digest_if_asked", "--nocapture"]);
        child.env(CHILD, environment.repeat(100));
        assert_eq!(digest(&mut child), own());
    }
}

#[test]
fn another_build_has_the_same_run() {
    // The profile that this test is not: code, inlining and stacks differ.
    let (profile, directory) = match cfg!(debug_assertions) {
        true => ("release", "release"),
        false => ("dev", "debug"),
    };
    let target = concat!(env!("CARGO_TARGET_TMPDIR"), "/another_build");
    let built = Command::new(env!("CARGO"))
        .args(["build", "--offline", "--quiet", "--profile", profile])
        .args(["--package", "softfault-sync-sim", "--example", "digest"])
        .args(["--target-dir", target])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status();
    assert!(built.expect("cargo starts").success());
    let mut other = Command::new(format!("{target}/{directory}/examples/digest"));
    assert_eq!(digest(&mut other), own());
}
