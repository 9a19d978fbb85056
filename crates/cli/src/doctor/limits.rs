//! Limits of the number of files that can be mapped at a time.

use super::check::{Check, Tried, Whereabouts};
use super::machine;

/// Descriptors: a mapped file keeps one.
pub const OPEN_FILES: Check = Check {
    name: "open-files",
    costs: "few files can be mapped at a time: each keeps a descriptor",
    run: |place| {
        let (_, hard) = machine::limit(libc::RLIMIT_NOFILE);
        let show = |limit: Option<u64>| limit.map_or("unlimited".to_owned(), |n| n.to_string());
        let found = format!(
            "{} (ulimit -n), at most {}; one for each mapped file",
            show(place.open_files),
            show(hard)
        );
        let few = |limit: Option<u64>| limit.is_some_and(|limit| limit < ENOUGH);
        match (few(place.open_files), few(hard)) {
            (false, _) => Tried::ok(found),
            (true, false) => Tried::slower(
                found,
                format!("ulimit -n {}", show(hard.map(|n| n.min(MANY)))),
            ),
            (true, true) => Tried::slower(
                found,
                format!("as root: ulimit -Hn {MANY}; ulimit -n {MANY}"),
            ),
        }
    },
    whereabouts: Whereabouts::Child,
};

/// Descriptors that a program with many files wants.
const ENOUGH: u64 = 4096;
const MANY: u64 = 1 << 20;

/// Mappings that a process may have: a mapped file is one.
pub const MAPPINGS: Check = Check {
    name: "max-map-count",
    costs: "few files can be mapped at a time: each is a mapping",
    run: |_| match machine::sysctl("vm.max_map_count").and_then(|text| text.parse::<u64>().ok()) {
        None => Tried::ok("not known"),
        Some(most) => {
            let found = format!("vm.max_map_count = {most}; one for each mapped file");
            match most < DEFAULT {
                false => Tried::ok(found),
                true => Tried::slower(found, "sysctl -w vm.max_map_count=1048576"),
            }
        }
    },
    whereabouts: Whereabouts::Child,
};

/// Linux's default.
const DEFAULT: u64 = 65_530;
