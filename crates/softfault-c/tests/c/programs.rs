//! The examples: compiled with every warning an error, and run.

use crate::installed::{Installed, installed};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

const C: [&str; 5] = ["cc", "-Wall", "-Wextra", "-Werror", "-std=c11"];
const CPP: [&str; 5] = ["c++", "-Wall", "-Wextra", "-Werror", "-std=c++17"];

/// How a program is linked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Link {
    Shared,
    Static,
}

/// An example, compiled; `None` where there is no compiler, or no pkg-config.
struct Program {
    path: PathBuf,
    link: Link,
}

impl Program {
    fn of(example: &str, link: Link) -> Option<Self> {
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
        Self::compile(&examples.join(example), link)
    }

    fn compile(source: &Path, link: Link) -> Option<Self> {
        Self::compile_with(source, link, &[])
    }

    fn compile_with(source: &Path, link: Link, options: &[&str]) -> Option<Self> {
        let installed = installed();
        let name = source.file_name().unwrap().to_str().unwrap();
        let compiler = if name.ends_with(".cpp") { CPP } else { C };
        let mut command = Command::new(compiler[0]);
        if Command::new(compiler[0]).arg("--version").output().is_err() {
            softfault_skip::skipped("cc", format_args!("there is no {}", compiler[0]));
            return None;
        }
        let ending = if link == Link::Static {
            "static"
        } else {
            "shared"
        };
        // Each time another: another test may be running the program that this one compiles.
        static COMPILED: AtomicU32 = AtomicU32::new(0);
        let number = COMPILED.fetch_add(1, Relaxed);
        let name = format!("{name}.{ending}.{number}");
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        command
            .args(&compiler[1..])
            .arg("-O1")
            .args(options)
            .arg(source)
            .arg("-o")
            .arg(&path);
        command.args(installed.pkg_config(&["--cflags"])?);
        command.args(Self::libraries(installed, link)?);
        let said = command.output().unwrap();
        let errors = String::from_utf8_lossy(&said.stderr);
        assert!(said.status.success(), "{errors}");
        Some(Self { path, link })
    }

    fn libraries(installed: &Installed, link: Link) -> Option<Vec<String>> {
        match link {
            Link::Shared => installed.pkg_config(&["--libs"]),
            Link::Static => {
                let words = installed.pkg_config(&["--libs", "--static"])?;
                let one = |word: String| match &word[..] {
                    "-lsoftfault" => "-l:libsoftfault.a".to_owned(),
                    _ => word,
                };
                Some(words.into_iter().map(one).collect())
            }
        }
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(&self.path);
        command.args(arguments).env("SOFTFAULT_MEMORY", "16M");
        command.env_remove("LD_LIBRARY_PATH");
        if self.link == Link::Shared {
            command.env("LD_LIBRARY_PATH", installed().lib());
        }
        command.output().unwrap()
    }

    /// Its output; it succeeds.
    fn says(&self, arguments: &[&str]) -> String {
        let said = self.run(arguments);
        let errors = String::from_utf8_lossy(&said.stderr);
        assert!(said.status.success(), "{:?}: {errors}", said.status);
        assert_eq!(errors, "");
        String::from_utf8(said.stdout).unwrap()
    }
}

/// The header alone, by all standards that compilers still know.
#[test]
fn every_standard_takes_the_header() {
    let c = ["c89", "c99", "c11", "c17"].map(|standard| ("cc", standard, "c"));
    let cpp = ["c++98", "c++11", "c++17"].map(|standard| ("c++", standard, "c++"));
    for (compiler, standard, language) in c.into_iter().chain(cpp) {
        let mut command = Command::new(compiler);
        if Command::new(compiler).arg("--version").output().is_err() {
            softfault_skip::skipped("cc", format_args!("there is no {compiler}"));
            continue;
        }
        let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/softfault.h");
        let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{standard}.source"));
        // A file of its own: a header that is compiled itself is a warning.
        fs::write(&source, format!("#include \"{}\"\n", header.display())).unwrap();
        command.args(["-fsyntax-only", "-Wall", "-Wextra", "-pedantic", "-Werror"]);
        command
            .arg(format!("-std={standard}"))
            .args(["-x", language]);
        let said = command.arg(source).output().unwrap();
        let errors = String::from_utf8_lossy(&said.stderr);
        assert!(said.status.success(), "{standard}: {errors}");
    }
}

/// Bytes of no order, the same each time.
fn bytes(len: usize) -> Vec<u8> {
    let byte = |at: usize| (at.wrapping_mul(2_654_435_761) >> 13) as u8;
    (0..len).map(byte).collect()
}

fn file(name: &str, bytes: &[u8]) -> String {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().to_owned()
}

fn sums(link: Link, name: &str) {
    let Some(program) = Program::of("sum.c", link) else {
        return;
    };
    let bytes = bytes((40 << 20) + 1234);
    let path = file(name, &bytes);
    let said = program.says(&[&path, "8"]);
    let sum: u64 = bytes.iter().map(|&byte| u64::from(byte)).sum();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[0], format!("sum {sum}"));
    let words: Vec<&str> = lines[1].split(' ').collect();
    let (peak, budget): (u64, u64) = (words[1].parse().unwrap(), words[3].parse().unwrap());
    assert_eq!(budget, 8 << 20);
    assert!(peak <= budget, "{said}");
    assert_eq!(lines[2], "faults yes");
    // An error is one line, and says which file.
    let refused = program.run(&["/", "8"]);
    assert!(!refused.status.success());
    let errors = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(errors.lines().count(), 1, "{errors}");
    fs::remove_file(path).unwrap();
}

#[test]
fn a_file_larger_than_the_budget_is_summed() {
    sums(Link::Shared, "sum.bytes");
}

#[test]
fn the_same_statically_linked() {
    sums(Link::Static, "sum-static.bytes");
}

/// The library that the compiler links, which cargo-c installs, has no versions of symbols: a program that was linked with them
/// runs with it.
#[test]
fn a_library_without_versions_serves_too() {
    let Some(program) = Program::of("many.c", Link::Shared) else {
        return;
    };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("without-versions");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir(&folder).unwrap();
    let beside = Path::new(env!("CARGO_BIN_EXE_softfault-c-install"));
    let plain = beside.with_file_name("deps").join("libsoftfault_c.so");
    std::os::unix::fs::symlink(plain, folder.join("libsoftfault.so.0")).unwrap();
    let path = file("without-versions.bytes", &bytes(8 << 20));
    let mut command = Command::new(&program.path);
    command
        .args([&path[..], "10"])
        .env("LD_LIBRARY_PATH", &folder);
    let said = command.output().unwrap();
    let errors = String::from_utf8_lossy(&said.stderr);
    assert!(said.status.success(), "{errors}");
    assert!(said.stdout.starts_with(b"missing 1, "), "{said:?}");
    // It was this library.
    assert!(
        errors.contains("no version information available"),
        "{errors}"
    );
    fs::remove_file(path).unwrap();
}

#[test]
fn many_ranges_come_in_by_one_call() {
    let Some(program) = Program::of("many.c", Link::Shared) else {
        return;
    };
    let (len, count) = ((32 << 20) + 77, 500);
    let bytes = bytes(len);
    let path = file("many.bytes", &bytes);
    let said = program.says(&[&path, &count.to_string()]);
    let places = (0..count).map(|at: usize| (at * 7919 * 4096 + at) % (len - 16));
    let sum: u64 = places.map(|at| u64::from(bytes[at])).sum();
    assert_eq!(said, format!("missing 1, the last: ENOMEM\nsum {sum}\n"));
    fs::remove_file(path).unwrap();
}

#[test]
fn private_memory_goes_to_swap() {
    let Some(program) = Program::of("swap.c", Link::Shared) else {
        return;
    };
    let said = program.says(&[env!("CARGO_TARGET_TMPDIR"), "8"]);
    assert_eq!(said, "swapped out: yes, in: yes\nwithin the budget: yes\n");
}

#[test]
fn system_calls_use_pinned_pages() {
    let Some(program) = Program::of("pin.c", Link::Shared) else {
        return;
    };
    let bytes = bytes((5 << 20) + 4321);
    let from = file("pin.from", &bytes);
    let to = file("pin.to", b"");
    let said = program.says(&[&from, &to]);
    assert_eq!(said, format!("copied {}\n", bytes.len()));
    assert!(fs::read(&to).unwrap() == bytes, "another file");
    fs::remove_file(from).unwrap();
    fs::remove_file(to).unwrap();
}

/// Faults by messages: the kernel's own are served, too, where the system allows it.
#[test]
fn system_calls_wait_for_pages_by_messages() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/messages.c");
    let Some(program) = Program::compile(&source, Link::Shared) else {
        return;
    };
    let bytes = bytes(3 << 20);
    let (from, to) = (file("messages.from", &bytes), file("messages.to", b""));
    let said = program.says(&[&from, &to]);
    match said.strip_prefix("closed: ") {
        Some(why) => softfault_skip::skipped("messages", format_args!("{why}")),
        None => assert!(fs::read(&to).unwrap() == bytes, "{said}"),
    }
    fs::remove_file(from).unwrap();
    fs::remove_file(to).unwrap();
}

/// Failed before: the handlers waited for the lock of the table, which their own thread had.
#[test]
fn handlers_of_fork_call() {
    for link in [Link::Shared, Link::Static] {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/handlers.c");
        let Some(program) = Program::compile(&source, link) else {
            return;
        };
        let said = program.says(&[]);
        assert_eq!(said, "early: EBUSY EBUSY EBUSY\nlate: 0 0 0\nafter: 0\n");
    }
}

/// The handler of SIGBUS and the threads of the library do not end with a dlclose.
#[test]
fn a_plugin_with_the_static_library_stays_loaded() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/plugin.c");
    let options = ["-shared", "-fPIC", "-DPLUGIN"];
    let Some(plugin) = Program::compile_with(&source, Link::Static, &options) else {
        return;
    };
    let Some(program) = Program::compile(&source, Link::Static) else {
        return;
    };
    let said = program.says(&[plugin.path.to_str().unwrap()]);
    assert_eq!(said, "touched: yes\nloaded: yes\n");
}

#[test]
fn a_vector_lives_in_memory_that_goes_to_swap() {
    let Some(program) = Program::of("allocator.cpp", Link::Shared) else {
        return;
    };
    let said = program.says(&[env!("CARGO_TARGET_TMPDIR"), "8"]);
    assert_eq!(said, "right: yes\nswapped: yes\n");
}

#[test]
fn the_manuals_first_program_runs() {
    let manual = include_str!("../../../../docs/c.md");
    let (_, rest) = manual.split_once("```c\n").unwrap();
    let (source, _) = rest.split_once("```").unwrap();
    let source = file("first.c", source.as_bytes());
    let Some(program) = Program::compile(Path::new(&source), Link::Shared) else {
        return;
    };
    let bytes = bytes(1 << 20);
    let path = file("first.bytes", &bytes);
    assert_eq!(program.says(&[&path]), format!("{}\n", bytes[12345]));
    fs::remove_file(path).unwrap();
}
