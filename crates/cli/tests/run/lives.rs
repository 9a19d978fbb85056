//! The cases of `lives.c`: programs that close all descriptors, daemonise, lock all memory, have namespaces of their own, and use
//! their mappings meanwhile.

use crate::elsewhere::is_root;
use crate::stats::{self, ProcessStats};
use crate::{MEMORY, assert_same_but_told, compile, directory, file, softfault_run, ways};
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

struct Lives {
    directory: PathBuf,
    program: PathBuf,
    data: PathBuf,
}

fn lives() -> Option<&'static Lives> {
    static LIVES: OnceLock<Option<Lives>> = OnceLock::new();
    let lives = LIVES.get_or_init(|| {
        let directory = directory("lives");
        let program = compile("lives.c", &directory.join("program"), &[])?;
        let data = file(&directory, 12 << 20);
        Some(Lives {
            directory,
            program,
            data,
        })
    });
    lives.as_ref()
}

/// Runs a case both ways and without softfault, with the same output; what each process says, the first last.
fn run(case: &str) -> Vec<Vec<ProcessStats>> {
    let Some(lives) = lives() else {
        return Vec::new();
    };
    let mut without = Command::new(&lives.program);
    let without = without.arg(case).arg(&lives.data).output().unwrap();
    let swap = format!("{}:100M", lives.directory.display());
    let each = ways().iter().map(|how| {
        let file = lives.directory.join(format!("{case}.{how}.stats"));
        let _ = std::fs::remove_file(&file);
        let mut with = softfault_run();
        with.args(["--memory", MEMORY, "--min-size", "1M", "--assume-immutable"]);
        with.args(["--anonymous", "--swap", &swap, "--faults", how]);
        with.args(["--stats=json", "--stats-file"]).arg(&file);
        let with = with.arg("--").arg(&lives.program).arg(case);
        let with = with.arg(&lives.data).output().unwrap();
        let stats = stats::read(&file);
        assert_same_but_told(&with, &without, &stats, &format!("{case} {how}"));
        stats
    });
    each.collect()
}

/// The same, with memory that was taken.
fn runs(case: &str) {
    for stats in run(case) {
        assert!(stats.iter().any(|stats| stats.taken() >= 2), "{case}");
    }
}

macro_rules! lives {
    ($($name:ident: $case:literal;)*) => {$(
        #[test]
        fn $name() {
            runs($case);
        }
    )*};
}

lives! {
    all_descriptors_are_closed: "closes-all";
    a_daemon_of_old: "daemon";
    no_more_processes: "no-processes";
    all_of_it_is_locked: "locks-all";
    alarms_that_touch_it: "alarms";
    the_first_thread_ends: "main-ends";
    nobody_may_look_at_it: "no-dump";
    threads_that_fork: "many";
}

#[test]
fn namespaces_of_its_own() {
    if !is_root() {
        return softfault_skip::skipped("root", "nobody else has namespaces of their own");
    }
    runs("unshares");
}
