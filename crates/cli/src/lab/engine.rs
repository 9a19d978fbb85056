//! What the lab runs on, behind one face: kernel mmap in three moods, and softfault. `pread` is no map
//! and reads by itself (`reader`).

use super::on_softfault;
use super::stats::EngineStats;
use clap::ValueEnum;
use memmap2::{Advice, Mmap};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;

/// What a row was measured on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum On {
    /// Kernel mmap as it is.
    Kernel,
    /// Kernel mmap with MADV_RANDOM.
    KernelRandom,
    /// Kernel mmap with MADV_SEQUENTIAL.
    KernelSequential,
    /// O_DIRECT reads by as many threads: what the device can give.
    Pread,
    /// This project's engine.
    Softfault,
}

impl On {
    /// The name in arguments, tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::KernelRandom => "kernel-random",
            Self::KernelSequential => "kernel-sequential",
            Self::Pread => "pread",
            Self::Softfault => "softfault",
        }
    }

    /// The cgroup limit for a run with `memory` bytes: the kernel's budget is the limit itself;
    /// softfault keeps its budget by its own means, and the limit above it lets the group's peak show
    /// where it does not; pread has no cache to bound.
    pub fn limit(self, memory: u64) -> Option<u64> {
        match self {
            Self::Kernel | Self::KernelRandom | Self::KernelSequential => Some(memory),
            Self::Softfault => Some(memory + (1 << 30)),
            Self::Pread => None,
        }
    }
}

/// Something that maps files.
pub trait Engine: Sync {
    /// Maps the whole of `file` for reading.
    fn map(&self, file: &File) -> io::Result<Box<dyn Mapping>>;

    /// What it has counted, if it counts.
    fn stats(&self) -> Option<EngineStats>;
}

/// A file mapped for reading.
pub trait Mapping: Send + Sync {
    /// The file's bytes. They must not change while they are looked at: the lab's files do not.
    fn bytes(&self) -> &[u8];
}

/// The engine behind `on` with a budget of `memory` bytes; `None` for pread. The error is the caller's to
/// act on: a budget that is too small, a machine that does not allow it.
pub fn build(on: On, memory: u64) -> Result<Option<Box<dyn Engine>>, String> {
    Ok(match on {
        On::Kernel => Some(Box::new(Kernel(None))),
        On::KernelRandom => Some(Box::new(Kernel(Some(Advice::Random)))),
        On::KernelSequential => Some(Box::new(Kernel(Some(Advice::Sequential)))),
        On::Pread => None,
        On::Softfault => Some(on_softfault::build(memory)?),
    })
}

/// Kernel mmap with an advice.
struct Kernel(Option<Advice>);

impl Engine for Kernel {
    fn map(&self, file: &File) -> io::Result<Box<dyn Mapping>> {
        // SAFETY: the lab's files are not written to while they are mapped.
        let map = unsafe { Mmap::map(file) }?;
        if let Some(advice) = self.0 {
            map.advise(advice)?;
        }
        Ok(Box::new(map))
    }

    fn stats(&self) -> Option<EngineStats> {
        None
    }
}

impl Mapping for Mmap {
    fn bytes(&self) -> &[u8] {
        self
    }
}
