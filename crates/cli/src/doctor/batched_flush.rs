//! One TLB flush for all ranges of a process_madvise(2) (Linux 6.16). It shows in no answer of the
//! kernel, so this one check goes by the version.

use super::check::{Check, Tried, Whereabouts};
use super::{machine, self_madvise};

pub const CHECK: Check = Check {
    name: "batched-flush",
    costs: "a TLB flush for each evicted range instead of one for 128 or more",
    run: |_| {
        if let Err(e) = self_madvise::try_it() {
            return Tried::slower(
                format!("needs self-madvise, which fails: {e}"),
                "as for self-madvise",
            );
        }
        match machine::is_at_least(6, 16) {
            Some(true) => Tried::ok("told from the version only: it cannot be tried"),
            Some(false) => Tried::slower(
                "not in this version; it cannot be tried",
                machine::newer_kernel(6, 16),
            ),
            None => Tried::slower("the version cannot be read", "mount -t proc proc /proc"),
        }
    },
    whereabouts: Whereabouts::Child,
};
