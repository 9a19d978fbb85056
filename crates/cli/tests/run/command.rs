//! The command itself: what it refuses, and what of it the program sees.

use crate::{compile, directory, softfault_run, text};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

fn refuses(command: &mut Command, why: &str) {
    let refused = command.output().unwrap();
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains(why), "{said:?} says {why:?}");
    assert_eq!(said.lines().count(), 1, "{said:?} is one line");
}

#[test]
fn a_static_program_is_refused() {
    let directory = directory("static");
    let Some(program) = compile("cases.c", &directory.join("static"), &["-static"]) else {
        return;
    };
    refuses(softfault_run().arg("--").arg(program), "statically linked");
}

#[test]
fn what_cannot_be_is_refused_in_a_line() {
    refuses(
        softfault_run().args(["--", "no-such-program"]),
        "no such program in PATH",
    );
    refuses(
        softfault_run().args(["--", "/no/such/program"]),
        "no such program",
    );
    refuses(
        softfault_run().args(["--memory", "1K", "--", "true"]),
        "at least",
    );
    refuses(
        softfault_run().args(["--memory", "lots", "--", "true"]),
        "not a size",
    );
    refuses(
        softfault_run().args(["--stats-file", "x", "--", "true"]),
        "--stats",
    );
    refuses(
        softfault_run().args(["--anonymous", "--", "true"]),
        "--anonymous needs --swap",
    );
    refuses(
        softfault_run().args(["--swap", "/no/such/place:1G", "--", "true"]),
        "no directory",
    );
    refuses(
        softfault_run().args(["--swap", "/tmp:lots", "--", "true"]),
        "no size",
    );
    refuses(
        softfault_run().args(["--match", "a\nb", "--", "true"]),
        "line breaks",
    );
    refuses(
        softfault_run()
            .env("SOFTFAULT_PRELOAD", "/nowhere.so")
            .args(["--", "true"]),
        "no library /nowhere.so",
    );
    let directory = directory("odd");
    let text = directory.join("text");
    fs::write(&text, "no program").unwrap();
    refuses(softfault_run().arg("--").arg(&text), "Permission denied");
}

#[test]
fn a_setuid_program_is_refused() {
    // SAFETY: only asks.
    if unsafe { libc::getuid() } != 0 {
        return softfault_skip::skipped("root", "only root can make another user's setuid program");
    }
    let directory = directory("setuid");
    let program = directory.join("program");
    fs::copy("/bin/true", &program).unwrap();
    std::os::unix::fs::chown(&program, Some(1), Some(1)).unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o4755)).unwrap();
    refuses(softfault_run().arg("--").arg(&program), "setuid");
    // A script is what its interpreter is.
    let script = directory.join("script");
    fs::write(&script, format!("#!{} -x\n", program.display())).unwrap();
    fs::set_permissions(&script, Permissions::from_mode(0o755)).unwrap();
    refuses(softfault_run().arg("--").arg(&script), "setuid");
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
fn what_is_preloaded_already_stays() {
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
