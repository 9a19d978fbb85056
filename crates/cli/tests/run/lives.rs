//! The cases of `lives.c`: programs that close all descriptors, daemonise, lock all memory, change their root, their user or their
//! limits, have namespaces of their own, and use their mappings meanwhile.

use crate::nobody::is_root;
use crate::scene::Scene;
use crate::stats::ProcessStats;
use crate::{MEMORY, assert_same, assert_same_but_told, run_with, softfault_run, text, ways};
use std::process::{Command, Output};
use std::sync::OnceLock;

fn lives() -> Option<&'static Scene> {
    static LIVES: OnceLock<Option<Scene>> = OnceLock::new();
    LIVES
        .get_or_init(|| Scene::new("lives", &[], 12 << 20))
        .as_ref()
}

/// Runs a case both ways and without softfault: the output, what each process says (the first last), the output without, and how.
fn run(case: &str, mut compare: impl FnMut(&Output, &Output, &[ProcessStats], &str)) {
    let Some(lives) = lives() else {
        return;
    };
    let (without, swap) = (lives.without(case), lives.swap("100M"));
    for how in ways() {
        let file = lives.directory.join(format!("{case}.{how}.stats"));
        let mut options = vec!["--min-size", "1M", "--assume-immutable", "--anonymous"];
        options.extend(["--swap", &swap, "--faults", how]);
        let (with, stats) = run_with(&options, &lives.command(case), &file);
        compare(&with, &without, &stats, &format!("{case} {how}"));
    }
}

/// The output is the same, and memory was taken.
fn runs(case: &str) {
    run(case, |with, without, stats, what| {
        assert_same_but_told(with, without, stats, what);
        assert!(stats.iter().any(|stats| stats.taken() >= 2), "{what}");
    });
}

/// The same where a process may be unable to write its statistics, or to have an engine, which it tells.
fn runs_on(case: &str) {
    run(case, |with, without, _, what| {
        let told = text(&with.stderr);
        let is_refusal = |line: &str| {
            line.contains(" is not under the budget: no_engine,")
                || line.contains(": the last report is not in ")
        };
        assert!(told.lines().all(is_refusal), "{what}: {told}");
        let mut with = with.clone();
        with.stderr = without.stderr.clone();
        assert_same(&with, without, what);
    });
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
    nobody_may_look_at_it: "no-dump";
    threads_that_fork: "many";
}

/// Failed before: its memory was handed back at its next fork.
#[test]
fn the_first_thread_ends() {
    run("main-ends", |with, without, stats, what| {
        assert_same_but_told(with, without, stats, what);
        let last = stats.last().unwrap();
        assert!(last.taken() >= 2 && last.handed_back() == 0, "{what}");
    });
}

#[test]
fn namespaces_of_its_own() {
    if !is_root() {
        return softfault_skip::skipped("root", "nobody else has namespaces of their own");
    }
    runs("unshares");
}

/// A child could not open what private memory needs: it is handed back before.
#[test]
fn children_in_another_root() {
    if !is_root() {
        return softfault_skip::skipped("root", "nobody else changes the root");
    }
    runs_on("chroots");
}

/// Failed before: the lines named userfaultfd, or writers of the file.
#[test]
fn a_root_without_proc_is_told() {
    if !is_root() {
        return softfault_skip::skipped("root", "nobody else changes the root");
    }
    let Some(lives) = lives() else { return };
    let mut without = Command::new(&lives.program);
    let without = without.arg("empty-root").arg(&lives.data).output().unwrap();
    for how in ways() {
        let mut with = softfault_run();
        with.args(["--memory-per-process", MEMORY, "--min-size", "2M"]);
        with.args(["--faults", how, "--"]).arg(&lives.program);
        let mut with = with.arg("empty-root").arg(&lives.data).output().unwrap();
        let told = text(&with.stderr);
        assert_eq!(told.lines().count(), 1, "{how}: {told}");
        assert!(told.contains("/proc is not mounted"), "{how}: {told}");
        with.stderr = without.stderr.clone();
        assert_same(&with, &without, how);
    }
}

#[test]
fn children_of_another_user() {
    if !is_root() {
        return softfault_skip::skipped("root", "nobody else becomes another user");
    }
    runs_on("drops");
}

#[test]
fn children_without_descriptors() {
    runs_on("few-descriptors");
}
