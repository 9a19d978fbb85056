//! What the caller got wrong: one clear line, exit code 2, nothing left behind.

use super::{directory, finish, is_empty, refused, softfault};

#[test]
fn wrong_arguments_are_one_line_and_code_2() {
    let dir = directory();
    let dir = dir.path().to_str().unwrap();
    let cases: &[(&[&str], &str)] = &[
        (&["--bogus"], "--bogus"),
        (&["lab", "run"], "<WORKLOAD>"),
        (&["lab", "run", "crawl"], "crawl"),
        (&["lab", "run", "sparse", "--on", "windows"], "windows"),
        (
            &[
                "lab",
                "run",
                "sparse",
                "--on",
                "kernel",
                "--pattern",
                "zigzag",
            ],
            "zigzag",
        ),
        (
            &[
                "lab",
                "run",
                "sparse",
                "--on",
                "kernel",
                "--pattern",
                "stride0",
            ],
            "stride0",
        ),
        (
            &["lab", "run", "scan", "--on", "kernel", "--pattern", "hot"],
            "hot",
        ),
        (
            &[
                "lab",
                "run",
                "random",
                "--on",
                "kernel",
                "--pattern",
                "random",
            ],
            "--pattern",
        ),
        (
            &["lab", "run", "sparse", "--on", "kernel", "--threads", "0"],
            "--threads",
        ),
        (
            &["lab", "run", "sparse", "--on", "kernel", "--threads", "-1"],
            "-1",
        ),
        (
            &["lab", "run", "sparse", "--on", "kernel", "--memory", "1K"],
            "--memory",
        ),
        (
            &["lab", "run", "sparse", "--on", "kernel", "--memory", "0"],
            "above zero",
        ),
        (
            &["lab", "run", "sparse", "--on", "kernel", "--memory", "much"],
            "much",
        ),
        (
            &[
                "lab",
                "run",
                "sparse",
                "--on",
                "kernel",
                "--file-size",
                "9000T",
            ],
            "--file-size",
        ),
        (
            &["lab", "run", "sparse", "--on", "kernel", "--touch", "0"],
            "--touch",
        ),
        (
            &["lab", "run", "sparse", "--on", "kernel", "--touch", "nan"],
            "--touch",
        ),
        (
            &["lab", "run", "scan", "--on", "kernel", "--touch", "1"],
            "--touch",
        ),
        (
            &["lab", "run", "scan", "--on", "kernel", "--files", "data"],
            "--files",
        ),
        (
            &["lab", "run", "random", "--on", "kernel", "--seconds", "0"],
            "--seconds",
        ),
        (
            &["lab", "run", "random", "--on", "kernel", "--give-up", "-3"],
            "-3",
        ),
        (
            &["lab", "run", "random", "--on", "kernel", "--repeat", "0"],
            "--repeat",
        ),
        (
            &[
                "lab",
                "run",
                "thrash",
                "--on",
                "kernel",
                "--file",
                "/etc/passwd",
            ],
            "--file",
        ),
        (
            &[
                "lab",
                "run",
                "sparse",
                "--on",
                "kernel",
                "--file",
                "/etc/passwd",
                "--file-size",
                "1M",
            ],
            "--file",
        ),
        (
            &["lab", "make", "/nowhere/file", "--file-size", "1M"],
            "/nowhere",
        ),
        (
            &["lab", "make", "/etc/passwd", "--file-size", "1M"],
            "/etc/passwd",
        ),
        (&["sum"], "<FILE>"),
        (&["tour", "--memory", "1"], "--memory"),
        (&["tour", "--dir", "/nowhere"], "/nowhere"),
        (&["tour", "--seconds", "0"], "--seconds"),
    ];
    for (arguments, word) in cases {
        refused(softfault(arguments).current_dir(dir), word);
    }
    assert!(is_empty(dir.as_ref()));
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let dir = directory();
    let empty = dir.path().join("empty");
    std::fs::write(&empty, "").unwrap();
    for (path, word) in [
        ("/nowhere/file", "No such file"),
        ("/tmp", "directory"),
        ("/dev/null", "regular"),
    ] {
        refused(&mut softfault(&["sum", path]), word);
        refused(
            &mut softfault(&["lab", "run", "scan", "--file", path]),
            word,
        );
        refused(
            &mut softfault(&["lab", "run", "scan", "--file", path]),
            path,
        );
    }
    let empty = empty.to_str().unwrap();
    refused(
        &mut softfault(&["lab", "run", "scan", "--file", empty]),
        "empty",
    );
}

#[test]
fn places_that_cannot_be_written_are_named_before_anything_runs() {
    let dir = directory();
    let file = dir.path().join("file");
    std::fs::write(&file, "x").unwrap();
    let file = file.to_str().unwrap();
    let run = [
        "lab",
        "run",
        "sparse",
        "--on",
        "kernel",
        "--file-size",
        "1M",
    ];
    for place in ["/nowhere", file] {
        refused(softfault(&run).args(["--dir", place]), place);
        let json = format!("{place}/rows.json");
        refused(softfault(&run).args(["--json", &json]), &json);
    }
    refused(softfault(&run).args(["--json", "/tmp"]), "/tmp");
}

#[test]
fn help_is_no_error() {
    for arguments in [
        &["--help"][..],
        &["lab", "run", "--help"],
        &["tour", "--help"],
        &["--version"],
    ] {
        let (code, out, err) = finish(&mut softfault_plain(arguments));
        assert_eq!((code, err.as_str()), (0, ""));
        assert!(!out.is_empty());
        assert!(!out.contains("lab-child"), "the hidden command shows");
    }
}

/// Without the flags that tests add.
fn softfault_plain(arguments: &[&str]) -> std::process::Command {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_softfault"));
    command.args(arguments);
    command
}
