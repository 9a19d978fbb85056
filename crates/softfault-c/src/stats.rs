//! Counters of an engine.

use crate::boundary::answer;
use crate::engine::{or_default, softfault_engine};
use crate::sized::{self, Grows};
use core::ffi::c_int;

/// Counters of an engine since it was made. Different fields may be read at slightly different moments. The structure
/// grows with releases, at its end.
#[allow(non_camel_case_types)]
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct softfault_stats {
    /// sizeof(struct softfault_stats), set by the caller.
    pub size: usize,
    /// The budget.
    pub budget_bytes: u64,
    /// Bytes charged to the budget now.
    pub resident_bytes: u64,
    /// The largest number of bytes that were ever charged at once.
    pub peak_bytes: u64,
    /// Faults served.
    pub faults: u64,
    /// Minor faults: their page was cached.
    pub minor_faults: u64,
    /// Major faults: their page had to be read.
    pub major_faults: u64,
    /// Touches that could not be served, in the whole process.
    pub failed_touches: u64,
    /// Times that a fault waited for memory.
    pub memory_waits: u64,
    /// Pages read ahead.
    pub readahead_pages: u64,
    /// Pages of read-ahead that were touched later.
    pub readahead_used: u64,
    /// Pages of read-ahead that were dropped untouched.
    pub readahead_dropped: u64,
    /// Pages of anonymous memory filled at their first touch.
    pub anonymous_faults: u64,
    /// Bytes read from files.
    pub bytes_read: u64,
    /// Bytes read through the kernel's page cache.
    pub read_cached_bytes: u64,
    /// Bytes read past the page cache.
    pub read_direct_bytes: u64,
    /// Reads that failed.
    pub read_errors: u64,
    /// Dirty bytes: written by maps that the engine serves, and not yet written back to their files.
    pub dirty_bytes: u64,
    /// Bytes written back to files.
    pub written_back_bytes: u64,
    /// Failed write-backs, in pages; each attempt counts.
    pub write_errors: u64,
    /// Mapped pages evicted.
    pub evicted: u64,
    /// Refaults: evicted pages that were needed again soon.
    pub refaults: u64,
    /// Files mapped now.
    pub windows: u64,
    /// Windows kept for files that have no map.
    pub idle_windows: u64,
    /// Pages written to swap.
    pub swap_pages_out: u64,
    /// Pages that came back from swap.
    pub swap_pages_in: u64,
    /// Writes to swap that failed; their pages stayed.
    pub swap_write_errors: u64,
    /// Times that swap had no room for a page.
    pub swap_full: u64,
    /// Pages that are in swap.
    pub swap_slots_used: u64,
    /// Pages that swap has room for; 0 without swap.
    pub swap_slots_total: u64,
    /// Small files that the kernel has mapped, in the whole process.
    pub kernel_small_maps: u64,
    /// Writable maps of files that the kernel serves, in the whole process.
    pub kernel_shared_maps: u64,
    /// Their bytes.
    pub kernel_shared_bytes: u64,
    /// Times that the engine let the kernel serve a file that the page cache had, in the whole process.
    pub kernel_switches: u64,
    /// 1 if the kernel serves all maps, because the process may not use userfaultfd.
    pub kernel_fallback: u64,
}

// SAFETY: words of 8 bytes, the first of which is the size.
unsafe impl Grows for softfault_stats {
    const FIRST: usize = 35 * 8;
}

const _: () = assert!(size_of::<softfault_stats>() == softfault_stats::FIRST);

/// Fills stats with the counters of an engine; the caller has set stats->size. NULL is the default engine. In a child
/// of fork: the counters of the child.
///
/// If the structure is larger than the library's, the rest becomes zero; if it is smaller, as in an older
/// header, only its fields are filled.
///
/// Returns 0, or -1 with errno:
///   EFAULT  stats is NULL
///   EINVAL  stats->size is not a size of this structure in any release
///   or, for the default engine, the error of making it.
///
/// Several threads may call this at the same time, with structures of their own.
///
/// # Safety
/// `engine` is null, or was not freed. `stats` is null, or has as many bytes as it says, which can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softfault_stats(
    engine: *const softfault_engine,
    stats: *mut softfault_stats,
) -> c_int {
    answer(-1, || {
        // SAFETY: the caller's.
        let engine = unsafe { or_default(engine) }?;
        let s = engine.stats();
        let swap = s.swap.unwrap_or_default();
        let value = softfault_stats {
            size: size_of::<softfault_stats>(),
            budget_bytes: s.budget_bytes,
            resident_bytes: s.resident_bytes,
            peak_bytes: s.peak_bytes,
            faults: s.faults,
            minor_faults: s.minor_faults,
            major_faults: s.major_faults,
            failed_touches: s.failed_touches,
            memory_waits: s.memory_waits,
            readahead_pages: s.readahead_pages,
            readahead_used: s.readahead_used,
            readahead_dropped: s.readahead_dropped,
            anonymous_faults: s.anonymous_faults,
            bytes_read: s.bytes_read,
            read_cached_bytes: s.read_cached_bytes,
            read_direct_bytes: s.read_direct_bytes,
            read_errors: s.read_errors,
            dirty_bytes: s.dirty_bytes,
            written_back_bytes: s.written_back_bytes,
            write_errors: s.write_errors,
            evicted: s.evicted,
            refaults: s.refaults,
            windows: s.windows,
            idle_windows: s.idle_windows,
            swap_pages_out: swap.pages_out,
            swap_pages_in: swap.pages_in,
            swap_write_errors: swap.write_errors,
            swap_full: swap.full,
            swap_slots_used: swap.slots_used,
            swap_slots_total: swap.slots_total,
            kernel_small_maps: s.kernel.small_maps,
            kernel_shared_maps: s.kernel.shared_maps,
            kernel_shared_bytes: s.kernel.shared_bytes,
            kernel_switches: s.kernel.switched_to_kernel,
            kernel_fallback: u64::from(s.kernel_fallback),
        };
        // SAFETY: the caller's.
        unsafe { sized::write(stats, &value) }?;
        Ok(0)
    })
}
