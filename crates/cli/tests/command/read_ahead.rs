//! The read-ahead of the device that files lie on: set for the kernel's rows, and back however they end.
//! The setting is the machine's. A lab locks it while it has changed it, and a test that asks for its value
//! without any lab takes the same lock.

use super::interrupted::{assert_interrupted, signal, start, thrash, until, worker};
use super::ordinary_user::OrdinaryUser;
use super::rows::lab;
use super::{directory, finish, is_empty, refused, softfault, tmpfs, words};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where the page cache's read-ahead for files in `dir` stands, if it is a whole disk that they lie on.
pub fn bdi(dir: &Path) -> PathBuf {
    let device = fs::metadata(dir).unwrap().dev();
    let number = format!("{}:{}", libc::major(device), libc::minor(device));
    Path::new("/sys/class/bdi")
        .join(number)
        .join("read_ahead_kb")
}

/// The setting for files in `dir`; says so where a test cannot change it.
fn setting(dir: &Path) -> Option<PathBuf> {
    let setting = bdi(dir);
    match File::options().write(true).open(&setting) {
        Ok(_) => Some(setting),
        Err(e) => {
            softfault_skip::skipped(
                "root",
                format_args!("cannot set {}: {e}", setting.display()),
            );
            None
        }
    }
}

fn now(setting: &Path) -> u64 {
    let text = fs::read_to_string(setting).unwrap();
    text.trim().parse().unwrap()
}

/// Its value while no lab has changed it.
fn own(setting: &Path) -> u64 {
    let file = File::open(setting).unwrap();
    file.lock().unwrap();
    now(setting)
}

/// A read-ahead that is not the device's own.
fn another(own: u64) -> u64 {
    match own {
        512 => 256,
        _ => 512,
    }
}

#[test]
fn the_kernels_rows_are_run_at_each_and_others_once() {
    let dir = directory();
    let Some(setting) = setting(dir.path()) else {
        return;
    };
    let before = own(&setting);
    let rows = lab(
        "sparse",
        dir.path(),
        &words(
            "--on kernel,kernel-random,kernel-sequential,softfault --read-ahead-kb 64,256 --pattern random --file-size 1M --memory 16M",
        ),
    );
    let on: Vec<&str> = rows.iter().map(|row| row["on"].as_str().unwrap()).collect();
    let expected = [
        "kernel:read_ahead_kb=64",
        "kernel:read_ahead_kb=256",
        "kernel-random",
        "kernel-sequential:read_ahead_kb=64",
        "kernel-sequential:read_ahead_kb=256",
        "softfault",
    ];
    assert_eq!(on, expected);
    for (row, on) in rows.iter().zip(on) {
        if let Some((_, kb)) = on.split_once('=') {
            assert_eq!(row["read_ahead_kb"], kb.parse::<u64>().unwrap(), "{row}");
        }
    }
    assert_eq!(own(&setting), before);
}

#[test]
fn the_table_ends_with_how_far_the_kernel_reads_ahead() {
    let dir = directory();
    if setting(dir.path()).is_none() {
        return;
    }
    let run = |more: &[&str]| {
        let mut command = softfault(&["lab", "run", "sparse", "--pattern", "random"]);
        command.args(["--file-size", "1M", "--memory", "16M", "--dir"]);
        let (code, out, err) = finish(command.arg(dir.path()).args(more));
        assert_eq!(code, 0, "{err}");
        out
    };
    let one = run(&["--on", "kernel:read_ahead_kb=64"]);
    let line = "\nthe kernel reads 64 KiB ahead on this device\n";
    assert!(one.contains(line), "{one}");
    let two = run(&["--on", "kernel", "--read-ahead-kb", "256,64"]);
    let line = "\nthe kernel reads 64 and 256 KiB ahead on this device;";
    assert!(two.contains(line), "{two}");
    let none = run(&["--on", "kernel-random,softfault"]);
    assert!(!none.contains("KiB ahead"), "{none}");
}

#[test]
fn ctrl_c_restores_the_setting() {
    for (number, code) in [(libc::SIGINT, 130), (libc::SIGTERM, 143)] {
        let dir = directory();
        let Some(setting) = setting(dir.path()) else {
            return;
        };
        let before = own(&setting);
        let during = another(before);
        let mut command = thrash(dir.path());
        let mut lab = start(command.args(["--read-ahead-kb", &during.to_string()]));
        let process = lab.id();
        // Once its child is at work, the setting is its own.
        until(&mut lab, || worker(process));
        assert_eq!(now(&setting), during);
        signal(process, number);
        assert_interrupted(lab, code, dir.path());
        assert_eq!(own(&setting), before);
    }
}

#[test]
fn a_run_that_fails_restores_the_setting() {
    let dir = directory();
    let Some(setting) = setting(dir.path()) else {
        return;
    };
    let before = own(&setting);
    let during = another(before);
    let mut command = thrash(dir.path());
    let mut lab = start(command.args(["--read-ahead-kb", &during.to_string()]));
    let process = lab.id();
    let child = until(&mut lab, || worker(process));
    assert_eq!(now(&setting), during);
    signal(child, libc::SIGKILL);
    let output = lab.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(own(&setting), before);
}

#[test]
fn read_aheads_that_cannot_be_are_refused() {
    let dir = directory();
    let dir = dir.path().to_str().unwrap();
    for (arguments, word) in [
        ("sparse --read-ahead-kb 130", "whole pages"),
        ("sparse --read-ahead-kb 128,x", "whole pages"),
        ("sparse --read-ahead-kb 2097152", "1048576"),
        ("sparse --read-ahead-kb 128,128", "128 twice"),
        (
            "sparse --on softfault,kernel-random --read-ahead-kb 128",
            "--on has none of them",
        ),
        ("pft --on kernel --read-ahead-kb 128", "read files"),
        ("anon --on kernel:read_ahead_kb=128", "reads no file"),
        ("sparse --on kernel:pin=no", "read_ahead_kb=N"),
    ] {
        let mut command = softfault(&["lab", "run"]);
        refused(
            command.args(arguments.split(' ')).args(["--dir", dir]),
            word,
        );
    }
}

#[test]
fn a_device_that_is_not_known_is_one_line() {
    let Some(memory) = tmpfs() else {
        return softfault_skip::skipped("tmpfs", "there is none at /dev/shm");
    };
    let mut command = softfault(&["lab", "run", "sparse", "--read-ahead-kb", "128"]);
    refused(command.arg("--dir").arg(memory.path()), "is not known");
    assert!(is_empty(memory.path()));
}

#[test]
fn without_root_it_is_one_line_and_nothing_is_run() {
    if !bdi(Path::new("/")).exists() {
        softfault_skip::skipped("root", "no device of / is known");
        return;
    }
    let user = OrdinaryUser::new();
    let mut command = user.command();
    command.args(["lab", "run", "sparse", "--read-ahead-kb", "128", "--dir"]);
    // Nothing is made there: it need not be writable.
    command.arg("/");
    refused(&mut command, "cannot set");
}
