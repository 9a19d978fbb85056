//! `lab make`, and that bytes read are really compared with a file's expected bytes.

use super::interrupted::{signal, start, until};
use super::{directory, finish, is_empty, refused, rows, softfault, words};
use serde_json::Value;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

fn make(dir: &Path) -> PathBuf {
    let path = dir.join("made");
    let (code, out, err) = finish(softfault(&["lab", "make", "--file-size", "4M"]).arg(&path));
    assert_eq!((code, out.as_str(), err.as_str()), (0, "", ""));
    assert_eq!(path.metadata().unwrap().len(), 4 << 20);
    assert_eq!(std::fs::read_dir(dir).unwrap().count(), 1);
    path
}

fn run(workload: &str, path: &Path) -> Vec<Value> {
    rows(&[
        "lab",
        "run",
        workload,
        "--on",
        "kernel,pread",
        "--memory",
        "16M",
        "--file",
        path.to_str().unwrap(),
    ])
}

#[test]
fn a_made_file_is_checked_and_another_is_not() {
    let dir = directory();
    let path = make(dir.path());
    for row in run("sparse", &path).iter().chain(&run("scan", &path)) {
        assert_eq!(
            (&row["checked"], &row["file_bytes"]),
            (&true.into(), &(4 << 20).into())
        );
    }
    // Not of whole pages, so that the last one is partial on every way to read it.
    std::fs::write(&path, vec![7; 2_000_001]).unwrap();
    for row in run("sparse", &path).iter().chain(&run("scan", &path)) {
        assert_eq!(
            (&row["checked"], &row["file_bytes"]),
            (&false.into(), &2_000_001.into())
        );
    }
    std::fs::write(&path, "x").unwrap();
    for row in run("sparse", &path).iter().chain(&run("scan", &path)) {
        assert_eq!(
            (&row["accesses"], &row["checked"]),
            (&1.into(), &false.into())
        );
    }
}

#[test]
fn wrong_data_fails_the_run_with_its_offset() {
    let dir = directory();
    let path = make(dir.path());
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.write_all_at(&[0x55; 4096], 300 * 4096).unwrap();
    file.sync_all().unwrap();
    for on in ["kernel", "pread"] {
        let run = [
            "lab",
            "run",
            "scan",
            "--pattern",
            "cold",
            "--memory",
            "16M",
            "--on",
            on,
            "--json",
            "-",
        ];
        let (code, out, err) = finish(softfault(&run).arg("--file").arg(&path));
        assert_eq!(code, 1, "{err}");
        let last = err.lines().last().unwrap();
        assert!(
            last.starts_with("error: scan cold on") && last.contains("offset 1228800:"),
            "{err}"
        );
        let rows: Vec<Value> = serde_json::from_str(&out).unwrap();
        assert!(
            rows[0]["error"]
                .as_str()
                .unwrap()
                .contains("offset 1228800:")
        );
    }
    // A touch sees it at the word it looks at.
    let run = words("lab run sparse --pattern sequential --touch 100 --on kernel");
    let (code, _, err) = finish(
        softfault(&run)
            .args(["--memory", "16M", "--file"])
            .arg(&path),
    );
    assert_eq!(code, 1);
    assert!(
        err.contains("wrong data at offset 12") && err.contains("0x5555555555555555"),
        "{err}"
    );
}

/// Failed before: no other user could read it.
#[test]
fn a_made_file_has_the_mode_of_any_file() {
    let dir = directory();
    let path = make(dir.path());
    let other = dir.path().join("other");
    std::fs::write(&other, "").unwrap();
    let mode = |path| std::fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode(&path), mode(&other));
    let mut again = softfault(&["lab", "make", "--file-size", "4M"]);
    refused(again.arg(&path), "is there already");
}

/// Failed before: a file of the full size was left.
#[test]
fn a_killed_command_leaves_no_file() {
    let dir = directory();
    let mut make = softfault(&["lab", "make", "--file-size", "512M"]);
    let mut make = start(make.arg(dir.path().join("made")));
    let process = make.id();
    until(&mut make, || {
        let files = std::fs::read_dir(format!("/proc/{process}/fd")).ok()?;
        let mut links = files.flatten().filter_map(|fd| fd.path().read_link().ok());
        links.find(|link| link.starts_with(dir.path()))
    });
    signal(process, libc::SIGKILL);
    make.wait().unwrap();
    assert!(is_empty(dir.path()));
}

/// Failed before: it ended with the name of a file that nobody asked for.
#[test]
fn a_directory_that_is_not_there_is_told_without_more() {
    let dir = directory();
    let none = dir.path().join("none");
    let mut make = softfault(&["lab", "make", "--file-size", "4M"]);
    let told = "none: No such file or directory (os error 2)\n";
    refused(make.arg(none.join("made")), told);
}
