//! Names of a program's own: functions of the C library's names (`own_names.c`), a userfaultfd (`uffd.c`).

use crate::{compile, directory, file, same_each_way, softfault_run, ways};
use std::path::Path;
use std::process::Command;

/// Failed before: our hook of `syscall` called that of `mmap`, and the program's own came first, which called ours of `syscall`.
#[test]
fn a_program_has_calls_of_its_own() {
    let directory = directory("own-names");
    let Some(program) = compile("own_names.c", &directory.join("program"), &[]) else {
        return;
    };
    let data = file(&directory, 12 << 20);
    let swap = format!("{}:100M", directory.display());
    let options = ["--min-size", "1M", "--anonymous", "--swap", &swap];
    let command = [program.as_ref(), "calls".as_ref(), data.as_ref()];
    same_each_way(&directory, &command, &options, |stats, how| {
        assert_eq!(stats[0].taken(), 2, "{how}");
    });
}

/// An allocator in front of ours that has neither `reallocarray` nor `free_sized`: ours gave its blocks to the C library's.
#[test]
fn an_allocator_in_front_has_some_of_the_functions() {
    let directory = directory("in-front");
    let Some(program) = compile("own_names.c", &directory.join("program"), &[]) else {
        return;
    };
    let shared = ["-shared", "-fPIC"];
    let Some(allocator) = compile("allocator.c", &directory.join("front.so"), &shared) else {
        return;
    };
    let data = file(&directory, 12 << 20);
    let script = format!("LD_PRELOAD={}:$LD_PRELOAD exec \"$@\"", allocator.display());
    let of = |mut command: Command| {
        command.args(["sh", "-c", &script, "sh"]);
        command.arg(&program).arg("blocks").arg(&data);
        command.output().unwrap()
    };
    let without = of(Command::new("env"));
    assert!(without.status.success(), "{without:?}");
    for how in ways() {
        let mut with = softfault_run();
        with.args(["--memory", "8M", "--min-size", "1M", "--faults", how, "--"]);
        let with = of(with);
        assert_eq!(with.status, without.status, "{how}: {with:?}");
        assert_eq!(with.stdout, without.stdout, "{how}");
    }
}

/// A userfaultfd of the program's own. Failed before: the memory had one.
#[test]
fn a_program_serves_its_own_faults() {
    let directory = directory("own-uffd");
    if let Some(program) = compile("uffd.c", &directory.join("program"), &["-pthread"]) {
        serves_its_own_faults(&directory, &program);
    }
}

/// Runs uffd.c, made with calls of some kind.
pub fn serves_its_own_faults(directory: &Path, program: &Path) {
    let swap = format!("{}:100M", directory.display());
    let options = ["--min-size", "1M", "--anonymous", "--swap", &swap];
    same_each_way(directory, &[program.as_ref()], &options, |stats, how| {
        let handed_back = stats[0].handed_back();
        // Where it may have none, it registers nothing.
        assert!(handed_back == 2 || handed_back == 0, "{how}: {handed_back}");
    });
}
