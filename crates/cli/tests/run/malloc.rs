//! Large blocks of malloc, in C, C++ and Python.

use crate::scene::Scene;
use crate::stats::{self, ProcessStats};
use crate::{assert_same_but_told, compile, run_with, softfault_run, text, ways};
use std::ffi::OsStr;
use std::ops::Deref;
use std::process::Command;
use std::sync::OnceLock;

struct Mallocs(Scene);

impl Deref for Mallocs {
    type Target = Scene;

    fn deref(&self) -> &Scene {
        &self.0
    }
}

fn mallocs() -> Option<&'static Mallocs> {
    static MALLOCS: OnceLock<Option<Mallocs>> = OnceLock::new();
    // The compiler would leave out calls of malloc that it knows.
    let made = || Scene::new("mallocs", &["-fno-builtin"], 100).map(Mallocs);
    MALLOCS.get_or_init(made).as_ref()
}

impl Mallocs {
    /// Runs a program whose large blocks may be taken, in all ways; it prints the same as without softfault. Its statistics in
    /// the first.
    fn run(&self, name: &str, swap: &str, arguments: &[&str], min_size: &str) -> ProcessStats {
        let each = ways()
            .iter()
            .map(|how| self.run_by(how, name, swap, arguments, min_size));
        let mut each: Vec<_> = each.collect();
        assert!(each.iter().all(|stats| blocks(stats) > 0), "{name}");
        each.swap_remove(0)
    }

    /// The same by messages or by signals.
    fn run_by(
        &self,
        how: &str,
        name: &str,
        swap: &str,
        arguments: &[&str],
        min_size: &str,
    ) -> ProcessStats {
        let written = self.directory.join(format!("{name}.{how}.stats"));
        let swap = self.swap(swap);
        let mut options = vec!["--faults", how, "--anonymous", "--min-size", min_size];
        options.extend(["--swap", &swap]);
        let command: Vec<&OsStr> = arguments.iter().map(OsStr::new).collect();
        let (with, mut stats) = run_with(&options, &command, &written);
        let mut without = Command::new(arguments[0]);
        let without = without.args(&arguments[1..]).output().unwrap();
        assert_same_but_told(&with, &without, &stats, &format!("{name} {how}"));
        let stats = stats.pop().unwrap();
        stats.stays_in_budget(name);
        stats
    }

    /// The same of a case of the program in C; all that is taken of it are blocks.
    fn case(&self, case: &str) -> ProcessStats {
        let [program, data] = [&self.program, &self.data].map(|path| path.to_str().unwrap());
        let stats = self.run(case, "200M", &[program, case, data], "1M");
        assert_eq!(blocks(&stats), stats.taken(), "{case}");
        stats
    }
}

fn blocks(stats: &ProcessStats) -> u64 {
    stats.number(&["malloc", "mappings"])
}

macro_rules! cases {
    ($($name:ident: $case:literal takes $blocks:literal and hands back $back:literal;)*) => {$(
        #[test]
        fn $name() {
            let Some(mallocs) = mallocs() else { return };
            let stats = mallocs.case($case);
            assert_eq!((blocks(&stats), stats.handed_back()), ($blocks, $back));
        }
    )*};
}

cases! {
    blocks_of_two_budgets_are_right_and_calloc_gives_zeros: "blocks" takes 23 and hands back 0;
    a_block_grows_and_shrinks: "grows" takes 3 and hands back 0;
    parts_of_blocks_are_locked_and_protected: "changed" takes 6 and hands back 6;
}

#[test]
fn blocks_are_aligned_as_they_are_asked_to_be() {
    let Some(mallocs) = mallocs() else { return };
    // One that does not begin where its mapping does is copied to grow; how many do depends on chance.
    let blocks = blocks(&mallocs.case("aligned"));
    assert!((20..=26).contains(&blocks), "{blocks}");
}

#[test]
fn sizes_beyond_all_memory_are_refused() {
    let Some(mallocs) = mallocs() else { return };
    let stats = mallocs.case("refused");
    assert_eq!(blocks(&stats), 1);
    let declined = stats.declined();
    assert!(
        declined.iter().all(|(name, _)| name == "swap_full"),
        "{declined:?}"
    );
}

#[test]
fn threads_allocate_while_others_fork_and_load_libraries() {
    let Some(mallocs) = mallocs() else { return };
    let stats = mallocs.case("threads");
    assert!(blocks(&stats) > 100 && stats.number(&["evicted"]) > 0);
}

#[test]
fn memory_that_cplusplus_allocates_is_taken() {
    let Some(mallocs) = mallocs() else { return };
    let arguments = ["-xc++", "-Wl,--no-as-needed", "-lstdc++"];
    let to = mallocs.directory.join("cplusplus");
    let Some(program) = compile("mallocs.cpp", &to, &arguments) else {
        return;
    };
    let stats = mallocs.run("cplusplus", "200M", &[program.to_str().unwrap()], "1M");
    assert!(blocks(&stats) > 45 && stats.handed_back() == 0);
}

/// There malloc's address is in the program, although the function is not. Failed before: Debian's python3 is such a program, and
/// nothing of it was taken.
#[test]
fn a_program_that_is_not_position_independent_is_taken_too() {
    let Some(mallocs) = mallocs() else { return };
    let arguments = ["-fno-builtin", "-fno-pic", "-no-pie"];
    let to = mallocs.directory.join("fixed");
    let Some(program) = compile("mallocs.c", &to, &arguments) else {
        return;
    };
    let [program, data] = [&program, &mallocs.data].map(|path| path.to_str().unwrap());
    let stats = mallocs.run("fixed", "200M", &[program, "blocks", data], "1M");
    assert_eq!(blocks(&stats), 23);
}

/// Threads of softfault start while the loader is locked, by a thread that waits for them.
#[test]
fn a_library_that_is_loaded_takes_the_first_blocks() {
    let Some(mallocs) = mallocs() else { return };
    let to = mallocs.directory.join("initialiser.so");
    let library = compile("initialiser.c", &to, &["-shared", "-fPIC"]);
    let Some(library) = library else { return };
    let [program, library] = [&mallocs.program, &library].map(|path| path.to_str().unwrap());
    let arguments = [program, "loads-first", library];
    let stats = mallocs.run("loads-first", "200M", &arguments, "1M");
    assert_eq!(blocks(&stats), 1);
}

/// Where swap has no room, and where blocks are small, they are the C library's.
#[test]
fn blocks_that_are_declined_are_named() {
    let Some(mallocs) = mallocs() else { return };
    let [program, data] = [&mallocs.program, &mallocs.data].map(|path| path.to_str().unwrap());
    let arguments = [program, "blocks", data];
    let stats = mallocs.run("no-room", "10M", &arguments, "1M");
    assert_eq!(stats.declined(), [("swap_full".to_owned(), 1)]);
    assert_eq!(blocks(&stats), 22);
    let written = mallocs.directory.join("declined.stats");
    let _ = std::fs::remove_file(&written);
    let mut with = softfault_run();
    with.args(["--anonymous", "--min-size", "13M", "--stats=json"]);
    with.arg("--swap")
        .arg(&mallocs.directory)
        .arg("--stats-file");
    with.arg(&written).arg("--").args(arguments);
    let with = with.output().unwrap();
    assert!(with.status.success(), "{}", text(&with.stderr));
    // A process that has taken and declined nothing says nothing.
    assert!(stats::read(&written).is_empty());
}

#[test]
fn python_and_numpy_work_in_blocks_larger_than_the_budget() {
    let Some(mallocs) = mallocs() else { return };
    let plain = "\
import hashlib
a = bytearray(16 << 20)
for i in range(0, len(a), 4096):
    a[i:i + 8] = i.to_bytes(8, 'big')
print(hashlib.sha256(a).hexdigest())
a.extend(a[:4 << 20])
b = bytes(a)
print(hashlib.sha256(b).hexdigest(), b == a)
l = list(range(300000))
l.reverse()
print(l[5], sum(l))
";
    let numpy = "\
import numpy, hashlib
a = numpy.arange(1 << 20, dtype=numpy.uint64)
b = numpy.empty(1 << 20, dtype=numpy.uint64)
numpy.multiply(a, 3, out=b)
c = numpy.zeros((1024, 2048))
c[::3] += 1.5
b.sort()
print(int(b.sum()), float(c.sum()), hashlib.sha256(b[::-1].copy()).hexdigest())
b.resize(3 << 19, refcheck=False)
print(int(b[1 << 20:].sum()), int(b[12345]))
";
    // Numpy may be in an environment of its own.
    let python = std::env::var("SOFTFAULT_RUN_PYTHON").unwrap_or("python3".into());
    for (name, program, at_least) in [("python", plain, 3), ("numpy", numpy, 4)] {
        let tried = Command::new(&python).args(["-c", program]).output();
        let runs = tried.is_ok_and(|tried| tried.status.success());
        if !runs {
            softfault_skip::skipped("program", format_args!("there is no {name}"));
            continue;
        }
        let stats = mallocs.run(name, "400M", &[&python, "-c", program], "2M");
        assert!(blocks(&stats) >= at_least, "{name}: {}", blocks(&stats));
        assert!(stats.number(&["swapped_out_bytes"]) > 8 << 20, "{name}");
    }
}
