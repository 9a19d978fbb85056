//! The budget, compared with the machine's memory: a budget that is not below it is never kept.

use super::RunArgs;
use crate::error::Error;
use crate::output::tell;
use crate::size::{self, show};
use softfault::{MIN_MEMORY, memory_and_swap, memory_limit, parse_bytes};
use std::env::var_os;

pub const VARIABLE: &str = "SOFTFAULT_MEMORY";

/// Bytes of a budget; an error if it is too small for an engine.
pub fn parse(text: &str) -> Result<u64, String> {
    match size::parse(text)? {
        bytes if bytes < MIN_MEMORY as u64 => {
            Err(format!("a budget is at least {}", show(MIN_MEMORY as u64)))
        }
        bytes => Ok(bytes),
    }
}

/// The option that has set the budget, or else the variable.
fn said_by(args: &RunArgs) -> &'static str {
    match (args.memory, args.memory_per_process) {
        (Some(_), _) => "--memory",
        (None, Some(_)) => "--memory-per-process",
        (None, None) => VARIABLE,
    }
}

/// The value of the variable.
pub fn said() -> Option<usize> {
    parse_bytes(var_os(VARIABLE)?.to_str()?)
}

/// An error for a budget with which no engine can be made.
pub fn check(args: &RunArgs) -> Result<(), Error> {
    let there_is = memory_and_swap();
    match said() {
        Some(bytes) if bytes > there_is => Err(Error::input(format_args!(
            "{} {} is more than this machine has in memory and swap, {}",
            said_by(args),
            show(bytes as u64),
            show(there_is as u64)
        ))),
        _ => Ok(()),
    }
}

/// A warning for a budget so large that the kernel's reclaim, or the OOM killer, may act before softfault evicts.
pub fn tell_too_large(args: &RunArgs) {
    let Some(bytes) = said() else {
        return;
    };
    let (limit, file) = memory_limit();
    if bytes >= limit {
        let whose = file.map_or_else(
            || "this machine's memory".to_owned(),
            |file| file.display().to_string(),
        );
        tell(&format!(
            "warning: {} {} is not below {}, {whose}: the kernel reclaims, or the OOM killer acts, before softfault evicts\n",
            said_by(args),
            show(bytes as u64),
            show(limit as u64)
        ));
    }
}
