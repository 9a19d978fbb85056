//! Lockable memory, which others of this kind need and softfault does not.

use super::check::{Check, Tried, Whereabouts};
use super::machine;

pub const CHECK: Check = Check {
    name: "lockable-memory",
    costs: "nothing",
    run: |_| {
        let (soft, _) = machine::limit(libc::RLIMIT_MEMLOCK);
        Tried::ok(format!("{}; none is needed", machine::bytes(soft)))
    },
    whereabouts: Whereabouts::Child,
};
