//! Memory maps larger than memory, served in user space under a fixed budget.
//!
//! The kernel's `mmap` reads around every miss, chooses by itself which pages to evict, and stalls
//! in a memory cgroup. This library serves the page faults of its maps itself: in the thread that
//! touches the page, through userfaultfd(2). The pages that the engine serves never exceed a budget.
//! By default the kernel also maps small files, files that fit in free memory, and those that are open for writing, outside of the
//! budget; [`Builder::allow_kernel_maps`]`(false)` forbids it. Pages that the kernel's page cache has are copied
//! from there; a file that does not fit in free memory is read with direct I/O, and while it is read in order the kernel serves it
//! a few MiB at a time, charged to the budget ([`Reads`]).
//! The library needs no privilege.
//!
//! ```no_run
//! # fn main() -> std::io::Result<()> {
//! use softfault::{Advice, Engine};
//!
//! let engine = Engine::builder().memory(1 << 30).build()?;
//! let file = std::fs::File::open("index.bin")?;
//! // SAFETY: nobody writes to the file meanwhile.
//! let map = unsafe { engine.map(&file)? };
//! let first = map[0]; // a page fault, served here
//! let header = map.pin(0..4096)?; // an I/O error is a value, not a signal
//! map.advise(Advice::Random)?;
//! # let _ = (first, &header[..]);
//! # Ok(())
//! # }
//! ```
//!
//! The crate has all names of memmap2: `use softfault as memmap2;` compiles, and maps over an engine with a
//! default budget. The engine serves read-only, anonymous and private maps. Maps that write to their file
//! ([`MmapMut::map_mut`], [`MmapRaw`]) are mappings of the kernel, in no budget, or are served by the engine, under
//! its budget ([`Coherence`]); `docs/contract.md` says which readers see a write, and which writes survive a crash.
//! Executable maps are mappings of the kernel, and are counted ([`KernelStats`]).
//!
//! Where userfaultfd is closed, or where a program wants every error as a value,
//! [`soft`] is the same engine, reached by calls, over page tables of its own.
//! [`Builder::policies`] switches the engine back to Linux's behaviour before the patch series
//! that it follows, for measurements.
//!
//! The environment sets up the default engine: `SOFTFAULT_MEMORY` (its budget) and `SOFTFAULT_SWAP` (a
//! directory, and optionally a colon and a size). It also sets defaults for all engines whose builder does not set
//! them: `SOFTFAULT_FAULTS` (`signals`, `threads` or `messages`: [`Faults`]), `SOFTFAULT_READS` (`direct`, `cached` or
//! `auto`), `SOFTFAULT_ALLOW_KERNEL_MAPS` (`0` or `1`: [whether the kernel may serve files](Builder::allow_kernel_maps) where it is
//! faster), `SOFTFAULT_COHERENCE` (`kernel` or `engine`: [`Coherence`]) and `SOFTFAULT_SMALL_MAPS` (bytes).
//! An invalid value makes `map` fail with an error, and is reported once on the standard error.
//! `SOFTFAULT_STATS=1` prints at exit the counters of all engines of the process, in lines
//! of `softfault-stats: name=count`.
//!
//! # Differences from mmap
//!
//! - **System calls.** `write(fd, &map[..])` on a part that is not in memory
//!   fails with EFAULT, or writes fewer bytes: the kernel does not call our
//!   handler. Use [`Mmap::write_to`], [`Mmap::read_at`] or [`Mmap::pin`], and for
//!   private memory [`MmapMut::write_to`], [`MmapMut::read_from`] or
//!   [`MmapMut::lock`]. `read(fd, &mut map[..])` can fail even where the page is in
//!   memory: the engine may write-protect any page at any time, so that swap sees the next
//!   write. Locked pages, and pages kept for one of these calls, are never write-protected. All
//!   system calls work with [`Faults::Messages`], where the system allows that.
//! - **Many ranges at once.** `madvise` takes one range a call. [`Mmap::fault_in_many`] takes
//!   thousands, keeps many reads in flight, accepts a deadline, and returns one result for
//!   each range. The caller can await it or block on it.
//! - **Files that change.** A page shows the file's bytes as they were when the page
//!   was read, until it is evicted; [`Mmap::invalidate`] drops it. A new map
//!   of a changed file shows the change, unless another party made it by stores to a shared mapping, which need not change the file's times.
//!   A program that maps a descriptor which is open for reading and writing may write to the file by calls, and read by the map what it
//!   wrote: by default such a map is the kernel's own, in no budget. With [`Builder::allow_kernel_maps`]`(false)`, and with
//!   [`Coherence::Engine`], it is the engine's. When another process truncates the file, pages that
//!   are in memory stay; a touch of any other page past the end raises SIGBUS, or reads zeros
//!   ([`OnTruncate`]). [`Engine::truncate`] removes these pages at once. Both ways of reading show
//!   the same bytes: a read through the page cache shows the same as read(2), written
//!   back or not; before a direct read, the kernel writes back the dirty pages of the range.
//! - **The kernel's page cache** may keep the bytes that were read of a file, for the next process
//!   ([`Reads`]). They are not part of the budget, and the kernel reclaims them when memory is
//!   short. [`Reads::Direct`] leaves nothing there.
//! - **SIGBUS belongs to the library.** The first engine installs the handler, which
//!   passes on signals that are not ours. A thread that blocks SIGBUS dies at its next
//!   fault; `map` refuses to map in such a thread, but cannot see threads that block it
//!   later. A handler that the program installs afterwards gets our faults until the
//!   next call of `map`, `advise`, `stats` or `set_memory`, or the next fork. That installs our handler in front of it
//!   again, and from then on ours passes signals on to it, any number of times for the same handlers. After some sixteen
//!   different ones `map` refuses. A handler that restores ours and raises the signal again, as
//!   Python's `faulthandler` does, causes no problem. With [`Faults::Threads`]
//!   ([`Builder::faults`], `SOFTFAULT_FAULTS=threads`) none of this applies: no handler is
//!   installed, and threads of the engine serve each fault while the touching thread sleeps.
//!   This costs two thread switches a fault. A touch that fails still raises SIGBUS.
//! - **Descriptors and a thread.** The first engine starts a thread that has a descriptor
//!   table of its own. The descriptors that must stay open are open in that table, so
//!   `closefrom`, loops that close every descriptor, and `dup2` over our numbers lose nothing. libc does not know
//!   this thread. Where it cannot be started ([`Stats::guarded_descriptors`]), the program must not close
//!   descriptors that it did not open. Calls that only single-threaded processes may make
//!   (`unshare(CLONE_NEWUSER)`, `setns`) must come before the first engine. After `setuid` the thread keeps
//!   the program's old rights until the program maps a file or builds an engine again.
//! - **fork.** A child of `fork()` can read and write its private
//!   memory ([`MmapMut`], private maps of files), including pages in swap, and
//!   does not see later writes of the parent. The child has an engine of its own,
//!   under a budget as large as the parent's, with a swap file in the same
//!   directory. If that swap file cannot be created, the child swaps nothing out.
//!   The parent's maps of private memory and its engines work in the child, and so do engines that the child
//!   builds. Pages that the parent locked or pinned are not locked or pinned in the child. The parent's swap slots
//!   stay in use until the child has ended or has called `exec`.
//!
//!   The child can still read *maps of files*, at the same addresses: there they are mappings of the
//!   kernel, in no budget, and calls on their handles work on these mappings. The child makes new maps of files
//!   over its own default engine, or over one that it builds; a new map over the
//!   parent's engine fails with [`FaultError::Forked`].
//!
//!   In a child that ran no fork handlers (a bare `clone` system call) a touch of
//!   any map raises SIGSEGV; it reads zeros only if another thread was in `fork` at that moment, or the
//!   program had given `MADV_DOFORK`. And memory that the child allocates may
//!   be placed at these addresses. `vfork`, `posix_spawn` and
//!   [`Command`](std::process::Command) touch no map and cost nothing.
//!
//!   The program's own fork handlers (`pthread_atfork`) must not touch maps if
//!   they were registered before the first engine was built, nor wait for a thread that
//!   opens, closes or flushes streams. With musl, no other thread
//!   may call `fflush(NULL)` meanwhile.
//! - **POSIX locks** (fcntl(2)) of the program on a file that it maps are kept, although in Linux any
//!   close of a descriptor of the file in the process drops them. Two cases are not covered:
//!   a lock that is taken at the same moment as the last map is dropped, and `exec` with a
//!   lock that was taken after the file's pages were first read.
//! - **Private memory** ([`MmapMut`]) is charged to the budget page by page as
//!   it is written, and goes to [`Swap`] where the engine has some. Without
//!   swap, written pages stay in memory until they are dropped. A touch for which nothing
//!   can be evicted raises SIGBUS; [`MmapMut::populate`] returns the error as a
//!   value. A touch of a page that cannot be read back from swap raises SIGBUS too.
//! - **A private map of a file** reads an evicted page again if it was not yet
//!   written: it may then show bytes that others wrote to the file meanwhile, and bytes
//!   past a new end of the file are gone. Written pages stay, where the kernel would drop those
//!   past the end of the file.
//! - **System calls of the program on the addresses of a map.** After a `madvise(2)` that drops
//!   pages (`MADV_DONTNEED` and the like), a file is read again, and private memory
//!   that was resident reads as zeros, or as the file's bytes; pages of it that were in [`Swap`] keep
//!   their bytes ([`MmapMut::unchecked_advise`] drops these too). `mlock(2)` and
//!   `mlockall(2)` keep nothing in memory: the budget is a promise, and pages are
//!   evicted all the same; [`Mmap::lock`] keeps pages. `mlock` of a page that is not
//!   in memory fails. As for the memory of any other library, the program must not unmap or move a
//!   map's addresses, or map something else there (`munmap`, `mremap`,
//!   `MAP_FIXED`): the engine drops the bytes that lie there later when it evicts a page of the
//!   map, and moved pages read as zeros. Private memory must not be merged
//!   (`MADV_MERGEABLE`, or `PR_SET_MEMORY_MERGE` after it was mapped): the kernel drops
//!   the write protection by which the engine sees writes.
//! - **Huge memory** ([`HugeMemory`]) is shared between processes, and a child of fork
//!   has its maps. It comes from the machine's pool and belongs to no engine: no budget bounds it, and none of
//!   it is evicted. See `docs/huge.md`.
//! - **Cached pages of an unmapped file** stay for 30 seconds, unless the budget is needed
//!   before; the next map of the same unchanged file finds them. Meanwhile the file is open,
//!   unless it has lost its last name; [`Engine::close_idle`] closes it. Two shared
//!   maps of one file that the engine serves are parts of one window: the same byte of the file has the same
//!   address in both, and they share advice.

// In layers: a module imports only from modules above it in this list. ARCHITECTURE.md describes each of them.

// The ground.
mod cgroup;
mod generation;
#[doc(hidden)]
pub use generation::Done;
#[doc(hidden)]
pub use sync::{clock, errno, kernel_calls, stage, system_call};
mod signal;
#[doc(hidden)]
pub use signal::{
    NoCancel, SIGCANCEL, cancel_disabled, threads_unblock_only, without_file_size_signal,
    without_write_signals,
};

mod advice;
mod error;
mod frames;
mod machine;
mod required_calls;
mod thread;

mod access_path;
mod options;
mod range;

mod many;

// Calls of the kernel.
mod kernel;
mod kernel_copy;
mod lease;
mod table;
mod uffd;

pub mod store;
mod swap;

mod environment;
mod process;

// How a touch reaches us.
mod huge_faults;

mod faults;

mod exit_stats;

// An engine, and the memory under its budget.
mod managed;

mod files;
/// Calls for a library that forks without running the fork handlers.
#[doc(hidden)]
pub mod fork;

mod file_map;
mod private;
mod writable;

mod engine;

// The public interface.
mod fault_in;
mod huge;
mod many_maps;
mod map_mut;
mod stats;

mod map;
mod map_raw;
pub mod soft;

pub use advice::{Advice, UncheckedAdvice};
pub use engine::{AsyncReads, Builder, Engine, Fallback};
#[doc(hidden)]
pub use environment::{VARIABLES, check_environment, setting, swap_of};
pub use error::FaultError;
#[doc(hidden)]
pub use error::errno_of;
pub use fault_in::{FaultIn, FaultInMany};
#[doc(hidden)]
pub use faults::{program_sigbus, reinstall_handler, set_sigbus_calls_intercepted};
pub use huge::{HugeMap, HugeMapOptions, HugeMemory, HugeMemoryBuilder};
pub use huge_faults::{HugeBacking, HugeMapStats, HugeSize, HugeStats};
#[doc(hidden)]
pub use lease::ReadLease;
#[doc(hidden)]
pub use machine::{memory_and_swap_bytes as memory_and_swap, memory_limit, parse_bytes};
#[doc(hidden)]
pub use map::{KernelMapping, NotHandedBack};
pub use map::{MapIfSafeError, Mmap, Pinned};
pub use map_mut::{FlushFuture, MmapMut};
#[doc(hidden)]
pub use map_raw::Kept;
pub use map_raw::MmapRaw;
pub use options::{Coherence, MmapAsRawDesc, MmapOptions, MmapRawDescriptor, RemapOptions};
pub use softfault_engine::cache::{OnTruncate, Residency};
pub use softfault_engine::lock::WaitSnapshot;
pub use softfault_engine::policy;
pub use stats::{KernelStats, Stats, SwapStats, Waits};
pub use store::Reads;
pub use swap::{Compression, Swap};
#[doc(hidden)]
pub use swap::{SwapFile, on_swap_failure};
#[doc(hidden)]
pub use table::follow_credentials;
#[doc(hidden)]
pub use thread::{prepare_threads, start_thread};
pub use uffd::Faults;
#[doc(hidden)]
pub use uffd::keep_no_spare_windows;

/// The default budget of an engine, by the memory limits at this moment.
#[doc(hidden)]
pub fn default_memory() -> usize {
    machine::default_budget(machine::memory_limit().0)
}

/// The smallest budget of an engine, in bytes.
pub const MIN_MEMORY: usize = softfault_engine::cache::node::MIN_BYTES;
