//! The verdict on a patch whose test does not end in time, in a workspace of one crate.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use softfault_mutate::attempt::Bench;
use softfault_mutate::mutation::{Catch, Edit, Mutation};
use softfault_mutate::table::Cell;
use softfault_mutate::trial::Trial;
use softfault_mutate::workspace::digest;
use softfault_mutate::world::World;

const MANIFEST: &str = "[workspace]\nmembers = [\"crates/engine\"]\nresolver = \"3\"\n";
const CRATE: &str =
    "[package]\nname = \"softfault-engine\"\nversion = \"0.0.0\"\nedition = \"2024\"\n";
const LOCK: &str = "version = 4\n\n[[package]]\nname = \"softfault-engine\"\nversion = \"0.0.0\"\n";
const TESTS: &str = "#[test]
fn sleeps() {
    let millis = softfault_engine::SLEEP;
    std::thread::sleep(std::time::Duration::from_millis(millis));
}
";

fn write(root: &Path, source: &str) {
    let krate = root.join("crates/engine");
    fs::create_dir_all(krate.join("src")).unwrap();
    fs::create_dir_all(krate.join("tests")).unwrap();
    fs::create_dir_all(root.join("docs")).unwrap();
    fs::write(root.join("Cargo.toml"), MANIFEST).unwrap();
    fs::write(root.join("Cargo.lock"), LOCK).unwrap();
    fs::write(krate.join("Cargo.toml"), CRATE).unwrap();
    fs::write(krate.join("src/lib.rs"), source).unwrap();
    fs::write(krate.join("tests/parts.rs"), TESTS).unwrap();
}

fn source(millis: u64) -> String {
    format!("/// Milliseconds.\npub const SLEEP: u64 = {millis};\n")
}

/// The verdict on a patch that puts these lines in the place of a source whose test sleeps for so long.
fn verdict(name: &str, millis: u64, new: String) -> Cell {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let root = folder.join("root");
    let old = source(millis);
    write(&root, &old);
    let bench = Bench {
        source: folder.join("copy"),
        target: folder.join("target"),
        output: folder.join("output"),
        stop: Arc::new(AtomicBool::new(false)),
    };
    let mut trial = Trial::new(root, vec![bench], folder.join("answers"));
    trial.limit = |_| Duration::from_secs(6);
    let mutation = Mutation {
        name: name.into(),
        what: "a test for the tests".into(),
        caught_by: vec![Catch {
            world: World::Std,
            file: "parts".into(),
            test: "sleeps".into(),
        }],
        edits: vec![Edit {
            path: "crates/engine/src/lib.rs".into(),
            old,
            new,
        }],
    };
    let (rows, is_whole) = trial.all(&[mutation], &[World::Std]).unwrap();
    assert!(is_whole);
    rows[0].worlds[World::Std.name()].clone()
}

/// Failed before: it was caught, by a patch that changes nothing.
#[test]
fn a_slow_test_catches_nothing() {
    let missed = Cell::Missed { in_part: true };
    assert_eq!(
        verdict("slow", 8_000, source(8_000) + "pub const OTHER: u64 = 0;\n"),
        missed
    );
}

#[test]
fn a_test_that_hangs_catches_the_patch() {
    let is_caught = verdict("hangs", 0, source(600_000)).is_caught();
    assert!(is_caught);
}

#[test]
fn the_root_manifest_is_a_part_of_the_source() {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("digest");
    write(&root, &source(0));
    let before = digest(&root).unwrap();
    fs::write(root.join("Cargo.toml"), format!("{MANIFEST}\n")).unwrap();
    assert_ne!(before, digest(&root).unwrap());
}
