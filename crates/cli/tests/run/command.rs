//! The command itself: arguments that it refuses, and the traces of it that the program sees.

use crate::{directory, refuses, same_variables, softfault_run, text};
use std::fs;
use std::process::Command;

#[test]
fn impossible_options_are_an_error_of_one_line() {
    let refused = [
        (&["--memory", "1K"][..], "at least"),
        (&["--memory", "lots"], "not a size"),
        (&["--memory", "-5"], "`-5` is not a size"),
        (&["--min-size", "-5K"], "`-5K` is not a size"),
        (&["--memory", "--strict"], "`--strict` is not a size"),
        (&["--memory", "8000T"], "more than this machine has"),
        (
            &["--memory", "99999999999999999999"],
            "larger than any file",
        ),
        (
            &["--memory-per-process", "8000T"],
            "--memory-per-process 8000 TiB is more than this machine has",
        ),
        (&["--memroy", "1G"], "'--memory'"),
        (&["--anonymous"], "--anonymous needs --swap"),
        (&["--swap", "/no/such/place:1G"], "no directory"),
        (&["--swap", "/tmp:lots"], "no size"),
        (&["--swap", "/tmp:1K"], "less than a page"),
        (&["--include", "a\nb"], "line breaks"),
        (&["--include", ""], "--include: the pattern is empty"),
        (
            &["--exclude", "a", "--exclude", ""],
            "--exclude: the pattern",
        ),
        (
            &["--include", "*.db", "--include", "a[b"],
            "--include a[b: no ] closes a [",
        ),
        (&["--exclude", "a\\"], "behind the last backslash"),
    ];
    for (arguments, why) in refused {
        let mut command = softfault_run();
        command.args(arguments).args(["--", "echo", "ran"]);
        refuses(&mut command, 2, why);
    }
}

/// Failed before: the program ran, and none of its memory was under the budget.
#[test]
fn a_swap_directory_that_takes_no_file_is_refused() {
    let mut command = softfault_run();
    command.args(["--swap", "/proc:1G", "--", "echo", "ran"]);
    refuses(&mut command, 125, "--swap: swap in /proc: ");
}

/// Failed before: "No such file or directory", without a name.
#[test]
fn a_name_in_a_directory_that_was_removed() {
    let parent = directory("removed");
    for (arguments, name) in [
        (["--stats-file", "x"], "--stats-file x: "),
        (["--swap", "d:1M"], "--swap d: "),
    ] {
        let gone = parent.join("gone");
        fs::create_dir_all(&gone).unwrap();
        let run = softfault_run();
        let mut shell = Command::new("sh");
        shell.args(["-c", "rmdir \"$PWD\" && exec \"$@\"", "sh"]);
        shell.current_dir(&gone).arg(run.get_program());
        shell.args(run.get_args()).args(arguments);
        same_variables(&run, &mut shell);
        let why = format!("{name}the current directory was removed");
        refuses(shell.args(["--", "echo", "ran"]), 2, &why);
    }
}

/// Exit status, arguments, standard streams, signals and limits are the program's.
#[test]
fn the_program_sees_no_difference() {
    let looks = "echo \"$0 $1|$2\"; cat; echo said >&2; ulimit -n; grep -E 'Sig(Blk|Ign|Cgt)' /proc/self/status; \
                 ls /proc/self/fd | wc -l; exit 37";
    let input = directory("sees").join("input");
    fs::write(&input, "from the input\n").unwrap();
    let run = |command: &mut Command| {
        let input = fs::File::open(&input).unwrap();
        let arguments = ["sh", "-c", looks, "name", "--memory", "a b"];
        command.args(arguments).stdin(input).output().unwrap()
    };
    let without = run(&mut Command::new("env"));
    let with = run(softfault_run().arg("--"));
    crate::assert_same(&with, &without, "a shell");
}

#[test]
fn libraries_preloaded_already_stay() {
    let shows = ["sh", "-c", "echo $LD_PRELOAD"];
    let with = softfault_run()
        .env("LD_PRELOAD", "libm.so.6")
        .arg("--")
        .args(shows)
        .output()
        .unwrap();
    let said = text(&with.stdout);
    assert!(
        said.trim_end()
            .ends_with("libsoftfault_preload.so:libm.so.6"),
        "{said}"
    );
}
