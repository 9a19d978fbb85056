//! The lab's engine over the softfault library.

use super::stored::Stored;
use super::written::Written;
use super::{Anonymous, Engine, Mapping, WritableMapping};
use super::{HugeFile, huge};
use crate::lab::job::Swap;
use crate::lab::stats::{EngineStats, LockWaits, SwapCounts};
use softfault::policy::Policies;
use softfault::{Coherence, Mmap, MmapMut, Reads, Stats, SwapStats, WaitSnapshot};
use std::fs::File;
use std::io;
use std::ops::Range;

/// An engine with a budget of `memory` bytes and these policies, which reads files so, or why the library refuses it.
pub fn build(
    memory: u64,
    policies: Policies,
    reads: Option<Reads>,
    swap: Option<&Swap>,
) -> Result<Box<dyn Engine>, String> {
    let mut builder = builder(memory, swap)?;
    if let Some(reads) = reads {
        // As a program has it. Other rows are about the engine within its budget: see `builder`.
        builder = builder.reads(reads).allow_kernel_maps(true);
    }
    match builder.policies(policies).build() {
        Ok(engine) => Ok(Box::new(OnSoftfault(engine))),
        Err(e) => Err(format!("softfault: {e}")),
    }
}

/// An engine's settings: its budget, and where its swap is if it needs any. It serves by itself, and reads past the page
/// cache: what that keeps is in no budget, and a row would have more memory than the kernel's row beside it.
pub fn builder(memory: u64, swap: Option<&Swap>) -> Result<softfault::Builder, String> {
    let memory = usize::try_from(memory).map_err(|_| "the budget is larger than memory can be")?;
    let builder = softfault::Engine::builder().memory(memory);
    let builder = builder.allow_kernel_maps(false).reads(Reads::Direct);
    let builder = builder.coherence(Coherence::Engine);
    Ok(match swap {
        Some(swap) => builder.swap(softfault::Swap::in_dir(&swap.dir).bytes(swap.bytes)),
        None => builder,
    })
}

struct OnSoftfault(softfault::Engine);

impl Engine for OnSoftfault {
    fn map(&self, file: &File) -> io::Result<Box<dyn Mapping>> {
        // SAFETY: the lab's files are not written to while they are mapped.
        Ok(Box::new(unsafe { self.0.map(file) }?))
    }

    fn map_anonymous(&self, bytes: usize) -> io::Result<Box<dyn Anonymous>> {
        Ok(Box::new(Stored::over(self.0.map_anon(bytes)?)))
    }

    fn map_writable(&self, file: &File) -> io::Result<Box<dyn WritableMapping>> {
        // SAFETY: nobody else has the lab's file.
        let map = unsafe { self.0.map_mut(file) }?;
        match map.is_managed() {
            true => Ok(Box::new(Written::over(
                map,
                MmapMut::flush,
                MmapMut::set_len,
            ))),
            false => Err(io::Error::other("the engine does not serve it here")),
        }
    }

    fn huge(&self, bytes: u64) -> io::Result<Box<dyn HugeFile>> {
        huge::softfault(bytes)
    }

    fn stats(&self) -> Option<EngineStats> {
        Some(engine_stats(&self.0.stats()))
    }
}

impl Mapping for Mmap {
    fn bytes(&self) -> Option<&[u8]> {
        Some(self)
    }

    fn bring_in(&self, ranges: &[Range<usize>], _present: bool) -> io::Result<()> {
        let answers = self.fault_in_many(ranges).wait();
        Ok(answers.into_iter().collect::<Result<(), _>>()?)
    }
}

/// The lab's figures of an engine.
pub fn engine_stats(stats: &Stats) -> EngineStats {
    let waits = &stats.waits;
    EngineStats {
        major_faults: stats.major_faults,
        retry_mmap_drop: stats.retry_mmap_drop,
        retry_io_miss: stats.retry_io_miss,
        readahead_pages: stats.readahead_pages,
        readahead_used: stats.readahead_used,
        swap: stats.swap.as_ref().map(swap_counts).unwrap_or_default(),
        locks: [waits.mmap_lock_read, waits.mmap_lock_write, waits.vma_lock].map(lock_waits),
    }
}

fn swap_counts(swap: &SwapStats) -> SwapCounts {
    SwapCounts {
        pages_out: swap.pages_out,
        pages_in: swap.pages_in,
        clean_drops: swap.clean_drops,
        rescued: swap.rescued,
        write_errors: swap.write_errors,
        full: swap.full,
        retry_mmap_drop: swap.retry_mmap_drop,
        retry_io_miss: swap.retry_io_miss,
    }
}

fn lock_waits(waits: WaitSnapshot) -> LockWaits {
    LockWaits {
        count: waits.count,
        total_ns: waits.total_ns,
        max_ns: waits.max_ns,
        ranges: waits.ranges,
    }
}
