//! Wrong arguments: one clear line, exit code 2, nothing left behind.

use super::{directory, finish, is_empty, refused, softfault, words};

#[test]
fn wrong_arguments_are_one_line_and_code_2() {
    let dir = directory();
    let dir = dir.path().to_str().unwrap();
    let cases = [
        ("--bogus", "--bogus"),
        ("lab run", "<WORKLOAD>"),
        ("lab run crawl", "crawl"),
        ("lab run sparse --on windows", "windows"),
        ("lab run sparse --on kernel --pattern zigzag", "zigzag"),
        ("lab run sparse --on kernel --pattern stride0", "stride0"),
        ("lab run scan --on kernel --pattern hot", "hot"),
        ("lab run random --on kernel --pattern random", "--pattern"),
        ("lab run sparse --on kernel --threads 0", "--threads"),
        ("lab run sparse --on kernel --threads -1", "-1"),
        ("lab run sparse --on kernel --memory 1K", "--memory"),
        ("lab run sparse --on kernel --memory 0", "above zero"),
        ("lab run sparse --on kernel --memory much", "much"),
        (
            "lab run sparse --on kernel --file-size 9000T",
            "--file-size",
        ),
        ("lab run sparse --on kernel --touch 0", "--touch"),
        ("lab run sparse --on kernel --touch nan", "--touch"),
        ("lab run scan --on kernel --touch 1", "--touch"),
        ("lab run scan --on kernel --files data", "--files"),
        ("lab run random --on kernel --seconds 0", "--seconds"),
        ("lab run random --on kernel --timeout -3", "-3"),
        ("lab run random --on kernel --repeat 0", "--repeat"),
        ("lab run thrash --on kernel --file /etc/passwd", "--file"),
        (
            "lab run sparse --on kernel --file /etc/passwd --file-size 1M",
            "--file",
        ),
        ("lab make /nowhere/file --file-size 1M", "/nowhere"),
        ("lab make /etc/passwd --file-size 1M", "/etc/passwd"),
        ("sum", "<FILE>"),
        ("sum --memory -5 x", "'-5' found\n"),
        ("tour --memory 1", "--memory"),
        ("tour --dir /nowhere", "/nowhere"),
        ("tour --seconds 0", "--seconds"),
        // As long as that a run may take, and yet three times as long.
        ("tour --seconds 500000 --dir /nowhere", "/nowhere"),
        ("tour --seconds 2000000", "--seconds must be"),
    ];
    for (arguments, word) in cases {
        refused(softfault(&words(arguments)).current_dir(dir), word);
    }
    assert!(is_empty(dir.as_ref()));
}

#[test]
fn unknown_engines_and_policies_are_errors_with_the_known_ones() {
    let dir = directory();
    for (on, words) in [
        (
            "windows",
            &["windows", "kernel-random", "pread", "softfault:POLICY"][..],
        ),
        ("kernel,", &["softfault"]),
        ("kernel:pin=no", &["kernel has no policies"]),
        ("softfault:pin=maybe", &["one of no, yes, not `maybe`"]),
        ("softfault:pin", &["NAME=VALUE"]),
        (
            "softfault:sync=x",
            &[
                "lock, reuse, mmap, verbs, retry, pin, miss, share, around, join, left, fill and map",
            ],
        ),
        ("kernel,softfault,kernel", &["--on has kernel twice"]),
        (
            "softfault,softfault:pin=yes+lock=refcount",
            &["--on has softfault twice"],
        ),
    ] {
        for word in words {
            let run = ["lab", "run", "sparse", "--on", on];
            refused(softfault(&run).current_dir(dir.path()), word);
        }
    }
    assert!(is_empty(dir.path()));
}

#[test]
fn options_without_use_for_a_workload_are_refused() {
    let dir = directory();
    for (arguments, word) in [
        ("warm-start --on pread", "pread maps nothing"),
        ("pft --on kernel,pread", "pread maps nothing"),
        ("spf --on pread", "pread maps nothing"),
        ("loops --on pread", "pread maps nothing"),
        ("loops --pattern mmap-contended", "touch-contended"),
        ("storm --on pread", "pread maps nothing"),
        ("pft --on kernel-random", "anonymous memory"),
        ("spf --on kernel-sequential", "anonymous memory"),
        ("pft --file /etc/passwd", "--file"),
        ("spf --file /etc/passwd", "--file"),
        ("warm-start --file /etc/passwd", "--file"),
        ("storm --pattern own", "--pattern"),
        ("many --pattern warm", "cold or present"),
        ("many --on pread-cached", "that is for thrash"),
        ("pft --pattern mine", "own or shared"),
        ("pft --pattern own --shared", "--shared"),
        ("spf --shared", "--shared"),
        ("pft --touch 3", "--touch"),
        ("storm --files data", "--files"),
        ("pft --threads 1,0", "--threads"),
        ("pft --threads 1,2,1", "--threads has 1 twice"),
        ("pft --pattern own,shared,own", "--pattern has own twice"),
        ("thrash --files data,data", "--files has data twice"),
        ("pft --threads 1,x", "x"),
        ("pft --file-size 65M --memory 128M", "half of --memory"),
        ("spf --file-size 8M --memory 64M", "half of --memory"),
        ("anon --on pread", "see direct"),
        ("random --on direct", "they are for anon and write"),
        ("write --threads 513", "--threads must be 1 to 512"),
        ("swap-retry --on direct", "they are for anon"),
        ("snapshot --on soft", "soft page tables"),
        ("anon --on kernel-random", "anonymous memory"),
        ("anon --file /etc/passwd", "--file"),
        ("anon --pattern random", "uniform or zipf"),
        ("anon --theta 1", "--theta"),
        ("write --theta 1", "--theta"),
        ("anon --writes 101", "--writes"),
        ("sparse --writes 10", "--writes"),
        ("anon --touch 3", "--touch"),
        ("hugetlb --on pread", "maps huge pages"),
        ("hugetlb --on kernel-random", "maps huge pages"),
        ("hugetlb --start full", "empty, emptied, populated or scan"),
        ("sparse --on kernel-parked", "no huge pages"),
        ("random --on pread-cached", "that is for thrash"),
        ("anon --on pread-cached", "that is for thrash"),
        ("hugetlb --file /etc/passwd", "--file"),
    ] {
        let mut run = softfault(&["lab", "run"]);
        run.args(arguments.split(' ')).current_dir(dir.path());
        refused(&mut run, word);
    }
    assert!(is_empty(dir.path()));
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
        if word != "regular" {
            refused(&mut softfault(&["sum", path]), word);
        }
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
    let run = words("lab run sparse --on kernel --file-size 1M");
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
    let (_, out, _) = finish(&mut softfault_plain(&["lab", "run", "--help"]));
    for word in [
        "warm-start",
        "pft",
        "spf",
        "loops",
        "storm",
        "many",
        "swap-retry",
        "--theta",
        "direct",
        "kernel-sequential",
        "softfault:POLICIES",
        "mmap=steal|phase-fair|linux",
        "retry=vma-lock|mmap-lock|held",
        "miss=adaptive|baseline|p1|p2|both",
        "share=vma-lock|document|i-mmap-rwsem",
    ] {
        assert!(out.contains(word), "{word}: {out}");
    }
}

/// Without the flags that tests add.
fn softfault_plain(arguments: &[&str]) -> std::process::Command {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_softfault"));
    command.args(arguments);
    command
}
