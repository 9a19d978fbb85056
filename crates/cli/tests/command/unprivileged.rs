//! An ordinary user: no cgroup, no dropping of the system's caches; the rows say so and are measured all
//! the same.

use super::ordinary_user::OrdinaryUser;
use super::read_ahead::bdi;
use super::rows::{LATE, may_lack_peak};
use super::{finish, is_empty};
use serde_json::Value;

#[test]
fn a_tour_that_cannot_set_the_read_ahead_says_which_it_had() {
    let user = OrdinaryUser::new();
    let mut command = user.command();
    let arguments = "tour --memory 16M --seconds 0.1 --no-report --dir";
    command.args(arguments.split(' ')).arg(&user.files);
    let (code, out, err) = finish(&mut command);
    assert_eq!(code, 0, "{err}");
    assert!(!out.contains("read_ahead_kb=") && out.contains(" kernel "));
    let is_unlimited = out.contains("no memory cgroup");
    let words = "(without a limit: no memory cgroup can be made here, ";
    assert_eq!(err.contains(words), is_unlimited, "{err}{out}");
    for words in ["(in a memory cgroup)", "reclaim in a cgroup"] {
        assert_eq!(err.contains(words), !is_unlimited, "{err}{out}");
    }
    match bdi(&user.files).exists() {
        true => {
            assert!(err.contains("and is shown at that alone: cannot set"));
            assert!(out.contains("\nthe kernel reads ") && out.contains(" KiB ahead"));
        }
        false => assert!(err.contains("KiB ahead") || err.contains("is not known")),
    }
}

#[test]
fn rows_without_a_cgroup_say_so() {
    let user = OrdinaryUser::new();
    let files = &user.files;
    let mut command = user.command();
    command.args("lab run sparse --on kernel-random,pread,softfault --pattern random".split(' '));
    command
        .args("--file-size 8M --memory 16M --json - --dir".split(' '))
        .arg(files);
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
    assert!(is_empty(files));

    let mut command = user.command();
    let arguments =
        "lab run anon --on kernel,direct --size 1M --memory 4M --seconds 0.1 --json - --dir";
    command.args(arguments.split(' ')).arg(files).args(LATE);
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
    assert!(is_empty(files));
}
