//! The cases of `reserve.c`, and Java: address space that is reserved first, and comes to be used part by part.

use crate::scene::Scene;
use crate::stats::{self, ProcessStats};
use crate::{assert_same_but_told, run_with, softfault_run, text, ways};
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

fn reserve() -> Option<&'static Scene> {
    static RESERVE: OnceLock<Option<Scene>> = OnceLock::new();
    RESERVE
        .get_or_init(|| Scene::new("reserve", &[], 4 << 20))
        .as_ref()
}

/// Runs a case both ways and without softfault, with the same output; the statistics of each process, the first last.
fn run(case: &str, options: &[&str]) -> Vec<Vec<ProcessStats>> {
    let Some(reserve) = reserve() else {
        return Vec::new();
    };
    let (without, swap) = (reserve.without(case), reserve.swap("300M"));
    let each = ways().iter().map(|how| {
        let file = format!("{case}.{how}.{}", options.concat().replace('/', "-"));
        let file = reserve.directory.join(file);
        let mut all = vec!["--min-size", "1M", "--anonymous", "--faults", how];
        if !options.contains(&"--swap") {
            all.extend(["--swap", &swap]);
        }
        all.extend(options);
        let (with, stats) = run_with(&all, &reserve.command(case), &file);
        assert_same_but_told(&with, &without, &stats, case);
        stats
    });
    each.collect()
}

/// The same of one process: parts that were taken and handed back.
fn runs(case: &str, taken: u64, handed_back: u64) {
    for stats in run(case, &[]) {
        let stats = stats.last().unwrap();
        assert_eq!(stats.taken(), taken, "{case}: taken");
        assert_eq!(stats.handed_back(), handed_back, "{case}: handed back");
        stats.stays_in_budget(case);
    }
}

#[test]
fn a_heap_grows_and_shrinks() {
    runs("heap", 18, 0);
}

#[test]
fn memory_comes_to_be_used_by_its_protection() {
    runs("protect", 5, 1);
}

#[test]
fn threads_use_parts_of_their_own() {
    runs("threads", 48, 0);
}

#[test]
fn something_else_comes_to_be_in_a_reservation() {
    for stats in run("others", &[]) {
        let mut declined = stats.last().unwrap().declined();
        declined.sort_unstable();
        // The first: files at a place that the program gives.
        let expected = [("map_fixed", 2), ("prot_exec", 1), ("shared_writable", 1)];
        let expected = expected.map(|(name, count)| (name.to_owned(), count));
        assert_eq!(declined, expected);
    }
}

#[test]
fn children_use_more_of_a_reservation() {
    for stats in run("forks", &[]) {
        assert_eq!(stats.len(), 5);
        for stats in stats {
            assert!(stats.taken() > 0 && stats.handed_back() == 0);
        }
    }
}

/// Of the kernel's is what is in front of the first multiple of 2 MiB, as in the child all that its parent told the kernel not to give
/// it.
#[test]
fn all_of_a_reservation_comes_to_be_used() {
    for stats in run("whole", &[]) {
        assert!(!stats.is_empty());
        for stats in stats {
            assert!(stats.number(&["taken", "bytes"]) >= 12 << 20);
            assert_eq!(stats.handed_back(), 0);
        }
    }
}

/// A part that swap has no room for is the kernel's.
#[test]
fn more_than_swap_has_room_for() {
    let swap = std::env::temp_dir();
    let swap = format!("{}:20M", swap.display());
    for stats in run("heap", &["--swap", &swap]) {
        let stats = stats.last().unwrap();
        let declined = stats.declined();
        assert_eq!(declined[0].0, "swap_full", "{declined:?}");
        assert!(stats.taken() >= 8, "{}", stats.taken());
    }
}

/// A virtual machine's heap of several budgets, by each of its collectors.
#[test]
fn heaps_of_java() {
    let Some(reserve) = reserve() else { return };
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/run/Heap.java");
    let mut javac = Command::new("javac");
    let compiled = javac.arg("-d").arg(&reserve.directory).arg(source).output();
    if !compiled.as_ref().is_ok_and(|made| made.status.success()) {
        softfault_skip::skipped("java", format_args!("there is no javac: {compiled:?}"));
        return;
    }
    let swap = format!("{}:600M", reserve.directory.display());
    for collector in ["Serial", "G1", "Parallel"] {
        let java = |command: &mut Command| {
            command.args(["java", &format!("-XX:+Use{collector}GC"), "-Xmx128m", "-cp"]);
            let run = command.arg(&reserve.directory).args(["Heap", "64", "2"]);
            let output = run.output().unwrap();
            assert!(output.status.success(), "{}", text(&output.stderr));
            text(&output.stdout)
        };
        let without = java(&mut Command::new("env"));
        // One collector in every way, and the others in one: each run takes seconds.
        let ways = match collector {
            "G1" => ways(),
            _ => &ways()[..1],
        };
        for how in ways {
            let file = reserve.directory.join(format!("{collector}.{how}.stats"));
            let _ = std::fs::remove_file(&file);
            let mut with = softfault_run();
            with.args(["--memory", "32M", "--anonymous", "--swap", &swap]);
            with.args(["--faults", how, "--stats=json", "--stats-file"]);
            let with = java(with.arg(&file).arg("--"));
            assert_eq!(with, without, "{collector} {how}");
            let stats = stats::read(&file).pop().unwrap();
            let taken = stats.number(&["taken", "bytes"]);
            assert!(taken >= 64 << 20, "{collector} {how}: {taken}");
            assert_eq!(stats.handed_back(), 0, "{collector} {how}");
            let peak = stats.number(&["peak_bytes"]);
            assert!(peak <= 32 << 20, "{collector} {how}: {peak}");
            assert!(stats.number(&["swapped_in_bytes"]) > 0, "{collector} {how}");
        }
    }
}
