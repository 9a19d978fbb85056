//! Where the command writes its results and its words: what cannot be written costs nothing else.

use super::compare::stored;
use super::interrupted::{signal, start, until};
use super::ordinary_user::OrdinaryUser;
use super::{directory, finish, is_empty, refused, softfault};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Command;

/// Failed before: a panic, and exit code 101.
#[test]
fn a_stderr_that_cannot_be_written_changes_no_exit_code() {
    let dir = directory();
    let path = dir.path().join("file");
    fs::write(&path, "x").unwrap();
    let full = || File::options().write(true).open("/dev/full").unwrap();
    let mut sum = softfault(&["sum"]);
    let said = sum.arg(&path).stderr(full()).output().unwrap();
    assert_eq!(said.status.code(), Some(0));
    assert!(said.stdout.starts_with(b"2d711642b726b044"), "{said:?}");
    let mut wrong = softfault(&["nope"]);
    assert_eq!(wrong.stderr(full()).status().unwrap().code(), Some(2));
}

/// Failed before: after the run.
#[test]
fn results_that_cannot_be_written_are_refused_before_the_run() {
    let dir = directory();
    let data = dir.path().join("data");
    let run = |json: &str| {
        let mut command = softfault(&["lab", "run", "scan", "--on", "softfault"]);
        // More than there can be: whoever begins says so.
        command.args(["--file-size", "15T", "--json", json]);
        command.arg("--dir").arg(dir.path());
        command
    };
    refused(&mut run("/proc/x.json"), "cannot write /proc/x.json");
    fs::create_dir(&data).unwrap();
    assert!(is_empty(&data));
    let inside = data.join("results.json");
    let (code, _, err) = finish(&mut run(inside.to_str().unwrap()));
    assert_eq!(code, 2);
    assert!(!err.contains("cannot write"), "{err}");
    assert!(is_empty(&data), "nothing is left");
}

/// A page that takes the place of another: whole, with its permissions, and by a link.
#[test]
fn old_results_stay_until_the_new_ones_are_written() {
    let dir = directory();
    let (page, link) = (dir.path().join("page.html"), dir.path().join("link.html"));
    fs::write(&page, "<!DOCTYPE html>old").unwrap();
    fs::set_permissions(&page, Permissions::from_mode(0o640)).unwrap();
    symlink(&page, &link).unwrap();
    let results = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/results/random.json");
    let report = || {
        let mut command = softfault(&["lab", "report", results, "--output"]);
        command.arg(&link);
        command
    };
    // No file may be so long.
    let mut limited = report();
    // SAFETY: only system calls; nothing is allocated.
    unsafe { limited.pre_exec(no_longer_than::<100>) };
    refused(&mut limited, "cannot write");
    assert_eq!(fs::read_to_string(&page).unwrap(), "<!DOCTYPE html>old");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    let (code, _, err) = finish(&mut report());
    assert_eq!(code, 0, "{err}");
    assert!(fs::read_to_string(&page).unwrap().contains("<html"));
    let mode = fs::metadata(&page).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
}

/// Failed before: the old page was gone.
#[test]
fn an_old_page_stays_also_where_no_file_can_be_made_beside_it() {
    let user = OrdinaryUser::new();
    let results = user.files.join("results.json");
    fs::copy(stored("random.json"), &results).unwrap();
    let closed = user.files.join("closed");
    fs::create_dir(&closed).unwrap();
    let page = closed.join("page.html");
    let old = "<!DOCTYPE html>old";
    fs::write(&page, old).unwrap();
    let mode = |path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    mode(&results, 0o644);
    mode(&page, 0o666);
    mode(&closed, 0o555);
    let report = || {
        let mut command = user.command();
        command
            .args(["lab", "report", "-o"])
            .args([&page, &results]);
        command
    };
    let mut limited = report();
    // SAFETY: only system calls; nothing is allocated.
    unsafe { limited.pre_exec(no_longer_than::<100>) };
    refused(&mut limited, "cannot write");
    assert_eq!(fs::read_to_string(&page).unwrap(), old);
    // Of a longer one nothing is left.
    fs::write(&page, format!("{old}{}", "old".repeat(1 << 20))).unwrap();
    let (code, _, err) = finish(&mut report());
    assert_eq!(code, 0, "{err}");
    let new = fs::read_to_string(&page).unwrap();
    assert!(new.trim_end().ends_with("</html>") && !new.contains("oldold"));
    mode(&closed, 0o755);
}

/// Failed before: the link was the page.
#[test]
fn a_link_to_nothing_yet_stays_one() {
    let dir = directory();
    let link = dir.path().join("link.html");
    symlink("page.html", &link).unwrap();
    let mut report = softfault(&["lab", "report", &stored("random.json"), "-o"]);
    let (code, _, err) = finish(report.arg(&link));
    assert_eq!(code, 0, "{err}");
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(
        fs::metadata(dir.path().join("page.html"))
            .unwrap()
            .is_file()
    );
    fs::remove_file(&link).unwrap();
    symlink("none/page.html", &link).unwrap();
    let mut report = softfault(&["lab", "report", &stored("random.json"), "-o"]);
    refused(report.arg(&link), "no such directory");
}

/// Failed before: "No such file or directory", for the link of a pipe leads to no name.
#[test]
fn a_pipe_by_its_number() {
    let results = stored("random.json");
    let (code, out, err) = finish(&mut softfault(&[
        "lab",
        "report",
        &results,
        "-o",
        "/dev/stdout",
    ]));
    assert_eq!(code, 0, "{err}");
    assert!(out.starts_with("<!DOCTYPE html"), "{out}");
    assert!(out.trim_end().ends_with("</html>"), "{out}");
    let mut shell = Command::new("sh");
    shell.args(["-c", "\"$@\" 3>&1 >&2 | cat", "sh"]);
    shell.arg(env!("CARGO_BIN_EXE_softfault"));
    shell.args(["lab", "report", &results, "-o", "/dev/fd/3"]);
    let said = shell.output().unwrap();
    let page = String::from_utf8(said.stdout).unwrap();
    assert!(page.trim_end().ends_with("</html>"), "{page}");
}

/// Failed before: a file of that name.
#[test]
fn a_page_goes_to_stdout_by_a_dash() {
    let dir = directory();
    let mut report = softfault(&["lab", "report", &stored("random.json"), "-o", "-"]);
    let (code, out, err) = finish(report.current_dir(dir.path()));
    assert_eq!(code, 0, "{err}");
    assert!(out.starts_with("<!DOCTYPE html"), "{out}");
    assert!(out.trim_end().ends_with("</html>"), "{out}");
    assert!(is_empty(dir.path()));
}

/// Failed before: nothing was said, and the exit code was 0.
#[test]
fn help_that_cannot_be_written_is_an_error() {
    for arguments in [&["--help"][..], &["--version"], &["help", "sum"]] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let said = softfault(arguments).stdout(full).output().unwrap();
        let err = String::from_utf8(said.stderr).unwrap();
        assert_eq!(said.status.code(), Some(2), "{arguments:?}: {err}");
        assert!(err.starts_with("error: cannot write stdout: "), "{err}");
    }
}

/// Failed before: a file "page.html (deleted)".
#[test]
fn a_file_without_a_name() {
    let dir = directory();
    let mut shell = Command::new("sh");
    shell.args([
        "-c",
        "exec 3<>page.html; rm page.html; \"$@\" >&2 && cat <&3",
    ]);
    shell.args(["sh", env!("CARGO_BIN_EXE_softfault"), "lab", "report"]);
    shell.args([&stored("random.json"), "-o", "/dev/fd/3"]);
    let said = shell.current_dir(dir.path()).output().unwrap();
    let page = String::from_utf8(said.stdout).unwrap();
    assert!(page.starts_with("<!DOCTYPE html"), "{page}");
    assert!(page.trim_end().ends_with("</html>"), "{page}");
    assert!(is_empty(dir.path()));
}

/// No file of the process may be longer.
pub fn no_longer_than<const BYTES: u64>() -> io::Result<()> {
    let limit = libc::rlimit {
        rlim_cur: BYTES,
        rlim_max: BYTES,
    };
    // SAFETY: a structure of its size; no handler involved.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        libc::setrlimit(libc::RLIMIT_FSIZE, &limit);
    }
    Ok(())
}

/// As nohup(1) starts it.
#[test]
fn a_signal_that_was_to_be_ignored_is() {
    let dir = directory();
    let path = dir.path().join("data");
    let mut command = softfault(&["lab", "make", "--file-size", "512M"]);
    command.arg(&path);
    let ignores = || {
        // SAFETY: no handler involved.
        unsafe { libc::signal(libc::SIGHUP, libc::SIG_IGN) };
        Ok(())
    };
    // SAFETY: only a system call; nothing is allocated.
    unsafe { command.pre_exec(ignores) };
    let mut make = start(&mut command);
    let process = make.id();
    // It has begun to catch the others by then.
    until(&mut make, || {
        let files = fs::read_dir(format!("/proc/{process}/fd")).ok()?;
        let mut links = files
            .flatten()
            .filter_map(|fd| fs::read_link(fd.path()).ok());
        links.find(|link| link.starts_with(dir.path()))
    });
    signal(process, libc::SIGHUP);
    let status = make.wait().unwrap();
    assert_eq!((status.code(), status.signal()), (Some(0), None));
    assert!(path.is_file());
}

/// Failed before: a child waited for somebody to read what it writes to stderr, beyond the 64 KiB of a pipe, until the run was given up.
/// The dynamic linker writes more here.
#[test]
fn a_child_may_write_much_to_stderr() {
    let dir = directory();
    let mut run = softfault(&["lab", "run", "sparse", "--on", "softfault"]);
    run.args(["--file-size", "1M", "--memory", "8M", "--dir"]);
    run.arg(dir.path()).env("LD_DEBUG", "all");
    let output = run.output().unwrap();
    let table = String::from_utf8(output.stdout).unwrap();
    let is_done = table.contains("pages/s") && !table.contains("given up");
    assert!(output.status.success() && is_done, "{table}");
    // Of a program without a dynamic linker nothing is shown.
    let statically = cfg!(target_feature = "crt-static");
    assert!(
        statically || output.stderr.len() > 1 << 16,
        "{}",
        output.stderr.len()
    );
}
