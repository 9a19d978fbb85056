//! Counters of an engine.

use crate::faults;
use crate::files::Files;
use crate::kernel::KernelCount;
use crate::managed::Managed;
use crate::store::QueueKind;
use crate::{Engine, HugeStats};
use softfault_engine::PAGE_SIZE;
use softfault_engine::lock::WaitSnapshot;

/// Counters of an engine since it was built. Different fields may be read at slightly different
/// moments.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Bytes that may be resident.
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
    /// Touches that could not be served (in the whole process).
    pub failed_touches: u64,
    /// Times a fault dropped its lock to wait for I/O.
    pub retry_mmap_drop: u64,
    /// Retries after I/O that found the folio evicted again.
    pub retry_io_miss: u64,
    /// Times a fault waited for memory.
    pub memory_waits: u64,
    /// Pages of read-ahead, without those that the program asked for (populate, pins, advice).
    pub readahead_pages: u64,
    /// Pages of read-ahead that were mapped later: by a touch of their folio, which is up to 16 pages, or with a touch near them. A
    /// page that is mapped so and never touched is among them.
    pub readahead_used: u64,
    /// Pages of read-ahead that were dropped untouched.
    pub readahead_dropped: u64,
    /// Cached neighbour pages that a fault mapped as well (fault-around).
    pub fault_around: u64,
    /// Pages mapped that are holes of their file.
    pub zero_pages: u64,
    /// Runs of 2 MiB of read-ahead whose memory was moved into the map, without a copy.
    pub thp_moved: u64,
    /// Such runs that could not be moved, and were copied.
    pub thp_move_failed: u64,
    /// Such runs that were split, because only a part was evicted.
    pub thp_split: u64,
    /// Pages of anonymous memory filled at their first touch.
    pub anonymous_faults: u64,
    /// Pages of anonymous memory filled ahead of their first touch: touches were sequential, or programs wrote to these pages of
    /// earlier mappings of the same size.
    pub filled_ahead: u64,
    /// Bytes read from files.
    pub bytes_read: u64,
    /// Bytes read through the kernel's page cache: it had them already, or keeps them for as long as
    /// [`Reads`](crate::Reads) says.
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
    /// Batches of reclaim.
    pub reclaim_batches: u64,
    /// Files mapped now.
    pub windows: u64,
    /// Windows kept for files that have no map.
    pub idle_windows: u64,
    /// Bytes of small files that the kernel maps now.
    pub small_map_bytes: u64,
    /// Mappings that the kernel serves by policy, in the whole process.
    pub kernel: KernelStats,
    /// True if the kernel serves the maps, because the process may not use userfaultfd.
    pub kernel_fallback: bool,
    /// True if the program cannot close the library's descriptors (in the whole process).
    /// False if the thread that keeps them could not be started: then the program must not close
    /// descriptors that it did not open, or data is lost.
    pub guarded_descriptors: bool,
    /// The kernel's interface that submits read-ahead. `None` before the first fault that reads a file, and where
    /// there is no such interface.
    pub async_reads: Option<QueueKind>,
    /// Counters of swap; `None` without swap.
    pub swap: Option<SwapStats>,
    /// Huge memory of the whole process: it belongs to no engine.
    pub huge: HugeStats,
    /// Waits for locks and for I/O.
    pub waits: Waits,
}

/// Counters of an engine's swap.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct SwapStats {
    /// Pages written to swap.
    pub pages_out: u64,
    /// Pages read back from swap and mapped.
    pub pages_in: u64,
    /// Pages dropped without a write: swap, or a file, still had the same bytes, or all bytes
    /// were zero.
    pub clean_drops: u64,
    /// Write faults on write-protected pages: the page was clean, or was the neighbour of an
    /// evicted page.
    pub write_faults: u64,
    /// Pages that were touched while they were being written to swap, and therefore stayed.
    pub rescued: u64,
    /// Writes that failed; their pages stayed.
    pub write_errors: u64,
    /// Times that swap had no room for a page to evict.
    pub full: u64,
    /// Slots in use; a slot holds a page.
    pub slots_used: u64,
    /// Slots in total.
    pub slots_total: u64,
    /// Times a fault dropped its lock to wait for swap.
    pub retry_mmap_drop: u64,
    /// Retries that found the page from swap evicted again.
    pub retry_io_miss: u64,
    /// Bytes written to the swap file.
    pub bytes_written: u64,
    /// Disk space of the swap file now, in bytes.
    pub bytes_on_disk: u64,
    /// True if the file is read and written past the kernel's page cache.
    pub direct: bool,
}

impl SwapStats {
    /// Bytes written to the swap file divided by the bytes of the pages: less
    /// than 1 if pages are compressed. `None` before the first page.
    pub fn compression(&self) -> Option<f64> {
        let pages = (self.pages_out * PAGE_SIZE as u64) as f64;
        (self.bytes_written > 0 && pages > 0.0).then(|| self.bytes_written as f64 / pages)
    }

    fn of(managed: &Managed) -> Option<Self> {
        let swap = managed.node.swap.as_ref()?;
        // Slots have a lock that faults take, also a fault of a signal handler.
        let _masked = crate::signal::masked();
        swap.free_if_no_child_lives();
        let file = managed.swap.as_ref().and_then(|swap| swap.file());
        let counted = &swap.stats;
        Some(Self {
            pages_out: counted.pages_out.get(),
            pages_in: counted.pages_in.get(),
            clean_drops: counted.clean_drops.get(),
            write_faults: counted.write_faults.get(),
            rescued: counted.rescued.get(),
            write_errors: counted.write_errors.get(),
            full: counted.full.get(),
            slots_used: swap.slots.used().into(),
            slots_total: swap.slots.count().into(),
            retry_mmap_drop: counted.retry_mmap_drop.get(),
            retry_io_miss: counted.retry_io_miss.get(),
            bytes_written: file.map_or(0, |file| file.bytes_written()),
            bytes_on_disk: file.map_or(0, |file| file.bytes_on_disk()),
            direct: file.is_some_and(|file| file.is_direct()),
        })
    }
}

/// Mappings that the kernel serves by policy, although userfaultfd works: counted since the process began. They are in no
/// budget.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct KernelStats {
    /// Small files that were mapped ([`Builder::small_maps`](crate::Builder::small_maps)).
    pub small_maps: u64,
    /// Their bytes.
    pub small_bytes: u64,
    /// Times that the engine let the kernel serve a file that the page cache had ([`Reads`](crate::Reads)).
    pub switched_to_kernel: u64,
    /// The bytes of these files.
    pub switched_to_kernel_bytes: u64,
    /// Times that the engine took such a file back.
    pub switched_to_engine: u64,
    /// Bytes that the kernel served, a few MiB at a time, of files that were read in order and do not fit in free memory
    /// ([`Reads`](crate::Reads)). What it has of them at a time is charged to the budget.
    pub scanned_bytes: u64,
    /// Shared writable maps that were made ([`MmapMut::map_mut`](crate::MmapMut::map_mut)), and read-only maps of
    /// the same files that were made while these lived, or by descriptors that are open for writing, or when no descriptor was left.
    pub shared_maps: u64,
    /// Their bytes.
    pub shared_bytes: u64,
    /// Executable maps, stacks, and maps of huge pages that were made
    /// ([`MmapOptions::huge`](crate::MmapOptions::huge)).
    pub special_maps: u64,
    /// Their bytes.
    pub special_bytes: u64,
}

impl KernelStats {
    fn now() -> Self {
        Self {
            small_maps: KernelCount::SmallMaps.get(),
            small_bytes: KernelCount::SmallBytes.get(),
            switched_to_kernel: KernelCount::SwitchedToKernel.get(),
            switched_to_kernel_bytes: KernelCount::SwitchedToKernelBytes.get(),
            switched_to_engine: KernelCount::SwitchedToEngine.get(),
            scanned_bytes: KernelCount::ScannedBytes.get(),
            shared_maps: KernelCount::Shared.get(),
            shared_bytes: KernelCount::SharedBytes.get(),
            special_maps: KernelCount::Special.get(),
            special_bytes: KernelCount::SpecialBytes.get(),
        }
    }
}

/// Waits, by lock and by I/O. The locks are those of the process's address
/// space, which all its engines share.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct Waits {
    /// `mmap_lock` for reading.
    pub mmap_lock_read: WaitSnapshot,
    /// `mmap_lock` for writing.
    pub mmap_lock_write: WaitSnapshot,
    /// A VMA's write lock, which waits for the readers to leave.
    pub vma_lock: WaitSnapshot,
    /// Waits of touches of private memory, and of calls on it, for a fork of the process.
    pub fork: WaitSnapshot,
    /// A read that the waiting thread does itself.
    pub read: WaitSnapshot,
    /// A folio that another thread is reading, mapping or evicting.
    pub folio: WaitSnapshot,
}

impl Engine {
    /// The counters of the engine so far; in a child of fork, those of the child.
    pub fn stats(&self) -> Stats {
        faults::reinstall_handler();
        Stats::take(self)
    }
}

impl Stats {
    fn take(engine: &Engine) -> Self {
        let files = (!engine.inner.is_parents()).then_some(&engine.inner.files);
        match engine.inner.managed_here() {
            Ok(Some(managed)) => Self {
                small_map_bytes: engine.inner.small_maps.bytes() as u64,
                ..Self::of(managed, files)
            },
            Ok(None) => Self {
                kernel_fallback: true,
                huge: HugeStats::now(),
                ..Self::default()
            },
            // A child that cannot have an engine.
            Err(_) => Self::default(),
        }
    }

    /// The counters of the managed part and of the maps.
    pub(crate) fn of(managed: &Managed, files: Option<&Files>) -> Self {
        let (node, space) = (&managed.node, &managed.space);
        let counted = &node.stats;
        let pages = |pages: u64| pages * PAGE_SIZE as u64;
        let locks = space.lock_stats();
        let (windows, idle_windows) = files.map_or((0, 0), Files::counts);
        Self {
            budget_bytes: pages(node.budget.limit()),
            resident_bytes: pages(node.budget.charged()),
            peak_bytes: pages(node.budget.peak()),
            faults: counted.faults(),
            minor_faults: counted.minor_faults.get(),
            major_faults: counted.major_faults.get(),
            failed_touches: crate::faults::failed_touches(),
            retry_mmap_drop: counted.retry_mmap_drop.get(),
            retry_io_miss: counted.retry_io_miss.get(),
            memory_waits: counted.memory_waits.get(),
            readahead_pages: counted.readahead_pages.get(),
            readahead_used: counted.readahead_used.get(),
            readahead_dropped: counted.readahead_dropped.get(),
            fault_around: counted.fault_around.get(),
            zero_pages: counted.zero_pages.get(),
            thp_moved: counted.thp_moved.get(),
            thp_move_failed: counted.thp_move_failed.get(),
            thp_split: counted.thp_split.get(),
            anonymous_faults: counted.anonymous_faults.get(),
            filled_ahead: counted.filled_ahead.get(),
            bytes_read: counted.bytes_read.get(),
            read_cached_bytes: managed.reads.cached_bytes(),
            read_direct_bytes: managed.reads.direct_bytes(),
            read_errors: counted.read_errors.get(),
            dirty_bytes: managed.node.dirty_pages() * PAGE_SIZE as u64,
            written_back_bytes: counted.written_back.get() * PAGE_SIZE as u64,
            write_errors: counted.write_errors.get(),
            evicted: counted.evicted.get(),
            refaults: counted.refaults.get(),
            reclaim_batches: counted.reclaim_batches.get(),
            windows: windows as u64,
            idle_windows: idle_windows as u64,
            small_map_bytes: 0,
            kernel: KernelStats::now(),
            kernel_fallback: false,
            guarded_descriptors: crate::table::is_there(),
            async_reads: managed.rings.get().map(|rings| rings.kind()),
            swap: SwapStats::of(managed),
            huge: HugeStats::now(),
            waits: Waits {
                mmap_lock_read: locks.mmap_read,
                mmap_lock_write: locks.mmap_write,
                vma_lock: locks.vma_write,
                fork: locks.thaw,
                read: counted.read_waits.snapshot(),
                folio: counted.folio_waits.snapshot(),
            },
        }
    }
}
