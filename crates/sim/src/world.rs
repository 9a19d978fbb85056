//! The machine that the workloads run on: the parts that this crate uses.

pub use sync::machine::{
    Config, Report, cpu_ns, interrupt_others, now_ns, run, sleep_until_ns, spawn_named,
};
