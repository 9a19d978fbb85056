//! What happened in an engine.

use crate::faults;
use crate::files::Files;
use crate::kernel::KernelCount;
use crate::managed::Managed;
use crate::store::QueueKind;
use crate::{Engine, HugeStats};
use softfault_engine::PAGE_SIZE;
use softfault_engine::lock::WaitSnapshot;

/// Numbers of an engine since it was built. Those of different fields need not
/// belong to the same moment.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Bytes that may be resident.
    pub memory_bytes: u64,
    /// Bytes charged to the budget now.
    pub resident_bytes: u64,
    /// The most bytes that were charged at a time.
    pub peak_bytes: u64,
    /// Faults served.
    pub faults: u64,
    /// Faults that found their page cached.
    pub minor_faults: u64,
    /// Faults that had to read.
    pub major_faults: u64,
    /// Touches that could not be served (in the whole process).
    pub failed_touches: u64,
    /// Times a fault dropped its lock to wait for I/O.
    pub retry_mmap_drop: u64,
    /// Retries that found the folio gone again which had been read.
    pub retry_io_miss: u64,
    /// Times a fault waited for memory.
    pub memory_waits: u64,
    /// Pages read ahead; not those that the program asked for (populate, pins, advice).
    pub readahead_pages: u64,
    /// Pages read ahead that were then touched.
    pub readahead_used: u64,
    /// Pages read ahead and dropped untouched.
    pub readahead_dropped: u64,
    /// Cached neighbours mapped with a fault, in pages.
    pub fault_around: u64,
    /// Pages of holes mapped.
    pub zero_pages: u64,
    /// Runs of 2 MiB, read ahead, whose memory went to their map as it was: nothing was copied.
    pub rows_moved: u64,
    /// Such runs that could not go so, and were copied.
    pub rows_refused: u64,
    /// Such runs of which a part was evicted alone.
    pub rows_split: u64,
    /// Pages of anonymous memory filled at their first touch.
    pub anonymous_faults: u64,
    /// Pages of anonymous memory filled behind such a one, since touches ran on.
    pub filled_ahead: u64,
    /// Bytes read from files.
    pub bytes_read: u64,
    /// Bytes that were asked of the kernel's page cache, and either were there or stayed there
    /// for as long as [`Reads`](crate::Reads) has it.
    pub read_cached_bytes: u64,
    /// Bytes that were read past the page cache.
    pub read_direct_bytes: u64,
    /// Reads that failed.
    pub read_errors: u64,
    /// Bytes of files that maps have written to over the engine, and that the files have not got yet.
    pub dirty_bytes: u64,
    /// Bytes written back to files.
    pub written_back_bytes: u64,
    /// Pages that could not be written back, each time.
    pub write_errors: u64,
    /// Mapped pages evicted.
    pub evicted: u64,
    /// Evicted pages that came back soon.
    pub refaults: u64,
    /// Batches of reclaim.
    pub reclaim_batches: u64,
    /// Files mapped now.
    pub windows: u64,
    /// Windows kept for files that nobody maps.
    pub idle_windows: u64,
    /// Bytes of files that are mapped by the kernel now since they are small.
    pub small_map_bytes: u64,
    /// What the kernel serves by policy, of the whole process.
    pub kernel: KernelStats,
    /// True if the kernel serves the maps, since userfaultfd is closed.
    pub kernel_fallback: bool,
    /// True if no close of the program reaches our descriptors (in the whole process).
    /// False where no thread could be started for them: then the program must not close
    /// descriptors that it does not know, or bytes are lost.
    pub guarded_descriptors: bool,
    /// The kernel's interface that reads ahead go through. `None` until faults are about to read a file, and where
    /// there is no such interface.
    pub async_reads: Option<QueueKind>,
    /// What went to swap and came back; `None` without swap.
    pub swap: Option<SwapStats>,
    /// Huge memory, of the whole process: it is no engine's.
    pub huge: HugeStats,
    /// Waits for locks and for I/O.
    pub waits: Waits,
}

/// Numbers of an engine's swap.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct SwapStats {
    /// Pages written to swap.
    pub pages_out: u64,
    /// Pages that came back from swap and were mapped.
    pub pages_in: u64,
    /// Pages dropped without a write: swap, or a file, still had them as they
    /// were, or they were zeros.
    pub clean_drops: u64,
    /// Writes that found their page protected: it was clean, or lay beside what was
    /// evicted.
    pub write_faults: u64,
    /// Pages that somebody wanted while they were written, and which stayed.
    pub rescued: u64,
    /// Writes that failed; their pages stayed.
    pub write_errors: u64,
    /// Times that there was no room for a page that was to go.
    pub full: u64,
    /// Slots in use, a page each.
    pub slots_used: u64,
    /// Slots that there are.
    pub slots_total: u64,
    /// Times a fault dropped its lock to wait for swap.
    pub retry_mmap_drop: u64,
    /// Retries that found gone again what had been read from swap.
    pub retry_io_miss: u64,
    /// Bytes written to the swap file.
    pub bytes_written: u64,
    /// Bytes that the swap file takes on the disk now.
    pub bytes_on_disk: u64,
    /// True if the file is read and written past the kernel's page cache.
    pub direct: bool,
}

impl SwapStats {
    /// Bytes written to the file for each byte of the pages that went there: less
    /// than 1 where they are compressed. `None` before the first.
    pub fn compression(&self) -> Option<f64> {
        let pages = (self.pages_out * PAGE_SIZE as u64) as f64;
        (self.bytes_written > 0 && pages > 0.0).then(|| self.bytes_written as f64 / pages)
    }

    fn of(managed: &Managed) -> Option<Self> {
        let swap = managed.node.swap.as_ref()?;
        swap.look_for_heirs();
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

/// What the kernel serves by mappings of its own though userfaultfd is there: since the process began. It is in no
/// budget.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct KernelStats {
    /// Small files that were mapped ([`Builder::small_maps`](crate::Builder::small_maps)).
    pub small_maps: u64,
    /// Their bytes.
    pub small_bytes: u64,
    /// Times that a file which the page cache had was given to the kernel ([`Reads`](crate::Reads)).
    pub shown: u64,
    /// The bytes of these files.
    pub shown_bytes: u64,
    /// Times that the engine has taken one over again.
    pub taken_over: u64,
    /// Shared writable maps that were made ([`MmapMut::map_mut`](crate::MmapMut::map_mut)), and read-only ones of
    /// their files meanwhile.
    pub shared_maps: u64,
    /// Their bytes.
    pub shared_bytes: u64,
    /// Executable maps that were made, stacks, and those of huge pages
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
            shown: KernelCount::Shown.get(),
            shown_bytes: KernelCount::ShownBytes.get(),
            taken_over: KernelCount::TakenOver.get(),
            shared_maps: KernelCount::Shared.get(),
            shared_bytes: KernelCount::SharedBytes.get(),
            special_maps: KernelCount::Special.get(),
            special_bytes: KernelCount::SpecialBytes.get(),
        }
    }
}

/// Waits, by what was waited for. The locks are those of the process's address
/// space, which all its engines share.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct Waits {
    /// `mmap_lock` for reading.
    pub mmap_lock_read: WaitSnapshot,
    /// `mmap_lock` for writing.
    pub mmap_lock_write: WaitSnapshot,
    /// A VMA's write lock, for its readers to go.
    pub vma_lock: WaitSnapshot,
    /// Forks of the process, by touches of private memory and by calls on it.
    pub fork: WaitSnapshot,
    /// A read by the thread that needs it.
    pub read: WaitSnapshot,
    /// A folio that another thread reads, maps or evicts.
    pub folio: WaitSnapshot,
}

impl Engine {
    /// What happened so far; in a child of fork, what happened there.
    pub fn stats(&self) -> Stats {
        faults::get_in_front();
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

    /// The numbers of what maps need and of the maps.
    pub(crate) fn of(managed: &Managed, files: Option<&Files>) -> Self {
        let (node, space) = (&managed.node, &managed.space);
        let counted = &node.stats;
        let pages = |pages: u64| pages * PAGE_SIZE as u64;
        let locks = space.lock_stats();
        let (windows, idle_windows) = files.map_or((0, 0), Files::counts);
        Self {
            memory_bytes: pages(node.budget.limit()),
            resident_bytes: pages(node.budget.charged()),
            peak_bytes: pages(node.budget.peak()),
            faults: counted.minor_faults.get()
                + counted.major_faults.get()
                + counted.spurious.get()
                + counted.anonymous_faults.get(),
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
            rows_moved: counted.rows_moved.get(),
            rows_refused: counted.rows_refused.get(),
            rows_split: counted.rows_split.get(),
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
