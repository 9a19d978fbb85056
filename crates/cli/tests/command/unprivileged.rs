//! An ordinary user: no cgroup, no dropping of the system's caches; the rows say so and are measured all
//! the same.

use super::read_ahead::bdi;
use super::rows::{LATE, may_lack_peak};
use super::{finish, is_empty};
use serde_json::Value;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Nobody's, on every Linux.
const NOBODY: u32 = 65534;

#[test]
fn a_tour_that_cannot_set_the_read_ahead_says_which_it_had() {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
    let program = dir.path().join("softfault");
    fs::copy(env!("CARGO_BIN_EXE_softfault"), &program).unwrap();
    crate::unwritten::wait(&program);
    let mut command = Command::new(&program);
    let arguments = "tour --memory 16M --seconds 0.1 --no-report --dir";
    command.args(arguments.split(' ')).arg(dir.path());
    // SAFETY: asks for a number only.
    if unsafe { libc::geteuid() } == 0 {
        command.uid(NOBODY).gid(NOBODY);
    }
    let (code, out, err) = finish(&mut command);
    assert_eq!(code, 0, "{err}");
    assert!(!out.contains("read_ahead_kb=") && out.contains(" kernel "));
    match bdi(dir.path()).exists() {
        true => {
            assert!(err.contains("and is shown at that alone: cannot set"));
            assert!(out.contains("\nthe kernel reads ") && out.contains(" KiB ahead"));
        }
        false => assert!(err.contains("KiB ahead") || err.contains("is not known")),
    }
}

#[test]
fn rows_without_a_cgroup_say_so() {
    // A place that nobody can reach, with a copy of the command: the target's may be closed to others.
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    let program = dir.path().join("softfault");
    fs::copy(env!("CARGO_BIN_EXE_softfault"), &program).unwrap();
    crate::unwritten::wait(&program);
    let files = dir.path().join("files");
    fs::create_dir(&files).unwrap();
    fs::set_permissions(&files, Permissions::from_mode(0o777)).unwrap();

    let mut command = Command::new(&program);
    command.args([
        "lab",
        "run",
        "sparse",
        "--on",
        "kernel-random,pread,softfault",
        "--pattern",
        "random",
    ]);
    command
        .args([
            "--file-size",
            "8M",
            "--memory",
            "16M",
            "--json",
            "-",
            "--dir",
        ])
        .arg(&files);
    // SAFETY: asks for a number only.
    if unsafe { libc::geteuid() } == 0 {
        command.uid(NOBODY).gid(NOBODY);
    }
    let (code, out, err) = finish(&mut command);
    assert_eq!(code, 0, "{err}");
    let rows: Vec<Value> = serde_json::from_str(&out).unwrap();
    for row in &rows {
        let notes = row["notes"].to_string();
        assert!(notes.contains("caches:"), "{notes}");
        assert_eq!(
            (&row["accesses"], &row["checked"]),
            (&20.into(), &true.into())
        );
        // Some systems delegate a cgroup to their users; then the row is a limited one.
        match row["limited"].as_bool().unwrap() {
            true => assert!(row["peak_bytes"].is_u64() || may_lack_peak()),
            false => assert!(
                row["on"] == "pread" || notes.contains("no memory cgroup"),
                "{notes}"
            ),
        }
    }
    assert!(is_empty(&files));

    let mut command = Command::new(&program);
    let arguments =
        "lab run anon --on kernel,direct --size 1M --memory 4M --seconds 0.1 --json - --dir";
    command.args(arguments.split(' ')).arg(&files).args(LATE);
    // SAFETY: asks for a number only.
    if unsafe { libc::geteuid() } == 0 {
        command.uid(NOBODY).gid(NOBODY);
    }
    let (code, out, err) = finish(&mut command);
    assert_eq!(code, 0, "{err}");
    let rows: Vec<Value> = serde_json::from_str(&out).unwrap();
    for row in &rows {
        match row["on"].as_str() {
            Some("kernel") => {
                let why = row["skipped"].as_str().expect("nobody may swap");
                assert_eq!(why.lines().count(), 1);
                assert!(
                    err.contains(&format!("note: kernel: not run: {why}")),
                    "{err}"
                );
            }
            _ => assert!(
                row["skipped"].is_null() && row["accesses"].as_u64() > Some(0),
                "{row}"
            ),
        }
    }
    assert!(is_empty(&files));
}
