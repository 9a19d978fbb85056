//! Swap: where memory that softfault holds may go after all.

use super::check::{Check, Tried, Whereabouts};
use super::machine;

pub const CHECK: Check = Check {
    name: "swap",
    costs: "nothing",
    run: |_| {
        let kib = |key| machine::figure("/proc/meminfo", key).unwrap_or(0) << 10;
        let (total, free) = (kib("SwapTotal"), kib("SwapFree"));
        Tried::ok(match total {
            0 => "none: what the budget holds stays in memory".to_owned(),
            _ => format!(
                "{} of {} free; a budget above what is free in memory may be swapped",
                machine::bytes(Some(free)),
                machine::bytes(Some(total))
            ),
        })
    },
    whereabouts: Whereabouts::Child,
};
