//! The cases of `cases.c`.

use crate::stats::{self, ProcessStats};
use crate::{
    BYTES, MEMORY, assert_same, compile, directory, file, has_messages, softfault_run, text, ways,
};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// A program that has the cases, and a file for them.
pub struct Cases {
    pub directory: PathBuf,
    pub program: PathBuf,
    pub data: PathBuf,
}

impl Cases {
    /// Those of all tests, made once; `None` where none can run.
    pub fn get() -> Option<&'static Self> {
        static CASES: OnceLock<Option<Cases>> = OnceLock::new();
        let cases = CASES.get_or_init(|| {
            let directory = directory("cases");
            let program = compile("cases.c", &directory.join("cases"), &[])?;
            let data = file(&directory, BYTES);
            Some(Self {
                directory,
                program,
                data,
            })
        });
        cases.as_ref()
    }

    /// A file for the statistics that processes write at their exit: each time another, for tests run at a time.
    pub fn stats_file(&self, name: &str) -> PathBuf {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Relaxed);
        let file = self.directory.join(format!("{name}.{number}.stats"));
        let _ = std::fs::remove_file(&file);
        file
    }

    /// The same with a file of its own, which others may write to.
    pub fn of_its_own(name: &str) -> Option<Self> {
        let cases = Self::get()?;
        let directory = directory(name);
        let data = file(&directory, BYTES);
        let program = cases.program.clone();
        Some(Self {
            directory,
            program,
            data,
        })
    }

    /// A case with softfault, which writes its statistics to `stats`.
    pub fn with(&self, case: &str, stats: &Path) -> Command {
        self.with_file(case, stats, &self.data)
    }

    /// The same with faults that are signals.
    fn with_signals(&self, case: &str, stats: &Path) -> Command {
        let mut with = self.with(case, stats);
        with.env("SOFTFAULT_RUN_FAULTS", "signals");
        with
    }

    /// The same with another file.
    pub fn with_file(&self, case: &str, stats: &Path, data: &Path) -> Command {
        let mut with = softfault_run();
        with.args(["--memory", MEMORY, "--stats=json", "--stats-file"]);
        with.arg(stats)
            .arg("--")
            .arg(&self.program)
            .arg(case)
            .arg(data);
        with
    }

    /// Runs a case without softfault, and with it in each way that there is, the first chosen by itself; the statistics of the processes
    /// each time, the first of them last.
    fn run(&self, case: &str) -> Vec<Vec<ProcessStats>> {
        let mut without = Command::new(&self.program);
        let without = without.arg(case).arg(&self.data).output().unwrap();
        let each = ways().iter().map(|way| {
            let file = self.stats_file(&format!("{case}.{way}"));
            let mut with = match *way {
                "messages" => self.with(case, &file),
                _ => self.with_signals(case, &file),
            };
            assert_same(&with.output().unwrap(), &without, case);
            stats::read(&file)
        });
        each.collect()
    }

    /// The same of one process, that takes so many mappings, hands so many back, and has none declined.
    fn run_one(&self, case: &str, taken: u64, handed_back: u64) {
        for mut all in self.run(case) {
            assert_eq!(all.len(), 1, "{case}: one process");
            let stats = all.remove(0);
            assert_eq!(stats.taken(), taken, "{case}: taken");
            assert_eq!(stats.handed_back(), handed_back, "{case}: handed back");
            assert_eq!(stats.declined(), [], "{case}: declined");
            stats.stays_in_budget(case);
        }
    }
}

macro_rules! cases {
    ($($name:ident: $case:literal takes $taken:literal and hands back $back:literal;)*) => {$(
        #[test]
        fn $name() {
            let Some(cases) = Cases::get() else { return };
            cases.run_one($case, $taken, $back);
        }
    )*};
}

cases! {
    a_whole_file: "whole" takes 1 and hands back 0;
    parts_of_a_file: "parts" takes 2 and hands back 0;
    two_mappings_of_one_file_have_two_places: "twice" takes 2 and hands back 0;
    behind_the_end_of_the_file_is_a_sigbus: "past-end" takes 1 and hands back 0;
    parts_are_unmapped: "unmap-parts" takes 1 and hands back 1;
    a_file_is_mapped_again_and_again: "again" takes 20 and hands back 0;
    a_mapping_is_protected: "protect" takes 1 and hands back 1;
    a_private_mapping_is_written_to_in_the_end: "write-to-private" takes 2 and hands back 1;
    a_mapping_moves: "move" takes 1 and hands back 1;
    something_else_is_mapped_over_it: "fixed-over" takes 1 and hands back 1;
    advice: "advise" takes 1 and hands back 1;
    memory_is_locked: "lock" takes 1 and hands back 1;
    errno_is_as_it_was: "errno" takes 1 and hands back 0;
    a_hundred_threads_read: "threads" takes 1 and hands back 0;
    it_is_handed_back_under_readers: "change-under-readers" takes 10 and hands back 10;
    handlers_and_masks_of_the_program: "handlers" takes 1 and hands back 0;
    signals_that_the_program_waits_for: "own-signals" takes 1 and hands back 0;
    a_file_is_populated: "populated" takes 1 and hands back 1;
    a_library_is_loaded: "loads" takes 1 and hands back 0;
}

#[test]
fn system_calls_find_missing_pages() {
    let Some(cases) = Cases::get() else { return };
    for stats in cases.run("calls") {
        assert_eq!(stats[0].taken(), 1);
        // The map of the copy.
        assert_eq!(stats[0].declined(), [("too_small".to_owned(), 1)]);
        assert_eq!(stats[0].number(&["failed_touches"]), 0);
    }
}

#[test]
fn messages_serve_calls_that_the_program_makes_itself() {
    let Some(cases) = Cases::get() else { return };
    if !has_messages() {
        return;
    }
    let mut without = Command::new(&cases.program);
    let without = without.arg("raw").arg(&cases.data).output().unwrap();
    let with = cases
        .with("raw", &cases.stats_file("raw"))
        .output()
        .unwrap();
    assert_same(&with, &without, "raw");
}

#[test]
fn children_have_their_parents_memory() {
    let Some(cases) = Cases::get() else { return };
    for stats in cases.run("forks") {
        let taken: Vec<_> = stats.iter().map(ProcessStats::taken).collect();
        // Two that called exec, one that was spawned, and the parent; the child without exec ended by _exit.
        assert_eq!(taken, [1, 1, 2, 2]);
    }
}

#[test]
fn children_without_handlers_have_it_too() {
    let Some(cases) = Cases::get() else { return };
    for stats in cases.run("bare-forks") {
        assert_eq!(stats.len(), 1, "children ended by _exit");
        assert_eq!(stats[0].handed_back(), 0);
    }
}

#[test]
fn a_fork_that_began_before_the_first_mapping_leaves_the_child_whole() {
    let Some(cases) = Cases::get() else { return };
    for stats in cases.run("fork-beside-first") {
        assert_eq!(stats.len(), 1, "the child ended by _exit");
        assert_eq!((stats[0].taken(), stats[0].handed_back()), (1, 0));
    }
}

#[test]
fn a_signal_ends_the_program_as_it_would() {
    let Some(cases) = Cases::get() else { return };
    for stats in cases.run("dies") {
        assert_eq!(stats.len(), 0, "nothing runs at its exit");
    }
}

#[test]
fn declined_mappings_are_named() {
    let Some(cases) = Cases::of_its_own("declined") else {
        return;
    };
    let each = cases.run("declined");
    let mut expected = vec![
        ("executable", "prot_exec", 1),
        ("fixed", "map_fixed", 1),
        ("locked", "map_locked", 1),
        ("none", "no_access", 1),
        ("private", "private_writable", 1),
        ("shared", "shared_writable", 1),
        ("a small file", "too_small", 1),
        ("small parts of a file of any size", "small_mapping", 2),
        ("written", "o_rdwr", 1),
        ("a device, and a pipe", "not_regular", 2),
    ];
    if cfg!(target_arch = "x86_64") {
        expected.push(("low", "unsupported_flags", 1));
    }
    for stats in each {
        assert_eq!(stats[0].taken(), 0);
        let declined = stats[0].declined();
        for (what, name, count) in &expected {
            let found = declined.iter().find(|(declined, _)| declined == name);
            assert_eq!(found.map(|&(_, count)| count), Some(*count), "{what}");
        }
        assert_eq!(declined.len(), expected.len(), "{declined:?}");
    }
}

#[test]
fn something_else_is_mapped_where_the_file_was() {
    let Some(cases) = Cases::get() else { return };
    let program = compile("places.c", &cases.directory.join("places"), &[]);
    let Some(program) = program else { return };
    let without = Command::new(&program).arg(&cases.data).output().unwrap();
    for way in ways() {
        let file = cases.stats_file(&format!("places.{way}"));
        let mut with = softfault_run();
        with.args(["--memory", MEMORY, "--faults", way, "--stats=json"]);
        with.arg("--stats-file").arg(&file);
        let with = with.arg("--").arg(&program).arg(&cases.data).output();
        assert_same(&with.unwrap(), &without, way);
        let stats = &stats::read(&file)[0];
        assert_eq!((stats.taken(), stats.handed_back()), (12, 0), "{way}");
    }
}

#[test]
fn patterns_say_which_files() {
    patterns_say_which_files_of("whole");
}

/// Failed before: its descriptors were looked up as those of the first thread. The patterns were none, and the budget the least.
#[test]
fn patterns_say_which_files_when_the_first_thread_has_ended() {
    patterns_say_which_files_of("without-the-first");
}

fn patterns_say_which_files_of(case: &str) {
    let Some(cases) = Cases::get() else { return };
    let path = cases.data.to_str().unwrap();
    let other = ["excluded", "taken"];
    let rows: [(&[&str], usize); 6] = [
        (&["--include", "data"], 1),
        (&["--include", "*.bin"], 0),
        (&["--include", "*.bin", "--include", path], 1),
        (&["--include", "/nowhere/*"], 0),
        (&["--exclude", "da*"], 0),
        (&["--include", "*", "--exclude", "*.bin"], 1),
    ];
    for (arguments, taken) in rows {
        let file = cases.stats_file("patterns");
        let mut with = softfault_run();
        with.args(["--stats=json", "--stats-file"]).arg(&file);
        with.args(arguments)
            .arg("--")
            .arg(&cases.program)
            .arg(case)
            .arg(&cases.data);
        let with = with.output().unwrap();
        assert!(with.status.success());
        assert_eq!(text(&with.stderr), "", "{arguments:?}");
        let stats = stats::read(&file);
        assert_eq!(
            stats[0].taken(),
            taken as u64,
            "{arguments:?}: {}",
            other[taken]
        );
        assert_eq!(stats[0].declined().len(), 1 - taken, "{arguments:?}");
    }
}

/// Windows of files of at most 1 MiB share a place, of which no part can be handed back: such files are left alone
/// quietly, and `--strict` has nothing to say.
#[test]
fn a_file_of_a_mebibyte_is_the_kernels_and_a_page_more_is_taken() {
    let Some(cases) = Cases::of_its_own("mebibyte") else {
        return;
    };
    for (bytes, taken) in [(200 << 10, 0), (1 << 20, 0), ((1 << 20) + 4096, 1)] {
        let data = file(&cases.directory, bytes);
        for way in ways() {
            let stats_file = cases.stats_file("mebibyte");
            let mut with = softfault_run();
            with.args(["--strict", "--min-size", "4K", "--faults", way]);
            with.arg("--stats=json")
                .arg("--stats-file")
                .arg(&stats_file);
            let output = with.arg("--").arg(&cases.program).arg("whole").arg(&data);
            let output = output.output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(
                output.status.success() && said.is_empty(),
                "{bytes}: {said}"
            );
            let stats = &stats::read(&stats_file)[0];
            let declined = stats.declined();
            assert_eq!(stats.taken(), taken, "{bytes}: {declined:?}");
            let too_small = ("too_small".to_owned(), 1 - taken);
            assert!(
                taken == 1 || declined == [too_small],
                "{bytes}: {declined:?}"
            );
        }
    }
}
