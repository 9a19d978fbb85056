//! The machine that the workloads run on: the parts that this crate uses.

pub use sync::machine::{
    Config, Report, clears, cpu_ns, interrupt_others, loads_from, now_ns, reserve, run,
    sleep_until_ns, spawn_named, spin_ns, work_time_ns,
};
