//! A disk that is full, and a file-size limit: one line, nothing left. Code 2, and 1 where a run was under way.

use super::{directory, is_empty, refused, softfault, words};
use serde_json::Value;
use std::ffi::{CStr, CString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

#[test]
fn a_file_size_limit_is_one_line() {
    let dir = directory();
    for make in [false, true] {
        let mut command = making(dir.path(), make);
        // SAFETY: setrlimit only, between fork and exec.
        unsafe {
            command.pre_exec(|| {
                let limit = libc::rlimit {
                    rlim_cur: 2 << 20,
                    rlim_max: 2 << 20,
                };
                done(libc::setrlimit(libc::RLIMIT_FSIZE, &limit))
            });
        }
        refused(&mut command, "File too large");
        assert!(is_empty(dir.path()));
    }
}

#[test]
fn a_full_disk_is_one_line() {
    let dir = directory();
    // The command sees a disk of 1 MiB in a mount namespace of its own, which ends with it.
    for make in [false, true] {
        let mut command = making(dir.path(), make);
        on_small_disk(&mut command, dir.path());
        match command.output() {
            // A machine without user namespaces for us, which says so by EPERM, ENOSPC or another error: the limit above is all that
            // can be shown.
            Err(e) => return no_small_disk(&e),
            Ok(_) => refused(&mut command, "No space left"),
        }
        assert!(is_empty(dir.path()));
    }
}

#[test]
fn a_full_swap_is_one_line() {
    let dir = directory();
    for on in ["softfault", "soft"] {
        let mut command = softfault(&["lab", "run", "anon", "--pattern", "uniform", "--on", on]);
        command.args("--size 96M --memory 24M --seconds 0.1 --timeout 120".split(' '));
        command.arg("--dir").arg(dir.path());
        on_small_disk(&mut command, dir.path());
        let output = match command.output() {
            Err(e) => return no_small_disk(&e),
            Ok(output) => output,
        };
        assert_eq!(output.status.code(), Some(1), "{on}: {output:?}");
        let told = String::from_utf8(output.stderr).unwrap();
        let told: Vec<&str> = told.lines().collect();
        let [line] = told[..] else {
            panic!("{on}: {told:?}");
        };
        assert!(
            line.contains("the swap in") && line.contains("is full"),
            "{on}: {line}"
        );
        assert!(!line.contains("signal"), "{on}: {line}");
        assert!(is_empty(dir.path()));
    }
}

/// Failed before: neither table nor JSON.
#[test]
fn rows_before_a_full_disk_are_not_lost() {
    let dir = directory();
    let run =
        "lab run thrash --on softfault --threads 1,8 --file-size 256K --memory 8M --seconds 0.1";
    let mut command = softfault(&words(run));
    command.args(["--json", "-", "--dir"]).arg(dir.path());
    on_small_disk(&mut command, dir.path());
    let output = match command.output() {
        Err(e) => return no_small_disk(&e),
        Ok(output) => output,
    };
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("thrash"), "a table: {told}");
    let last = told.lines().last().unwrap();
    assert!(last.contains("No space left"), "{told}");
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let threads: Vec<_> = rows.iter().map(|row| row["threads"].as_u64()).collect();
    assert_eq!(threads, [Some(1)]);
}

/// Failed before: exit code 1 and "it says nothing (signal: 7 (SIGBUS))".
#[test]
fn a_full_swap_is_one_line_of_a_profile() {
    let dir = directory();
    for faults in ["signals", "messages"] {
        let profile = [
            "lab",
            "profile",
            "--kind",
            "swap-in",
            "--touches",
            "2",
            "--faults",
        ];
        let mut command = softfault(&profile);
        command.arg(faults).arg("--dir").arg(dir.path());
        on_small_disk(&mut command, dir.path());
        let output = match command.output() {
            Err(e) => return no_small_disk(&e),
            Ok(output) => output,
        };
        let told = String::from_utf8(output.stderr).unwrap();
        if faults == "messages" && output.status.success() {
            softfault_skip::skipped("messages", "faults are not told by messages here");
            continue;
        }
        assert_eq!(output.status.code(), Some(1), "{faults}: {told}");
        assert_eq!(told.lines().count(), 1, "{faults}: {told}");
        assert!(
            told.contains("the swap in") && told.contains("is full"),
            "{told}"
        );
        assert!(is_empty(dir.path()));
    }
}

/// Failed before: it needed nine times the memory, and noticed that late.
#[test]
fn a_tour_needs_five_times_the_memory() {
    let dir = directory();
    let tour = |size: &'static CStr| {
        let mut command = softfault(&words("tour --memory 16M --seconds 0.1 --no-report --dir"));
        command.arg(dir.path());
        on_disk(&mut command, dir.path(), size);
        command
    };
    match tour(c"size=79m").output() {
        Err(e) => return no_small_disk(&e),
        Ok(_) => refused(&mut tour(c"size=79m"), "the tour needs 80.0 MiB"),
    }
    // In memory, the kernel's rows may be killed.
    let output = tour(c"size=81m").output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("the same over holes"), "to the end: {told}");
    let is_short = told.contains("is full") || told.contains("No space left");
    assert!(!is_short, "{told}");
}

/// Begins the command with a disk of 1 MiB at `dir`.
fn on_small_disk(command: &mut Command, dir: &Path) {
    on_disk(command, dir, c"size=1m");
}

fn on_disk(command: &mut Command, dir: &Path, size: &'static CStr) {
    let place = CString::new(dir.as_os_str().as_bytes()).unwrap();
    // SAFETY: system calls on live strings only, between fork and exec.
    unsafe { command.pre_exec(move || small_disk(&place, size)) };
}

fn making(dir: &Path, make: bool) -> Command {
    if make {
        let mut command = softfault(&["lab", "make", "--file-size", "4M"]);
        command.arg(dir.join("made"));
        return command;
    }
    let mut command = softfault(&["lab", "run", "scan", "--on", "kernel", "--file-size", "4M"]);
    command.arg("--dir").arg(dir);
    command
}

fn no_small_disk(why: &io::Error) {
    softfault_skip::skipped(
        "root",
        format_args!("no small file system can be mounted: {why}"),
    );
}

fn small_disk(place: &CStr, size: &CStr) -> io::Result<()> {
    // SAFETY: strings are live; nothing else is passed.
    unsafe {
        let is_root = libc::geteuid() == 0;
        let user = if is_root { 0 } else { libc::CLONE_NEWUSER };
        let (uid, gid) = (libc::geteuid(), libc::getegid());
        done(libc::unshare(libc::CLONE_NEWNS | user))?;
        if !is_root {
            // A user that this namespace does not map cannot create files in it (EOVERFLOW).
            write(c"/proc/self/setgroups", b"deny")?;
            write(c"/proc/self/uid_map", SameId::of(uid).bytes())?;
            write(c"/proc/self/gid_map", SameId::of(gid).bytes())?;
        }
        let (none, root) = (std::ptr::null(), c"/".as_ptr());
        let private = libc::MS_REC | libc::MS_PRIVATE;
        done(libc::mount(none, root, none, private, none.cast()))?;
        let tmpfs = c"tmpfs".as_ptr();
        done(libc::mount(
            tmpfs,
            place.as_ptr(),
            tmpfs,
            0,
            size.as_ptr().cast(),
        ))
    }
}

/// A line of uid_map or gid_map (user_namespaces(7)) that maps an id to itself. It is made without the heap: this is between fork
/// and exec.
struct SameId([u8; 24], usize);

impl SameId {
    fn of(number: u32) -> Self {
        let mut line = Self([0; 24], 0);
        let mut rest = &mut line.0[..];
        std::io::Write::write_fmt(&mut rest, format_args!("{number} {number} 1")).expect("room");
        line.1 = 24 - rest.len();
        line
    }

    fn bytes(&self) -> &[u8] {
        &self.0[..self.1]
    }
}

fn write(path: &CStr, bytes: &[u8]) -> io::Result<()> {
    // SAFETY: the path and the bytes are live.
    unsafe {
        let fd = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        done(fd.min(0))?;
        let written = libc::write(fd, bytes.as_ptr().cast(), bytes.len());
        done(if written < 0 { -1 } else { 0 })
    }
}

fn done(rc: i32) -> io::Result<()> {
    match rc {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
