//! The cases of `private.c`: memory that a program writes to, anonymous and of a file.

use crate::scene::Scene;
use crate::stats::{self, ProcessStats};
use crate::{
    MEMORY, WAS_OPENED, assert_same, assert_same_but_told, compile, directory, file, has_messages,
    run_with, softfault_run, text, ways,
};
use std::ffi::OsStr;
use std::ops::Deref;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

/// Bytes of the file: more than the budget, and no whole number of pages.
const BYTES: usize = (12 << 20) + 100;

struct Private(Scene);

impl Deref for Private {
    type Target = Scene;

    fn deref(&self) -> &Scene {
        &self.0
    }
}

/// The program, and a file for its cases; `None` where none can run.
fn private() -> Option<&'static Private> {
    static PRIVATE: OnceLock<Option<Private>> = OnceLock::new();
    let made = || Scene::new("private", &[], BYTES).map(Private);
    PRIVATE.get_or_init(made).as_ref()
}

impl Private {
    /// Runs a case over a file without softfault, and with it with these options more; the statistics of the processes, the first
    /// last.
    fn run(&self, case: &str, data: &Path, options: &[&str]) -> Vec<ProcessStats> {
        let file = format!("{case}.{}.stats", options.concat().replace('/', "-"));
        let mut options = options.to_vec();
        if !options.contains(&"--min-size") {
            options.extend(["--min-size", "1M"]);
        }
        let program = &self.program;
        let command: [&OsStr; 3] = [program.as_ref(), case.as_ref(), data.as_ref()];
        let (with, stats) = run_with(&options, &command, &self.directory.join(file));
        let without = Command::new(program).arg(case).arg(data).output().unwrap();
        assert_same_but_told(&with, &without, &stats, case);
        stats
    }

    /// The same with anonymous memory taken, and swap for all of it; of the last process, which takes so many mappings,
    /// hands so many parts back, and stays in its budget.
    fn runs(&self, case: &str, how: &str, taken: u64, handed_back: u64) -> ProcessStats {
        let swap = self.swap("300M");
        let options = ["--anonymous", "--swap", &swap, "--faults", how];
        let stats = self.run(case, &self.data, &options).pop().unwrap();
        assert_eq!(stats.taken(), taken, "{case}: taken");
        assert_eq!(stats.handed_back(), handed_back, "{case}: handed back");
        stats.stays_in_budget(case);
        stats
    }

    /// Softfault that takes anonymous memory, with so much swap, and writes its statistics to a file.
    fn takes_anonymous(&self, swap: &str, stats: &Path) -> Command {
        let mut with = softfault_run();
        with.args(["--memory", MEMORY, "--min-size", "1M", "--stats=json"]);
        with.arg("--stats-file").arg(stats);
        with.args(["--anonymous", "--swap", &self.swap(swap)]);
        with
    }
}

macro_rules! cases {
    ($($name:ident: $case:literal takes $taken:literal and hands back $back:literal;)*) => {$(
        #[test]
        fn $name() {
            let Some(private) = private() else { return };
            if has_messages() {
                private.runs($case, "messages", $taken, $back);
            }
        }
    )*

        mod by_signals {
            use super::private;

            $(#[test]
            fn $name() {
                let Some(private) = private() else { return };
                private.runs($case, "signals", $taken, $back);
            })*
        }
    };
}

cases! {
    system_calls_read_and_write_memory_that_is_not_there: "calls" takes 2 and hands back 0;
    advice_is_followed: "advise" takes 2 and hands back 1;
    parts_are_unmapped_and_something_else_is_there: "unmap-parts" takes 4 and hands back 0;
    parts_are_protected: "protect" takes 2 and hands back 3;
    something_else_is_mapped_over_it: "fixed-over" takes 2 and hands back 0;
    it_moves_and_grows: "move" takes 3 and hands back 2;
    memory_is_locked: "lock" takes 1 and hands back 1;
    sixteen_threads_write: "threads" takes 1 and hands back 0;
    it_is_handed_back_under_writers: "change-under-writers" takes 2 and hands back 20;
    it_is_a_stack: "stacks" takes 5 and hands back 2;
}

#[test]
fn four_budgets_of_memory_are_written_and_read_back() {
    let Some(private) = private() else { return };
    for how in ways() {
        let stats = private.runs("pressure", how, 3, 0);
        for way in ["swapped_out_bytes", "swapped_in_bytes"] {
            assert!(stats.number(&[way]) > 24 << 20, "{how}: {way}");
        }
    }
}

/// Failed before: the first page that was read from swap needed a mapping of the engine's own, and was a SIGBUS.
#[test]
fn memory_comes_from_swap_where_the_process_can_map_no_more() {
    let Some(private) = private() else { return };
    for how in ways() {
        private.runs("no-mappings", how, 1, 0);
    }
}

#[test]
fn children_go_on_with_their_parents_writes() {
    let Some(private) = private() else { return };
    for how in ways() {
        private.runs("forks", how, 2, 0);
    }
}

/// Failed before: the child was ended by a signal. Now the memory is handed over before.
#[test]
fn children_that_can_map_no_more_have_their_parents_memory() {
    let Some(private) = private() else { return };
    for how in ways() {
        private.runs("forks-at-a-limit", how, 2, 2);
    }
}

/// Failed before: the fork kept memory still and waited for the list of streams, which a thread had that waited for a
/// stream, whose thread waited for the memory.
#[test]
fn streams_of_memory_that_a_fork_keeps_still_come_to_an_end() {
    let Some(private) = private() else { return };
    let swap = private.swap("300M");
    for how in ways() {
        let options = ["--anonymous", "--swap", &swap, "--faults", how];
        let stats = private.run("streams", &private.data, &options).pop();
        assert!(stats.unwrap().taken() >= 1, "{how}");
    }
}

/// By signals, the page of a semaphore is handed over before a thread waits on it.
#[test]
fn bytes_that_calls_put_into_missing_memory_are_not_lost() {
    let Some(private) = private() else { return };
    if has_messages() {
        private.runs("receives", "messages", 1, 0);
    }
    private.runs("receives", "signals", 1, 1);
    for how in ways() {
        private.runs("receives-others", how, 3, 0);
    }
}

#[test]
fn others_write_to_a_file_that_was_copied() {
    let Some(private) = private() else { return };
    // Others write: a file of each run's own.
    let [with, without] = ["with", "without"].map(|name| {
        let directory = directory(&format!("private-{name}"));
        file(&directory, BYTES)
    });
    let stats = private.directory.join("written.stats");
    let _ = std::fs::remove_file(&stats);
    let mut run = softfault_run();
    run.args(["--memory", MEMORY, "--min-size", "1M", "--stats=json"]);
    run.arg("--stats-file").arg(&stats);
    run.args(["--swap", &private.swap("100M"), "--"]);
    let run = run.arg(&private.program).arg("written").arg(with).output();
    let mut plain = Command::new(&private.program);
    let plain = plain.arg("written").arg(without).output();
    let (run, plain) = (run.unwrap(), plain.unwrap());
    let told = text(&run.stderr);
    assert!(
        told.contains(&format!(", {} MiB,", BYTES.div_ceil(1 << 20)))
            && told.ends_with(WAS_OPENED)
            && told.lines().count() == 1,
        "{told}"
    );
    let stats = stats::read(&stats);
    assert_same_but_told(&run, &plain, &stats, "written");
    assert_eq!((stats[0].taken(), stats[0].handed_back()), (1, 1));
}

/// Tables are not evicted: without memory for more of them, mappings are declined, and those that were taken are served.
#[test]
fn tables_leave_half_of_the_budget() {
    let Some(private) = private() else { return };
    let swap = private.swap("16G");
    for how in ways() {
        let options = ["--anonymous", "--swap", &swap, "--faults", how];
        let stats = private.run("tables", &private.data, &options).pop();
        let stats = stats.unwrap();
        // Of 1,000 mappings twice, with 4 pages of tables each, in half of the budget; and of one of 8 GiB none. All of the
        // 1,001 parts of a reservation are taken.
        let budget: u64 = MEMORY.strip_suffix('M').unwrap().parse().unwrap();
        let taken = 2 * (budget << 20) / 2 / (4 * 4096);
        let declined = [("tables_full".to_owned(), 2_001 - taken)];
        let found = (stats.taken(), stats.declined());
        assert_eq!(found, (taken + 1_001, declined.to_vec()), "{how}");
        assert_eq!(stats.number(&["failed_touches"]), 0, "{how}");
    }
}

#[test]
fn declined_mappings_are_named() {
    let Some(private) = private() else { return };
    let anonymous = [
        ("prot_exec", 1),
        ("map_fixed", 1),
        ("shared_writable", 1),
        ("no_access", 1),
        ("unsupported_flags", 2),
    ];
    let swap = private.swap("100M");
    // Options, the mappings declined of those that depend on them, and how many mappings are taken.
    type Row<'a> = (&'a [&'a str], &'a [(&'a str, u64)], u64);
    let rows: [Row<'_>; 5] = [
        // Only files are looked at.
        (&[], &[("private_writable", 1)], 0),
        (&["--swap", &swap], &[], 1),
        (&["--anonymous", "--swap", &swap], &[("swap_full", 1)], 2),
        (
            &["--anonymous", "--swap", &swap, "--faults", "signals"],
            &[("swap_full", 1)],
            2,
        ),
        // A smallest size for anonymous memory as for files.
        (
            &["--swap", &swap, "--min-size", "20M", "--anonymous"],
            &[("swap_full", 1), ("too_small", 1)],
            0,
        ),
    ];
    for (options, named, taken) in rows {
        let stats = private
            .run("declined", &private.data, options)
            .pop()
            .unwrap();
        let mut expected = named.to_vec();
        if options.contains(&"--anonymous") && !options.contains(&"20M") {
            expected.extend(anonymous);
        }
        expected.sort_unstable();
        let mut declined = stats.declined();
        declined.sort_unstable();
        let declined: Vec<_> = declined
            .iter()
            .map(|(name, count)| (&**name, *count))
            .collect();
        assert_eq!((declined, stats.taken()), (expected, taken), "{options:?}");
    }
}

#[test]
fn python_works_in_anonymous_memory_and_in_a_copy_of_a_file() {
    let Some(private) = private() else { return };
    let program = "\
import hashlib, mmap, os, random
n = 16 << 20
m = mmap.mmap(-1, n, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
f = open('data', 'rb')
print(f.readinto(memoryview(m)[:12 << 20]), hashlib.sha256(m).hexdigest())
m[12 << 20:] = m[:4 << 20][::-1]
m.resize(n + (8 << 20))
random.seed(1)
for i in range(1500):
    at = random.randrange(len(m) - 8)
    m[at:at + 8] = at.to_bytes(8, 'big')
c = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_COPY)
for i in range(0, len(c), 9000):
    c[i] = c[i] ^ 255
if os.fork() == 0:
    print(hashlib.sha256(m).hexdigest(), hashlib.sha256(c).hexdigest())
    raise SystemExit
os.wait()
print(hashlib.sha256(m).hexdigest(), hashlib.sha256(c).hexdigest())
";
    let python = |mut command: Command| {
        command.args(["python3", "-c", program]);
        command.current_dir(&private.directory).output().unwrap()
    };
    let without = python(Command::new("env"));
    if without.status.code() == Some(127) {
        return softfault_skip::skipped("program", "there is no python3");
    }
    for how in ways() {
        let file = private.directory.join("python.stats");
        let _ = std::fs::remove_file(&file);
        let mut with = private.takes_anonymous("100M", &file);
        with.args(["--faults", how, "--"]);
        assert_same(&python(with), &without, how);
        let stats = stats::read(&file).pop().unwrap();
        assert!(stats.taken() >= 2 && stats.handed_back() == 0);
        assert!(stats.number(&["peak_bytes"]) <= 8 << 20);
    }
}

/// A page that is evicted while a device writes to it is not lost: of calls that the program makes itself, and in a process that
/// has forked of those that it makes by the C library.
#[test]
fn devices_read_into_memory_that_is_evicted() {
    let Some(private) = private() else { return };
    if !has_messages() {
        return;
    }
    let program = compile("direct.c", &private.directory.join("direct"), &[]);
    let Some(program) = program else { return };
    for how in ["raw", "forked"] {
        let file = private.directory.join(format!("direct.{how}.stats"));
        let _ = std::fs::remove_file(&file);
        let mut with = private.takes_anonymous("100M", &file);
        let with = with
            .arg("--")
            .arg(&program)
            .arg(how)
            .arg(&private.data)
            .output();
        let said = crate::text(&with.unwrap().stdout);
        if said == "no direct reads\n" {
            return softfault_skip::skipped("direct", "the file system has no direct reads");
        }
        assert_eq!(said, "bad 0\n", "{how}");
        let stats = stats::read(&file).pop().unwrap();
        assert!(
            stats.taken() >= 4 && stats.number(&["evicted"]) > 0,
            "{how}"
        );
    }
}

/// Random calls on memory whose every page is known, by a program that forks now and then; many with
/// `SOFTFAULT_RUN_OPERATIONS`, and with `SOFTFAULT_RUN_SEED` others.
#[test]
fn every_page_is_right_under_random_calls() {
    let Some(private) = private() else { return };
    let program = compile("random.c", &private.directory.join("random"), &[]);
    let Some(program) = program else { return };
    let number = |name: &str, default: &str| std::env::var(name).unwrap_or(default.to_owned());
    let operations = number("SOFTFAULT_RUN_OPERATIONS", "120");
    let seed = number("SOFTFAULT_RUN_SEED", "1");
    for how in ways() {
        let file = private.directory.join(format!("random.{how}.stats"));
        let _ = std::fs::remove_file(&file);
        let mut with = private.takes_anonymous("300M", &file);
        with.args(["--faults", how, "--"]);
        with.arg(&program)
            .args([&seed, &operations])
            .arg(&private.data);
        let with = with.output().unwrap();
        let said = crate::text(&with.stdout);
        assert_eq!(said, format!("done {operations}\n"), "{how}, seed {seed}");
        let stats = stats::read(&file).pop().unwrap();
        assert!(stats.taken() >= 4 && stats.handed_back() > 0);
        assert!(stats.number(&["peak_bytes"]) <= stats.number(&["budget_bytes"]));
    }
}

/// Memory that the program's own malloc hands out may be memory that the threads that serve faults run on.
#[test]
fn memory_of_a_malloc_of_the_programs_own_is_declined() {
    let Some(private) = private() else { return };
    let other = compile(
        "malloc.c",
        &private.directory.join("libmalloc.so"),
        &["-shared", "-fPIC"],
    );
    let Some(other) = other else { return };
    let file = private.directory.join("malloc.stats");
    let _ = std::fs::remove_file(&file);
    let mut with = softfault_run();
    with.args([
        "--anonymous",
        "--swap",
        &private.swap("300M"),
        "--stats=json",
    ]);
    with.arg("--stats-file").arg(&file).env("LD_PRELOAD", other);
    with.arg("--")
        .arg(&private.program)
        .arg("lock")
        .arg(&private.data);
    assert!(with.output().unwrap().status.success());
    let stats = stats::read(&file).pop().unwrap();
    assert_eq!(stats.declined(), [("other_malloc".to_owned(), 1)]);
}

/// The command refuses that; a program within may have taken the variable away.
#[test]
fn anonymous_memory_without_swap_is_declined() {
    let Some(private) = private() else { return };
    let file = private.directory.join("no-swap.stats");
    let _ = std::fs::remove_file(&file);
    let mut with = softfault_run();
    let swap = private.swap("300M");
    with.args(["--anonymous", "--swap", &swap, "--stats=json"]);
    with.arg("--stats-file").arg(&file);
    with.args(["--", "env", "--unset=SOFTFAULT_SWAP"]);
    with.arg(&private.program).arg("lock").arg(&private.data);
    assert!(with.output().unwrap().status.success());
    let stats = stats::read(&file).pop().unwrap();
    assert_eq!(stats.declined(), [("no_swap".to_owned(), 1)]);
}
