//! Tests that cannot run on a machine say so where people look.
//!
//! A test's own output is shown only if the test fails, so a line of it tells nobody that the test did nothing.
//! [`skipped`] also appends the line to the file that `SOFTFAULT_SKIPS` names, and `.ci/run` prints that file at its
//! end. `SOFTFAULT_REQUIRE` is a list of [`NEEDS`], as in `root,browser`, or `all`: a test that skips for lack of one of
//! these fails.

use std::fmt::Display;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;

/// The properties that a test may need of a machine.
pub const NEEDS: [&str; 18] = [
    "browser",     // a browser that draws a page without a screen
    "cc",          // a C compiler, a C++ compiler, and their linker
    "descriptors", // leave to open some thousands of files
    "direct",      // a file system that reads past the page cache
    "gdb",         // a debugger that may attach
    "glibc",       // a C library whose every function was looked at
    "hugetlb",     // a pool of huge pages, or leave to make one
    "java",        // a Java compiler and machine
    "kernel",      // a kernel, or a build of one, that has the call in question
    "messages",    // leave to serve the kernel's own page faults
    "mlock",       // leave to lock memory
    "processor",   // a processor of the kind that the test is about
    "program",     // a program that is not part of softfault
    "root",        // calls that only root may make
    "shm",         // /dev/shm
    "swap",        // swap of the machine's own, to which it takes pages
    "tmpfs",       // a file system in memory at /dev/shm
    "xattr",       // a file system whose files have extended attributes
];

/// Says that this test, or a part of it, does not run, for lack of `need`.
#[track_caller]
pub fn skipped(need: &str, why: impl Display) {
    assert!(NEEDS.contains(&need), "{need} is none of {NEEDS:?}");
    let line = format!("{}: {why} ({need})", name());
    println!("skipped: {line}");
    let required = std::env::var("SOFTFAULT_REQUIRE").unwrap_or_default();
    assert!(!requires(&required, need), "SOFTFAULT_REQUIRE: {line}");
    if let Some(path) = std::env::var_os("SOFTFAULT_SKIPS") {
        note(Path::new(&path), &line);
    }
}

/// The test that calls, after its binary.
fn name() -> String {
    let program = std::env::current_exe().unwrap_or_default();
    let program = program.file_stem().unwrap_or_default().to_string_lossy();
    // Cargo puts a hash behind it.
    let binary = match program.rsplit_once('-') {
        Some((name, _)) => name,
        None => &program,
    };
    let thread = std::thread::current();
    format!("{binary} {}", thread.name().unwrap_or("?"))
}

fn requires(list: &str, need: &str) -> bool {
    let mut names = list
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty());
    names.any(|name| {
        let is_known = name == "all" || NEEDS.contains(&name);
        assert!(is_known, "SOFTFAULT_REQUIRE: {name} is none of {NEEDS:?}");
        name == need || name == "all"
    })
}

/// Appends a line, in one write: tests run at the same time.
fn note(path: &Path, line: &str) {
    let file = File::options().create(true).append(true).open(path);
    let written = file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
    if let Err(why) = written {
        println!("{}: {why}", path.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requirements_are_named_or_all() {
        assert!(!requires("", "root"));
        assert!(requires("cc, root", "root"));
        assert!(!requires("cc", "root"));
        assert!(requires("all", "root"));
    }

    #[test]
    #[should_panic(expected = "is none of")]
    fn a_word_that_is_no_need_is_an_error() {
        requires("rooot", "cc");
    }

    #[test]
    fn lines_follow_each_other() {
        let path = std::env::temp_dir().join(format!("skips-{}", std::process::id()));
        note(&path, "one");
        note(&path, "two");
        let lines = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(lines, "one\ntwo\n");
    }

    #[test]
    fn the_line_names_the_test() {
        assert!(name().ends_with("the_line_names_the_test"), "{}", name());
    }
}
