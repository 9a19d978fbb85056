//! Mappings that a process may have: a mapped file is one.

use super::check::{Check, Tried, Whereabouts};
use super::machine;

pub const CHECK: Check = Check {
    name: "max-map-count",
    costs: "few files can be mapped at a time: each is a mapping",
    run: |_| match machine::sysctl("vm.max_map_count").and_then(|text| text.parse::<u64>().ok()) {
        None => Tried::ok("not told"),
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
