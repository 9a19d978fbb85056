//! Variables of the environment: values that cannot be used, and names that nobody knows.

use crate::{directory, refuses, softfault_run, text};

#[test]
fn a_value_that_cannot_be_used_is_refused() {
    let refused = [
        ("SOFTFAULT_MEMORY", "lots", "a size is"),
        ("SOFTFAULT_MEMORY", "1M", "at least"),
        (
            "SOFTFAULT_MEMORY",
            "8000T",
            "SOFTFAULT_MEMORY 8000 TiB is more than this machine has",
        ),
        ("SOFTFAULT_SWAP", "", "no directory"),
        (
            "SOFTFAULT_SWAP",
            "/no/such/place",
            "SOFTFAULT_SWAP: /no/such",
        ),
        ("SOFTFAULT_FAULTS", "often", "signals, threads or messages"),
        ("SOFTFAULT_READS", "fast", "direct, cached or auto"),
        ("SOFTFAULT_ALLOW_KERNEL_MAPS", "yes", "0 or 1"),
        ("SOFTFAULT_COHERENCE", "1", "kernel or engine"),
        ("SOFTFAULT_SMALL_MAPS", "-1", "a size is"),
        ("SOFTFAULT_STATS", "json", "0 or 1"),
        ("SOFTFAULT_RUN_MIN_SIZE", "1.5G", "a size is"),
        ("SOFTFAULT_RUN_MIN_SIZE", "0", "above zero"),
        (
            "SOFTFAULT_RUN_FAULTS",
            "threads",
            "auto, messages or signals",
        ),
        ("SOFTFAULT_RUN_ANONYMOUS", "yes", "0 or 1"),
        ("SOFTFAULT_RUN_ANONYMOUS", "1", "needs --swap"),
        ("SOFTFAULT_RUN_ASSUME_IMMUTABLE", "true", "0 or 1"),
        ("SOFTFAULT_RUN_STRICT", "true", "0 or 1"),
        ("SOFTFAULT_RUN_STATS", "1", "text or json"),
        ("SOFTFAULT_RUN_STATS_EVERY", "0", "a number of seconds"),
        ("SOFTFAULT_RUN_STATS_EVERY", "1", "needs --stats-file"),
        ("SOFTFAULT_RUN_STATS_FILE", "here", "begins with a slash"),
        ("SOFTFAULT_RUN_TREE", "here", "begins with a slash"),
        ("SOFTFAULT_PRELOAD", "/nowhere.so", "no library /nowhere.so"),
    ];
    for (name, value, why) in refused {
        let mut command = softfault_run();
        refuses(command.env(name, value).args(["--", "echo", "ran"]), 2, why);
    }
}

#[test]
fn an_option_says_it_in_place_of_a_variable() {
    let mut command = softfault_run();
    command.envs([("SOFTFAULT_MEMORY", "lots"), ("SOFTFAULT_RUN_STATS", "1")]);
    command.args(["--memory", "8M", "--stats=json", "--", "true"]);
    let run = command.output().unwrap();
    assert_eq!(text(&run.stderr), "");
    assert!(run.status.success());
}

#[test]
fn a_name_that_nobody_knows_is_told() {
    let mut command = softfault_run();
    command.envs([
        ("SOFTFAULT_MINSIZE", "1M"),
        ("SOFTFAULT_WEATHER", "fine"),
        ("SOFTFAULT_RUN_STATS", ""),
    ]);
    let run = command.args(["--", "echo", "ran"]).output().unwrap();
    let said = text(&run.stderr);
    let mut said: Vec<_> = said.lines().collect();
    said.sort_unstable();
    let unknown = "warning: softfault has no variable ";
    let near = format!("{unknown}SOFTFAULT_MINSIZE: did you mean SOFTFAULT_RUN_MIN_SIZE?");
    assert_eq!(said, [near, format!("{unknown}SOFTFAULT_WEATHER")]);
    assert_eq!(text(&run.stdout), "ran\n");
}

/// A variable that the command hands to the program, it takes from it.
#[test]
fn a_command_within_another_has_nothing_to_say() {
    let file = directory("within").join("stats");
    let mut outer = softfault_run();
    outer.args([
        "--memory",
        "8M",
        "--min-size",
        "1M",
        "--include",
        "*",
        "--exclude",
        "a",
    ]);
    outer.args([
        "--assume-immutable",
        "--anonymous",
        "--swap",
        "/tmp:64M",
        "--reads",
        "cached",
    ]);
    outer.args(["--faults", "signals", "--stats=json", "--stats-file"]);
    outer
        .arg(file)
        .arg("--")
        .arg(env!("CARGO_BIN_EXE_softfault"));
    let run = outer.args(["run", "--", "echo", "ran"]).output().unwrap();
    assert_eq!(
        (text(&run.stderr), text(&run.stdout)),
        (String::new(), "ran\n".into())
    );
}

/// Failed before: exit code 101, and no program.
#[test]
fn a_stderr_that_cannot_be_written_keeps_no_program_from_beginning() {
    let full = std::fs::File::options().write(true).open("/dev/full");
    let mut run = softfault_run();
    run.args(["--memory", "64M", "--", "echo", "hi"])
        .env("SOFTFAULT_FOO", "1")
        .stderr(full.unwrap());
    let said = run.output().unwrap();
    assert_eq!(
        (said.status.code(), &said.stdout[..]),
        (Some(0), &b"hi\n"[..])
    );
}
