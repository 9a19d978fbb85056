//! Memory maps larger than memory, served in user space under a fixed budget.
//!
//! A kernel's `mmap` reads around every miss, evicts what it likes, and stalls
//! in a memory cgroup. Here the page faults of a map are served by this
//! library: in the thread that touches, through userfaultfd(2), with never more than
//! a budget resident. What the kernel's page cache has is taken from there; what free memory
//! cannot hold is read past it ([`Reads`]).
//! It needs no privilege.
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
//! The names are memmap2's, all of them: `use softfault as memmap2;` compiles, over an engine with a
//! default budget. Read-only, anonymous and private maps are the engine's. Maps that write to their file
//! ([`MmapMut::map_mut`], [`MmapRaw`]) are the kernel's own, in no budget, or the engine's, under it ([`Coherence`]);
//! `docs/contract.md` says who sees what is written, and what survives. Executable ones are the kernel's own, and counted
//! ([`KernelStats`]).
//!
//! Where userfaultfd is closed, or errors are wanted as values everywhere,
//! [`soft`] is the same engine by calls, over page tables of its own.
//! [`Builder::policies`] switches it back to what Linux did before the series
//! of patches that it follows, for measuring.
//!
//! The environment sets up the default engine: `SOFTFAULT_MEMORY` (its budget), `SOFTFAULT_SWAP` (a
//! directory, and a size after a colon), and of all engines that do not say it `SOFTFAULT_READS` (`direct`,
//! `cached` or `auto`), `SOFTFAULT_BY_KERNEL` (`0` or `1`: [whether the kernel may serve](Builder::by_kernel) what it is
//! faster at) and `SOFTFAULT_SMALL_MAPS` (bytes). What it cannot mean is the error of the map, and once a line on the
//! standard error. `SOFTFAULT_STATS=1` prints at exit what all engines of the process have served, in lines
//! of `softfault-stats: name=count`.
//!
//! # What is different from mmap
//!
//! - **System calls.** `write(fd, &map[..])` on a part that is not in memory
//!   fails with EFAULT, or comes back short: the kernel does not call our
//!   handler. Use [`Mmap::write_to`], [`Mmap::read_at`] or [`Mmap::pin`], and of
//!   private memory [`MmapMut::write_to`], [`MmapMut::read_from`] or
//!   [`MmapMut::lock`]. `read(fd, &mut map[..])` fails even where the page is in
//!   memory: any may be write-protected at any time, so that swap sees the next
//!   write. What is locked, or kept for one of these calls, never is. All
//!   of these calls work with [`Faults::Messages`], where the system allows that.
//! - **Many ranges at once.** `madvise` takes one range a call; [`Mmap::fault_in_many`] takes
//!   thousands, keeps as many reads in flight as a disk likes, has a deadline, and an answer for
//!   each range: awaited, or waited for.
//! - **A file that others change.** A page shows what was in the file when it
//!   was read, until it is evicted; [`Mmap::invalidate`] forgets it. A new map
//!   of a changed file shows the change. A file truncated by others: pages that
//!   are in memory stay, the others raise SIGBUS, or are zeros
//!   ([`OnTruncate`]); [`Engine::truncate`] takes them out at once. Which way a page is
//!   read does not matter: through the page cache it is what read(2) would see, written
//!   back or not; past it, the kernel writes back first what is dirty there.
//! - **The kernel's page cache** may keep what was read of a file, for the next process
//!   ([`Reads`]). It is no part of the budget, and the kernel takes it back when memory is
//!   short; [`Reads::Direct`] leaves nothing there.
//! - **SIGBUS is ours.** The handler is installed with the first engine, and
//!   passes on what is not ours. A thread that blocks SIGBUS dies at its next
//!   fault; `map` refuses to map for one, but cannot see threads that block it
//!   later. A handler that is installed afterwards gets our faults until the
//!   next call of `map`, `advise` or `stats`, which gets in front of it; it is
//!   passed on to from then on. Where a program insists, again and again, `map`
//!   refuses. A handler that restores ours and raises the signal again, as
//!   Python's `faulthandler`, does no harm. With [`Faults::Threads`]
//!   ([`Builder::faults`], `SOFTFAULT_FAULTS=threads`) nothing of this matters: no handler is
//!   installed, and threads of the engine serve each fault while the touching thread sleeps,
//!   for two switches of threads a fault. Failing touches raise SIGBUS still.
//! - **Descriptors and a thread.** The first engine starts a thread that has a table of
//!   descriptors of its own: what must stay open is open there, so `closefrom`, close
//!   loops and `dup2` over our numbers lose nothing. libc does not know of it. Where it
//!   cannot be started ([`Stats::guarded_descriptors`]), a program must not close
//!   descriptors that it does not know. What only processes of one thread may do
//!   (`unshare(CLONE_NEWUSER)`, `setns`) is to be done before. After `setuid` it keeps
//!   the rights that the program had until the program maps or builds something again.
//! - **fork.** A child of `fork()` goes on reading and writing its private
//!   memory ([`MmapMut`], private maps of files), what is in swap included, and
//!   sees nothing of what the parent writes later. It has an engine of its own,
//!   under a budget as large as the parent's, with a swap file in the same
//!   directory; where there can be none, nothing more goes to swap in the child.
//!   Maps of private memory and engines that the parent made work, and so do engines that the child
//!   builds. Pages that the parent locked or pinned are not locked or pinned in the child. The parent's slots stay in use
//!   until the child has ended or has called `exec`.
//!
//!   *Maps of files* the child goes on reading, where they are: the kernel maps
//!   them there, in no budget, and does what their handles are asked for. New ones
//!   the child maps over its own default engine, or one that it builds; over the
//!   parent's engine the answer is [`FaultError::Forked`].
//!
//!   In a child that ran no fork handlers (a bare `clone` system call) a touch of
//!   any map is a SIGSEGV, never zeros; but what the child allocates may
//!   come to lie there. `vfork`, `posix_spawn` and
//!   [`Command`](std::process::Command) touch nothing and cost nothing.
//!
//!   Handlers of the program's own (`pthread_atfork`) must not touch maps if
//!   they were registered before the first engine was built.
//! - **POSIX locks** (fcntl(2)) of the program on a file that it maps are kept, though any
//!   close of a descriptor of the file in the process would drop them. Two cases are left:
//!   a lock that is taken at the very moment at which the last map goes, and `exec` with a
//!   lock that was taken after the file's pages were first read.
//! - **Descriptors** that the program does not know may be closed, or replaced by `dup2`:
//!   maps show their files and nothing else, and swap is not written elsewhere.
//! - **Private memory** ([`MmapMut`]) counts against the budget page by page as
//!   it is written to, and goes to [`Swap`] where the engine has some. Without
//!   swap, what was written stays until it is dropped. A touch for which nothing
//!   can be evicted raises SIGBUS; [`MmapMut::populate`] gets the error as a
//!   value. So does a page that cannot be read back from swap.
//! - **A private map of a file** reads a page again that was evicted before it
//!   was written to: what others write to the file meanwhile may be seen, and what
//!   they cut off is gone. What was written stays, where the kernel would drop it
//!   with the end of the file.
//! - **Calls of the program's own on the addresses of a map.** `madvise(2)` that throws
//!   pages away (`MADV_DONTNEED` and the like): a file is read again, private memory
//!   that was resident is zeros, or the file's bytes; what of it was in [`Swap`] keeps
//!   its bytes ([`MmapMut::unchecked_advise`] forgets them too). `mlock(2)` and
//!   `mlockall(2)` keep nothing in memory: the budget is a promise, and pages are
//!   evicted all the same; [`Mmap::lock`] keeps pages. `mlock` of a page that is not
//!   there fails. Not allowed, as for memory of any other library's: to unmap or move a
//!   map's addresses, or to map something else there (`munmap`, `mremap`,
//!   `MAP_FIXED`): what lies there later is thrown away when a page of the map is
//!   evicted, and what was moved away reads as zeros. Nor to have private memory merged
//!   (`MADV_MERGEABLE`, or `PR_SET_MEMORY_MERGE` after it was mapped): the kernel drops
//!   the protection by which writes are seen.
//! - **Huge memory** ([`HugeMemory`]) is shared between processes, and a child of fork
//!   has its maps. It is the pool's and no engine's: no budget bounds it, and nothing of
//!   it is evicted. `docs/huge.md` has more.
//! - **Memory of an unmapped file** stays for 30 seconds, unless the budget is needed
//!   before; the next map of the same unchanged file finds it. Meanwhile the file is open,
//!   unless it has lost its last name; [`Engine::close_idle`] closes it. Two maps of one file are one
//!   window: they have the same address, and share advice.

// In layers: a module imports only what stands above it here. ARCHITECTURE.md says what each of them has.

// The ground.
mod cgroup;
mod errno;
mod generation;
#[doc(hidden)]
pub use sync::{kernel_calls, stage};
mod signal;

mod advice;
mod error;
mod frames;
mod machine;
mod needed;
mod thread;

mod options;
mod range;
mod reached;

mod many;

// What the kernel serves us with.
mod kernel;
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

// An engine, and what is under its budget.
mod managed;

mod files;
/// What a library calls in front of a fork that calls no handlers.
#[doc(hidden)]
pub mod fork;

mod file_map;
mod private;
mod writable;

mod engine;

// What the program sees.
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
pub use fault_in::{FaultIn, FaultInMany};
#[doc(hidden)]
pub use faults::{get_in_front, program_sigbus};
pub use huge::{HugeMap, HugeMapOptions, HugeMemory, HugeMemoryBuilder};
pub use huge_faults::{HugeBacking, HugeMapStats, HugeSize, HugeStats};
#[doc(hidden)]
pub use lease::ReadLease;
#[doc(hidden)]
pub use machine::{memory_and_swap_bytes as memory_and_swap, memory_limit, parse_bytes};
#[doc(hidden)]
pub use map::KernelMapping;
pub use map::{MapIfSafeError, Mmap, Pinned};
pub use map_mut::{Flushing, MmapMut};
#[doc(hidden)]
pub use map_raw::Kept;
pub use map_raw::MmapRaw;
pub use options::{Coherence, MmapAsRawDesc, MmapOptions, MmapRawDescriptor, RemapOptions};
pub use softfault_engine::cache::{OnTruncate, Residency};
pub use softfault_engine::lock::WaitSnapshot;
pub use softfault_engine::policy;
pub use stats::{KernelStats, Stats, SwapStats, Waits};
pub use store::Reads;
#[doc(hidden)]
pub use swap::SwapFile;
pub use swap::{Compression, Swap};
#[doc(hidden)]
pub use thread::{prepare_threads, start_thread};
pub use uffd::Faults;
#[doc(hidden)]
pub use uffd::keep_no_spare_windows;

/// The budget of an engine that is told none, as the limits are now.
#[doc(hidden)]
pub fn default_memory() -> usize {
    machine::default_budget(machine::memory_limit().0)
}

/// The least budget of an engine, in bytes.
pub const LEAST_MEMORY: usize = softfault_engine::cache::node::LEAST_BYTES;
