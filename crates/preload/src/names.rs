//! The names of the variables by which the command hands its options to the library; `options.rs` says what they mean. The command
//! has this file too.

pub const TREE: &str = "SOFTFAULT_RUN_TREE";
pub const FAULTS: &str = "SOFTFAULT_RUN_FAULTS";
pub const MIN_SIZE: &str = "SOFTFAULT_RUN_MIN_SIZE";
pub const INCLUDE: &str = "SOFTFAULT_RUN_INCLUDE";
pub const EXCLUDE: &str = "SOFTFAULT_RUN_EXCLUDE";
pub const ANONYMOUS: &str = "SOFTFAULT_RUN_ANONYMOUS";
pub const ASSUME_IMMUTABLE: &str = "SOFTFAULT_RUN_ASSUME_IMMUTABLE";
pub const STRICT: &str = "SOFTFAULT_RUN_STRICT";
pub const STATS: &str = "SOFTFAULT_RUN_STATS";
pub const STATS_EVERY: &str = "SOFTFAULT_RUN_STATS_EVERY";
pub const STATS_FILE: &str = "SOFTFAULT_RUN_STATS_FILE";
