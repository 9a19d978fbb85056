//! `doctor` tells the truth: of this machine, and of one on which things are closed (by a seccomp
//! filter, a limit or a mask that the command is started under).

use super::filter::{KILL, REFUSE, closed};
use super::ordinary_user::OrdinaryUser;
use super::{directory, finish, is_empty, kernel, refused, softfault, tmpfs};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// A row, checked for its form: `costs` and `mend` are there if something lacks.
fn row(row: &Value) -> (String, [String; 4]) {
    let row = row.as_object().expect("a row is an object");
    let keys: Vec<_> = row.keys().map(String::as_str).collect();
    let mut expected = ["name", "state", "found", "costs", "mend"];
    expected.sort_unstable();
    let mut sorted = keys.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, expected);
    let text = |key: &str| row[key].as_str().map(str::to_owned);
    let (name, state, found) = (text("name"), text("state"), text("found"));
    let (name, state, found) = (name.unwrap(), state.unwrap(), found.unwrap());
    assert!(!found.is_empty(), "{name}");
    let lacks = match state.as_str() {
        "ok" => false,
        "slower" | "missing" => true,
        other => panic!("{name}: {other}"),
    };
    for key in ["costs", "mend"] {
        assert_eq!(
            text(key).is_some_and(|text| !text.is_empty()),
            lacks,
            "{name}: {key}"
        );
        assert!(lacks || row[key].is_null(), "{name}: {key}");
    }
    let [costs, mend] = ["costs", "mend"].map(|key| text(key).unwrap_or_default());
    (name, [state, found, costs, mend])
}

/// Runs it with `--json`; the exit code, and state, found, costs and mend by name.
fn rows(command: &mut Command) -> (i32, BTreeMap<String, [String; 4]>) {
    let (code, out, err) = finish(command.arg("--json"));
    let all: Vec<Value> = serde_json::from_str(&out).expect("an array of rows");
    let rows: BTreeMap<_, _> = all.iter().map(row).collect();
    assert_eq!(rows.len(), all.len(), "a name twice");
    let is_ok = |name: &str| rows[name][0] == "ok";
    let verdict = match (is_ok("served-fault"), is_ok("run-messages")) {
        (true, _) => (0, "Maps can be served here"),
        (false, true) => (1, "No map can be served here, but by messages"),
        (false, false) => (1, "No map can be served here;"),
    };
    assert_eq!(code, verdict.0, "{err}");
    assert!(
        err.starts_with(verdict.1) && err.lines().count() == 1,
        "{err}"
    );
    (code, rows)
}

#[test]
fn this_machine_is_told_in_rows_and_in_a_table() {
    let dir = directory();
    let dir = dir.path();
    let (code, rows) = rows(softfault(&["doctor", "--dir"]).arg(dir));
    assert_eq!(code, 0, "the other tests need the missing feature");
    for name in ["userfaultfd", "sigbus-mode", "served-fault"] {
        assert_eq!(rows[name][0], "ok", "{name}");
    }
    assert!(
        rows["served-fault"][1].contains("9 pages"),
        "{:?}",
        rows["served-fault"]
    );
    assert!(rows["direct-reads"][1].contains(dir.to_str().unwrap()));

    let (code, out, err) = finish(softfault(&["doctor", "--dir"]).arg(dir));
    assert_eq!((code, err.as_str()), (0, ""));
    for line in out
        .lines()
        .filter(|line| !line.starts_with("Maps can be served"))
    {
        assert!(line.chars().count() <= 100, "{line}");
    }
    for name in rows.keys() {
        assert!(out.contains(&format!(" {name} ")), "{name}");
    }
    assert!(
        out.lines()
            .last()
            .unwrap()
            .starts_with("Maps can be served here"),
        "{out}"
    );
    assert!(is_empty(dir));
}

#[test]
fn the_probe_agrees_with_the_machine() {
    let (_, rows) = rows(&mut softfault(&["doctor"]));
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let release = read("/proc/sys/kernel/osrelease");
    assert!(rows["kernel"][1].contains(release.trim()));
    let mappings = read("/proc/sys/vm/max_map_count");
    assert!(rows["max-map-count"][1].contains(mappings.trim()));
    let version = kernel();
    // The features that a mainline kernel of this age has, the probes find.
    for (name, since) in [
        ("pagemap-scan", (6, 7)),
        ("self-madvise", (6, 13)),
        ("batched-flush", (6, 16)),
    ] {
        // An older one may have it from its distribution.
        let there = rows[name][0] == "ok";
        assert!(there || version < since, "{name}: {:?}", rows[name]);
    }
}

#[test]
fn closed_userfaultfd_is_missing_and_mendable() {
    for action in [REFUSE, KILL] {
        let dir = directory();
        let mut command = softfault(&["doctor", "--dir"]);
        command.arg(dir.path());
        let (code, rows) = rows(closed(&mut command, &[libc::SYS_userfaultfd], action));
        assert_eq!(code, 1);
        for name in ["userfaultfd", "sigbus-mode", "served-fault"] {
            assert_eq!(rows[name][0], "missing", "{name}");
        }
        let [_, found, costs, mend] = &rows["userfaultfd"];
        let word = if action == KILL {
            "signal 31"
        } else {
            "Operation not permitted"
        };
        assert!(found.contains(word), "{found}");
        assert!(costs.contains("no map can be served"), "{costs}");
        assert!(mend.contains("seccomp"), "{mend}");
        assert!(rows["kernel"][1].contains("seccomp"));
        // The library's error says to run the command that is running.
        assert!(
            rows.values()
                .flatten()
                .all(|text| !text.contains("softfault doctor"))
        );
        assert_eq!(rows["io_submit"][0], "ok");
        assert!(is_empty(dir.path()));
    }
}

#[test]
fn the_librarys_error_leads_here() {
    let dir = directory();
    let file = dir.path().join("file");
    fs::write(&file, "x").unwrap();
    let mut command = softfault(&["sum"]);
    refused(
        closed(command.arg(&file), &[libc::SYS_userfaultfd], REFUSE),
        "`softfault doctor`",
    );
}

#[test]
fn closed_asynchronous_reads_are_missing_but_maps_are_served() {
    for action in [REFUSE, KILL] {
        let uring = libc::SYS_io_uring_setup;
        let (code, rows) = rows(closed(&mut softfault(&["doctor"]), &[uring], action));
        assert_eq!(code, 0);
        assert_eq!(rows["io_uring"][0], "missing");
        assert!(
            rows["io_uring"][3].contains("seccomp"),
            "{:?}",
            rows["io_uring"]
        );
        assert_eq!(rows["io_submit"][0], "ok");
    }
    let both = [libc::SYS_io_uring_setup, libc::SYS_io_setup];
    let (code, rows) = rows(closed(&mut softfault(&["doctor"]), &both, REFUSE));
    assert_eq!(code, 0);
    for name in ["io_uring", "io_submit"] {
        assert_eq!(rows[name][0], "missing");
        assert!(rows[name][3].contains("seccomp"), "{:?}", rows[name]);
    }
    assert!(rows["served-fault"][1].contains("nothing reads ahead"));
}

#[test]
fn a_closed_process_madvise_is_slower() {
    let call = libc::SYS_process_madvise;
    let (code, rows) = rows(closed(&mut softfault(&["doctor"]), &[call], REFUSE));
    assert_eq!(code, 0);
    for name in ["self-madvise", "batched-flush"] {
        assert_eq!(rows[name][0], "slower", "{name}");
    }
    assert!(rows["self-madvise"][3].contains("process_madvise"));
}

#[test]
fn a_blocked_sigbus_is_told_before_it_kills() {
    let mut command = softfault(&["doctor"]);
    // SAFETY: only system calls on a set of its own.
    unsafe {
        command.pre_exec(|| {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            libc::sigaddset(&mut set, libc::SIGBUS);
            libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            Ok(())
        });
    }
    let (code, rows) = rows(&mut command);
    assert_eq!(code, 1);
    assert_eq!(rows["userfaultfd"][0], "ok");
    let [state, found, _, mend] = &rows["served-fault"];
    assert_eq!(state, "missing");
    assert!(found.contains("SIGBUS is blocked"), "{found}");
    assert!(mend.contains("SIGBUS"), "{mend}");
}

#[test]
fn limits_are_those_it_was_started_with() {
    let mut command = softfault(&["doctor"]);
    // SAFETY: only a system call on a structure of its own.
    unsafe {
        command.pre_exec(|| {
            let limit = libc::rlimit {
                rlim_cur: 77,
                rlim_max: 5000,
            };
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
            let limit = libc::rlimit {
                rlim_cur: 0,
                rlim_max: 0,
            };
            libc::setrlimit(libc::RLIMIT_MEMLOCK, &limit);
            Ok(())
        });
    }
    let (code, rows) = rows(&mut command);
    assert_eq!(code, 0, "no memory has to be locked");
    let [state, found, _, mend] = &rows["open-files"];
    assert_eq!(state, "slower");
    assert!(
        found.contains("77 ") && found.contains("at most 5000"),
        "{found}"
    );
    assert_eq!(mend, "ulimit -n 5000");
}

#[test]
fn an_ordinary_user_is_served_and_leaves_nothing() {
    let user = OrdinaryUser::new();
    let files = &user.files;
    let (code, rows) = rows(user.command().args(["doctor", "--dir"]).arg(files));
    assert_eq!(code, 0);
    let [state, found, costs, mend] = &rows["run-messages"];
    if state != "ok" {
        assert_eq!(state, "slower");
        assert!(found.contains("/dev/userfaultfd: "), "{found}");
        assert!(costs.contains("by signals"), "{costs}");
        assert!(mend.contains("vm.unprivileged_userfaultfd=1"), "{mend}");
    }
    for name in [
        "userfaultfd",
        "served-fault",
        "io_submit",
        "page-table-freeing",
    ] {
        assert_ne!(rows[name][0], "missing", "{name}");
    }
    assert!(is_empty(files));

    // Where nothing can be made, a named directory is refused, an unnamed one replaced.
    fs::set_permissions(files, Permissions::from_mode(0o555)).unwrap();
    let mut command = user.command();
    refused(
        command.args(["doctor", "--dir"]).arg(files),
        "Permission denied",
    );
    let (code, _, err) = finish(user.command().arg("doctor").current_dir(files));
    assert_eq!(code, 0, "{err}");
}

/// It lets `userfaultfd` pass for faults of user mode: for those of the kernel the permission is missing.
#[test]
fn a_filter_is_not_blamed_for_a_refusal_of_the_kernel() {
    let user = OrdinaryUser::new();
    let messages = |call| {
        let mut command = user.command();
        command.args(["doctor", "--dir"]).arg(&user.files);
        let (_, mut rows) = rows(closed(&mut command, &[call], REFUSE));
        rows.remove("run-messages").unwrap()
    };
    let [state, _, _, mend] = messages(libc::SYS_io_uring_setup);
    assert!(
        state == "ok" || mend.starts_with("one of: setfacl"),
        "{mend}"
    );
    let [state, _, _, mend] = messages(libc::SYS_userfaultfd);
    assert!(state == "ok" || mend.contains("seccomp"), "{mend}");
}

#[test]
fn a_directory_in_memory_has_nothing_to_read_from() {
    let Some(dir) = tmpfs() else {
        return softfault_skip::skipped("tmpfs", "there is none at /dev/shm");
    };
    let (code, rows) = rows(softfault(&["doctor", "--dir"]).arg(dir.path()));
    assert_eq!(code, 0);
    let [state, found, costs, _] = &rows["direct-reads"];
    assert_eq!(state, "slower");
    assert!(found.starts_with("tmpfs in /dev/shm"), "{found}");
    assert!(costs.contains("second copy"), "{costs}");
    assert!(is_empty(dir.path()));
}

#[test]
fn directories_that_cannot_be_used_are_one_line() {
    let dir = directory();
    let file = dir.path().join("file");
    fs::write(&file, "x").unwrap();
    for place in ["/nowhere", file.to_str().unwrap(), "/proc"] {
        refused(&mut softfault(&["doctor", "--dir", place]), place);
        refused(&mut softfault(&["doctor", "--json", "--dir", place]), place);
    }
    refused(&mut softfault(&["doctor", "--cure"]), "--cure");
}

/// Failed before: other kernels and another directory were to mend it.
#[test]
fn without_proc_the_remedy_is_to_mount_it() {
    let script = "mount -t tmpfs none /proc && exec \"$@\"";
    let mut without = Command::new("unshare");
    without.args(["-m", "sh", "-c", script, "sh"]);
    let mut may_mount = Command::new("unshare");
    may_mount.args(["-m", "sh", "-c", script, "sh", "true"]);
    if !may_mount.output().is_ok_and(|tried| tried.status.success()) {
        return softfault_skip::skipped("root", "only root can hide /proc from a program");
    }
    let dir = directory();
    without.arg(env!("CARGO_BIN_EXE_softfault"));
    without.args(["doctor", "--dir"]).arg(dir.path());
    without.env_remove("SOFTFAULT_PRELOAD");
    let (_, rows) = rows(&mut without);
    for name in ["run-library", "huge-pool"] {
        let [state, found, _, mend] = &rows[name];
        assert_eq!(mend, "mount -t proc proc /proc", "{name}: {state}, {found}");
    }
    let found = &rows["swap-file"][1];
    assert!(found.starts_with("an unknown file system in "), "{found}");
}
