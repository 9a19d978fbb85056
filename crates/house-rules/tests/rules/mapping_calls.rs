//! The library's calls that change mappings, and those by their numbers.

use crate::source::{Sources, lines};
use crate::{Broken, Rule};

pub const RULE: Rule = Rule {
    name: "mappings-past-a-preload",
    why: "under `softfault run` the C library's functions of these names are ours: they look at the program's mappings, \
          under a lock that a thread may hold which waits for the engine. One call of the engine's that went there made \
          500 threads wait for each other",
    check,
    bad: &[
        &[(
            "crates/softfault/src/a.rs",
            "unsafe { libc::mprotect(a, b, c) };",
        )],
        &[("crates/sync-std/src/pages.rs", "libc::munmap(a, b);")],
        &[("crates/softfault/src/a/b.rs", "use libc::{c_int, madvise};")],
        &[(
            "crates/preload/src/a.rs",
            "unsafe { libc::syscall(libc::SYS_munmap, a, b) };",
        )],
    ],
    good: &[
        (
            "crates/softfault/src/a.rs",
            "unsafe { kernel_calls::mprotect(a, b, libc::PROT_READ) };",
        ),
        (
            "crates/softfault/src/a/tests/b.rs",
            "unsafe { libc::mmap(a) };",
        ),
        (
            "crates/sync-std/src/system_call.rs",
            "libc::syscall(number, a, b)",
        ),
    ],
};

const CALLS: [&str; 10] = [
    "syscall", "mmap", "munmap", "mremap", "mprotect", "madvise", "mincore", "mlock", "munlock",
    "msync",
];

fn check(sources: &Sources) -> Vec<Broken> {
    let mut broken = Vec::new();
    for below in [
        "crates/softfault/src/",
        "crates/sync-std/src/",
        "crates/preload/src/",
    ] {
        for (path, text) in sources.rust_below(below) {
            // It has the call for processors whose own instruction it does not know.
            let is_way_down = path == "crates/sync-std/src/system_call.rs";
            if path.contains("/tests/") || path.ends_with("/tests.rs") || is_way_down {
                continue;
            }
            for (place, line) in lines(path, text) {
                let called = |call: &&&str| line.contains(&format!("libc::{call}("));
                let imports = line.trim_start().starts_with("use libc::");
                let imported = |call: &&&str| imports && words_of(&line).any(|word| word == **call);
                if let Some(call) = CALLS.iter().find(|call| called(call) || imported(call)) {
                    broken.push(format!("{place} calls the C library's {call}"));
                }
            }
        }
    }
    broken
}

fn words_of(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_alphanumeric() && c != '_')
}
