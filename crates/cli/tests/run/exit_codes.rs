//! Exit codes: 125, 126 and 127 as of env(1), and otherwise the program's own.

use crate::cases::Cases;
use crate::elsewhere::Elsewhere;
use crate::filter::{KILL, REFUSE, closed};
use crate::nobody::is_root;
use crate::{compile, directory, pipe, refuses, softfault_run, stats, unwritten};
use softfault_skip::skipped;
use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;

fn refuses_program(program: &Path, code: i32, why: &str) {
    refuses(softfault_run().arg("--").arg(program), code, why);
}

fn executable(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    unwritten::wait(path);
}

#[test]
fn otherwise_they_are_the_program_s() {
    for code in [0, 1, 2, 125, 126, 127, 255] {
        let script = format!("exit {code}");
        let run = softfault_run().args(["--", "sh", "-c", &script]).status();
        assert_eq!(run.unwrap().code(), Some(code));
    }
    let run = softfault_run()
        .args(["--", "sh", "-c", "kill -9 $$"])
        .status();
    assert_eq!(run.unwrap().signal(), Some(9));
}

#[test]
fn a_program_that_is_not_there() {
    refuses_program("no-such-program".as_ref(), 127, "no such program in PATH");
    refuses_program("/no/such/program".as_ref(), 127, "no such program");
    refuses_program("".as_ref(), 127, "the program's name is empty");
    let script = directory("lost").join("script");
    executable(&script, "#!/no/such/interpreter\n");
    refuses_program(&script, 127, "No such file");
    // `json` is meant for the option in front of it.
    let mut command = softfault_run();
    command.args(["--stats", "json", "--", "true"]);
    refuses(&mut command, 127, "did you mean --stats=json?");
}

#[test]
fn a_program_that_is_not_executable() {
    let directory = directory("odd");
    let file = directory.join("text");
    fs::write(&file, "no program").unwrap();
    refuses_program(&file, 126, "Permission denied");
    refuses_program(&file.join("program"), 126, "Not a directory");
    let mut by_path = softfault_run();
    by_path.env("PATH", &directory).args(["--", "text"]);
    refuses(&mut by_path, 126, "not executable");
    for name in [".", "..", "/tmp", "./"] {
        refuses_program(name.as_ref(), 126, "it is a directory");
    }
    // Another place of PATH has one that is.
    let places = [directory.clone(), directory.join("bin")];
    fs::create_dir_all(&places[1]).unwrap();
    executable(&places[1].join("text"), "#!/bin/sh\nexit 5\n");
    let path = std::env::join_paths(&places).unwrap();
    let run = softfault_run()
        .env("PATH", path)
        .args(["--", "text"])
        .status();
    assert_eq!(run.unwrap().code(), Some(5));
}

/// Failed before: it was opened, and waited for whoever would write to it.
#[test]
fn a_pipe_is_no_program() {
    let directory = directory("pipe");
    let pipe = pipe(&directory);
    refuses_program(&pipe, 126, "not a regular file");
    let script = directory.join("script");
    executable(&script, &format!("#!{}\n", pipe.display()));
    refuses_program(&script, 126, "Permission denied");
}

/// Failed before: "Exec format error", and 126.
#[test]
fn a_script_that_names_no_interpreter_is_run_by_the_shell() {
    let directory = directory("no-interpreter");
    let script = directory.join("script");
    // The library is in the shell.
    let text = r#"grep -q libsoftfault_preload /proc/$$/maps || exit 9
echo "$0,$#,$1,$2"; exit 5"#;
    executable(&script, text);
    let shown = script.display().to_string();
    for name in [shown.as_str(), "script"] {
        let mut run = softfault_run();
        let run = run.env("PATH", with_path(&directory));
        let run = run.args(["--", name, "-x", "b c"]).output().unwrap();
        let out = String::from_utf8_lossy(&run.stdout);
        assert_eq!(run.status.code(), Some(5), "{run:?}");
        assert_eq!(out, format!("{shown},2,-x,b c\n"));
    }
    executable(&script, "");
    assert_eq!(
        softfault_run()
            .arg("--")
            .arg(&script)
            .status()
            .unwrap()
            .code(),
        Some(0)
    );
}

/// A directory, and behind it PATH's own.
fn with_path(first: &Path) -> OsString {
    let path = std::env::var_os("PATH").unwrap();
    let places = [first.to_owned()]
        .into_iter()
        .chain(std::env::split_paths(&path));
    std::env::join_paths(places).unwrap()
}

#[test]
fn a_program_that_no_library_can_be_loaded_into() {
    let directory = directory("static");
    let program = compile("cases.c", &directory.join("static"), &["-static"]);
    if let Some(program) = program {
        refuses_program(&program, 126, "statically linked");
    }
    if !is_root() {
        return skipped("root", "only root can make another user's setuid program");
    }
    let program = directory.join("setuid");
    fs::copy("/bin/grep", &program).unwrap();
    chown(&program, Some(1), Some(1)).unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o4755)).unwrap();
    refuses_program(&program, 126, "setuid");
    // A script is judged by its interpreter.
    let script = directory.join("script");
    executable(&script, &format!("#!{} -x\n", program.display()));
    refuses_program(&script, 126, "setuid");
    // Failed before: it was refused, too.
    let mut run = softfault_run();
    // SAFETY: a system call, which gives nobody more rights.
    unsafe { run.pre_exec(no_new_privileges) };
    run.arg("--").arg(&program);
    let run = run.args(["-q", "libsoftfault_preload", "/proc/self/maps"]);
    let run = run.output().unwrap();
    assert!(run.status.success(), "{run:?}");
    // Failed before: the program ran without softfault, and nobody said so.
    let mut run = softfault_run();
    // SAFETY: a system call.
    unsafe { run.pre_exec(of_another_user) };
    refuses(run.args(["--", "/bin/true"]), 126, "another effective user");
}

fn no_new_privileges() -> std::io::Result<()> {
    // SAFETY: takes numbers only.
    match unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Root's rights in a process of another user.
fn of_another_user() -> std::io::Result<()> {
    // SAFETY: takes numbers only.
    match unsafe { libc::setresuid(1, 0, 0) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Capabilities of a file, as the kernel keeps them: the version, the permitted set and the inheritable one, by halves.
fn set_capabilities(file: &Path, head: u32, permitted: u32) -> bool {
    use std::os::unix::ffi::OsStrExt;
    let words = [head, permitted, 0, 0, 0].map(u32::to_le_bytes);
    let path = std::ffi::CString::new(file.as_os_str().as_bytes()).unwrap();
    let value = words.as_flattened();
    // SAFETY: reads the path, the name and so many bytes.
    let set = unsafe {
        let name = c"security.capability".as_ptr();
        libc::setxattr(path.as_ptr(), name, value.as_ptr().cast(), value.len(), 0)
    };
    set == 0
}

#[test]
fn a_program_with_file_capabilities() {
    const VERSION: u32 = 0x0200_0000;
    const EFFECTIVE: u32 = 1;
    const NET_RAW: u32 = 1 << 13;
    if !is_root() {
        return skipped("root", "only root can give a file capabilities");
    }
    let place = Elsewhere::new();
    let program = place.copy("/bin/true".as_ref(), "capable");
    for (head, permitted, refused) in [
        (VERSION | EFFECTIVE, NET_RAW, true),
        (VERSION, NET_RAW, true),
        (VERSION | EFFECTIVE, 0, true),
        (VERSION, 0, false),
    ] {
        if !set_capabilities(&program, head, permitted) {
            let why = std::io::Error::last_os_error();
            return skipped("xattr", format_args!("a file has no capabilities: {why}"));
        }
        let shown = program.display().to_string();
        let mut shows = place.softfault(&["run", "--", &shown]);
        if refused {
            refuses(&mut shows, 126, "file capabilities");
        } else {
            assert!(shows.status().unwrap().success());
        }
        // Root gains nothing by it.
        let mut by_root = softfault_run();
        assert!(by_root.arg("--").arg(&program).status().unwrap().success());
        // A script is judged by its interpreter.
        let script = place.copy(&program, "script");
        executable(&script, &format!("#!{shown}\n"));
        let script = script.display().to_string();
        let run = place.softfault(&["run", "--", &script]).status().unwrap();
        assert_eq!(run.code(), Some(if refused { 126 } else { 0 }));
    }
}

#[test]
fn softfault_itself_fails() {
    let place = Elsewhere::new();
    fs::remove_file(place.library()).unwrap();
    let mut command = place.softfault(&["run", "--", "echo", "ran"]);
    refuses(&mut command, 125, "is neither in");
    let mut command = softfault_run();
    command.args([
        "--stats",
        "--stats-file",
        "/no/such/file",
        "--",
        "echo",
        "ran",
    ]);
    refuses(
        &mut command,
        125,
        "--stats-file /no/such/file: No such file",
    );
    let mut command = softfault_run();
    command.envs([
        ("SOFTFAULT_RUN_STATS", "text"),
        ("SOFTFAULT_RUN_STATS_FILE", "/proc/none"),
    ]);
    refuses(
        command.args(["--", "echo", "ran"]),
        125,
        "--stats-file /proc/none",
    );
}

/// An ordinary user, and whether messages are allowed to him: as `doctor` says.
#[test]
fn messages_are_refused_before_the_program_starts() {
    let place = Elsewhere::new();
    let doctor = place.softfault(&["doctor", "--json"]).output().unwrap();
    let rows: serde_json::Value = serde_json::from_slice(&doctor.stdout).unwrap();
    let mut rows = rows.as_array().unwrap().iter();
    let row = rows.find(|row| row["name"] == "run-messages").unwrap();
    let arguments = ["run", "--faults", "messages", "--", "echo", "ran"];
    if row["state"] == "ok" {
        let run = place.softfault(&arguments).output().unwrap();
        assert_eq!(
            (run.status.code(), &run.stdout[..]),
            (Some(0), &b"ran\n"[..])
        );
    } else {
        let found = row["found"].as_str().unwrap();
        refuses(&mut place.softfault(&arguments), 125, found);
        let mut by_variable = place.softfault(&["run", "--", "echo", "ran"]);
        refuses(
            by_variable.env("SOFTFAULT_RUN_FAULTS", "messages"),
            125,
            found,
        );
    }
}

/// Where userfaultfd(2) is closed, and so faults by signals, messages come by the device, or are refused in a line.
#[test]
fn messages_come_by_the_device_where_the_call_is_closed() {
    let Some(cases) = Cases::get() else { return };
    let call = [libc::SYS_userfaultfd];
    let mut device = fs::File::options();
    if device
        .read(true)
        .write(true)
        .open("/dev/userfaultfd")
        .is_err()
    {
        let mut with = softfault_run();
        with.args(["--faults", "messages", "--", "echo", "ran"]);
        let why = "userfaultfd(2): Operation not permitted";
        return refuses(closed(&mut with, &call, REFUSE), 125, why);
    }
    for action in [REFUSE, KILL] {
        let written = cases.stats_file("by-device");
        let mut with = cases.with("twice", &written);
        with.env("SOFTFAULT_RUN_FAULTS", "messages");
        let with = closed(&mut with, &call, action).output().unwrap();
        assert!(with.status.success(), "{with:?}");
        assert_eq!(stats::read(&written)[0].taken(), 2);
    }
    // No engine can be made: told before the program begins.
    let mut with = softfault_run();
    with.args(["--faults", "messages", "--", "echo", "ran"]);
    let why = "madvise is denied";
    refuses(closed(&mut with, &[libc::SYS_madvise], REFUSE), 125, why);
}

#[test]
fn a_program_that_only_another_user_may_run_is_passed_over() {
    if !is_root() {
        return skipped("root", "only root has a program that nobody else may run");
    }
    let elsewhere = Elsewhere::new();
    let closed = elsewhere.copy(Path::new("/bin/true"), "program");
    fs::set_permissions(&closed, Permissions::from_mode(0o700)).unwrap();
    let first = closed.parent().unwrap();
    let second = first.join("bin");
    fs::create_dir(&second).unwrap();
    executable(&second.join("program"), "#!/bin/sh\nexit 5\n");
    let path = std::env::join_paths([first, &second]).unwrap();
    let mut command = elsewhere.softfault(&["run", "--", "program"]);
    assert_eq!(command.env("PATH", path).status().unwrap().code(), Some(5));
}
