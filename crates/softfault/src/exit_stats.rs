//! `SOFTFAULT_STATS=1`: the statistics of the process's engines, on the standard error at its end.
//!
//! ```text
//! softfault-stats: pid=4711 engines=1 peak_bytes=268435456
//! softfault-stats: faults=90 minor=60 major=20 anonymous=10 zero_pages=0 failed_touches=0
//! softfault-stats: bytes_read=81920 read_errors=0 readahead=5 readahead_used=4 readahead_dropped=0
//! softfault-stats: evicted=0 refaults=0 memory_waits=0 swapped_out_bytes=0 swapped_in_bytes=0 huge_faults=0
//! softfault-stats: read_direct_bytes=81920 read_cached_bytes=0 small_maps=0 small_bytes=0 switched_to_kernel=0 switched_to_kernel_bytes=0 switched_to_engine=0 scanned_bytes=0 shared_maps=0 shared_bytes=0 special_maps=0 special_bytes=0
//! softfault-stats: writable_maps=0 writable_bytes=0 written_back_bytes=0 write_errors=0
//! ```
//!
//! Fields may come to be more, at the end of a line; those that are here keep their names. A child of fork
//! prints a block of its own if it served a fault. A process that ends without `exit` (a signal, `_exit`) prints none,
//! nor does one whose standard error is another file than when its first engine was made.
//!
//! An engine's numbers are added up when it goes, and asked for at exit where it lives still. Nothing here
//! waits for a lock: a thread that exits may hold any.

use crate::generation::Done;
use crate::kernel::KernelCount;
use crate::store::ReadPolicy;
use crate::table::{Identity, identity_of};
use crate::{environment, error};
use Source::{Engine, Process};
use core::fmt::Write;
use core::ptr::null_mut;
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};
use softfault_engine::PAGE_SIZE;
use softfault_engine::cache::Node;
use std::sync::{Arc, OnceLock, Weak};

/// Where a counter is.
enum Source {
    /// Of an engine; those of all engines are added up.
    Engine(fn(&Node) -> u64),
    /// Of the process as a whole.
    Process(fn() -> u64),
}

/// The counters as they are printed: the row, the name, and where each is.
const COUNTERS: [(usize, &str, Source); 35] = [
    (0, "engines", Engine(|_| 1)),
    (0, "peak_bytes", Engine(|node| node.budget.peak() * PAGE)),
    (1, "faults", Engine(|node| node.stats.faults())),
    (1, "minor", Engine(|node| node.stats.minor_faults.get())),
    (1, "major", Engine(|node| node.stats.major_faults.get())),
    (
        1,
        "anonymous",
        Engine(|node| node.stats.anonymous_faults.get()),
    ),
    (1, "zero_pages", Engine(|node| node.stats.zero_pages.get())),
    (1, "failed_touches", Process(crate::faults::failed_touches)),
    (2, "bytes_read", Engine(|node| node.stats.bytes_read.get())),
    (
        2,
        "read_errors",
        Engine(|node| node.stats.read_errors.get()),
    ),
    (
        2,
        "readahead",
        Engine(|node| node.stats.readahead_pages.get()),
    ),
    (
        2,
        "readahead_used",
        Engine(|node| node.stats.readahead_used.get()),
    ),
    (
        2,
        "readahead_dropped",
        Engine(|node| node.stats.readahead_dropped.get()),
    ),
    (3, "evicted", Engine(|node| node.stats.evicted.get())),
    (3, "refaults", Engine(|node| node.stats.refaults.get())),
    (
        3,
        "memory_waits",
        Engine(|node| node.stats.memory_waits.get()),
    ),
    (3, "swapped_out_bytes", Engine(|node| swapped(node).0)),
    (3, "swapped_in_bytes", Engine(|node| swapped(node).1)),
    (
        3,
        "huge_faults",
        Process(|| crate::huge_faults::HugeStats::now().faults),
    ),
    (
        4,
        "read_direct_bytes",
        Process(|| ReadPolicy::bytes_of_process()[0]),
    ),
    (
        4,
        "read_cached_bytes",
        Process(|| ReadPolicy::bytes_of_process()[1]),
    ),
    (4, "small_maps", Process(|| KernelCount::SmallMaps.get())),
    (4, "small_bytes", Process(|| KernelCount::SmallBytes.get())),
    (
        4,
        "switched_to_kernel",
        Process(|| KernelCount::SwitchedToKernel.get()),
    ),
    (
        4,
        "switched_to_kernel_bytes",
        Process(|| KernelCount::SwitchedToKernelBytes.get()),
    ),
    (
        4,
        "switched_to_engine",
        Process(|| KernelCount::SwitchedToEngine.get()),
    ),
    (
        4,
        "scanned_bytes",
        Process(|| KernelCount::ScannedBytes.get()),
    ),
    (4, "shared_maps", Process(|| KernelCount::Shared.get())),
    (
        4,
        "shared_bytes",
        Process(|| KernelCount::SharedBytes.get()),
    ),
    (4, "special_maps", Process(|| KernelCount::Special.get())),
    (
        4,
        "special_bytes",
        Process(|| KernelCount::SpecialBytes.get()),
    ),
    (5, "writable_maps", Process(|| WRITABLE[0].load(Relaxed))),
    (5, "writable_bytes", Process(|| WRITABLE[1].load(Relaxed))),
    (
        5,
        "written_back_bytes",
        Engine(|node| node.stats.written_back.get() * PAGE),
    ),
    (
        5,
        "write_errors",
        Engine(|node| node.stats.write_errors.get()),
    ),
];

const COUNTS: usize = COUNTERS.len();
/// A count for each of them.
type Counts = [u64; COUNTS];

const PAGE: u64 = PAGE_SIZE as u64;

/// Bytes that went to swap, and that came back.
fn swapped(node: &Node) -> (u64, u64) {
    node.swap.as_ref().map_or((0, 0), |swap| {
        let pages = &swap.stats;
        (pages.pages_out.get() * PAGE, pages.pages_in.get() * PAGE)
    })
}

/// An engine's node, and the process that made it. Entries stay: there are as many as engines were made.
struct CountedNode {
    process: u32,
    /// A weak reference, as a raw pointer; null once the node is gone and counted.
    node: AtomicPtr<Node>,
    next: *mut CountedNode,
}

/// The newest entry.
static ENTRIES: AtomicPtr<CountedNode> = AtomicPtr::new(null_mut());
/// The counts of dropped engines of [`PROCESS`].
static GONE: [AtomicU64; COUNTS] = [const { AtomicU64::new(0) }; COUNTS];
/// The process that `GONE` is of.
static PROCESS: AtomicU32 = AtomicU32::new(0);
/// The process that was the first to want it printed; its children inherit the handler.
static FIRST: AtomicU32 = AtomicU32::new(0);
/// The standard error, as it was then.
static STANDARD_ERROR: OnceLock<Result<Identity, i32>> = OnceLock::new();

/// Maps that write to their file over an engine, and their bytes, at any time.
static WRITABLE: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
/// The counts of a child's parent at the fork.
static PARENTS: [AtomicU64; COUNTS] = [const { AtomicU64::new(0) }; COUNTS];

/// True if there will be something to print.
pub(crate) fn watch() -> bool {
    if !environment::wants_stats() {
        return false;
    }
    static REGISTERED: Done = Done::new();
    REGISTERED.once(|| {
        FIRST.store(std::process::id(), Relaxed);
        PROCESS.store(std::process::id(), Relaxed);
        let _ = STANDARD_ERROR.set(identity_of(libc::STDERR_FILENO));
        // SAFETY: a function that stays, and needs nothing that goes before it.
        unsafe { libc::atexit(at_exit) };
    });
    true
}

/// A map that writes to its file was made over an engine.
pub(crate) fn made_writable(bytes: usize) {
    WRITABLE[0].fetch_add(1, Relaxed);
    WRITABLE[1].fetch_add(bytes as u64, Relaxed);
}

/// In a child of fork, which has one thread: the counts so far are the parent's.
pub(crate) fn forked() {
    begin(std::process::id());
    for (parents, count) in PARENTS.iter().zip(of_process()) {
        parents.store(count, Relaxed);
    }
}

/// The counts of the process as a whole; 0 for those of engines.
fn of_process() -> Counts {
    COUNTERS.map(|(_, _, source)| match source {
        Process(get) => get(),
        Engine(_) => 0,
    })
}

/// An engine was made.
pub(crate) fn made(node: &Arc<Node>) {
    if !watch() {
        return;
    }
    let node = Weak::into_raw(Arc::downgrade(node)).cast_mut();
    let entry = Box::into_raw(Box::new(CountedNode {
        process: std::process::id(),
        node: AtomicPtr::new(node),
        next: null_mut(),
    }));
    let mut newest = ENTRIES.load(Relaxed);
    loop {
        // SAFETY: ours alone until it is in the list.
        unsafe { (*entry).next = newest };
        // Release pairs with the Acquire in `entries`.
        match ENTRIES.compare_exchange_weak(newest, entry, Release, Relaxed) {
            Ok(_) => return,
            Err(other) => newest = other,
        }
    }
}

/// An engine is about to go.
pub(crate) fn gone(node: &Arc<Node>) {
    let here = std::process::id();
    let node: *const Node = Arc::as_ptr(node);
    for entry in entries() {
        let is_it = entry.process == here && entry.node.load(Relaxed).cast_const() == node;
        if is_it && let Some(node) = take(entry) {
            begin(here);
            for (total, count) in GONE.iter().zip(counts(&node)) {
                total.fetch_add(count, Relaxed);
            }
        }
    }
}

/// A child of fork forgets the counts of the parent's. Here is done what [`forked`] does, if nobody told of the fork: of two engines
/// that go at a time then, the counts of one may be lost.
fn begin(here: u32) {
    if PROCESS.swap(here, Relaxed) != here {
        GONE.iter().for_each(|count| count.store(0, Relaxed));
    }
}

fn entries() -> impl Iterator<Item = &'static CountedNode> {
    // Acquire pairs with the Release in `made`.
    let mut next = ENTRIES.load(Acquire);
    core::iter::from_fn(move || {
        // SAFETY: null, or an entry, which stays and does not change but for an atomic.
        let entry = unsafe { next.as_ref() }?;
        next = entry.next;
        Some(entry)
    })
}

/// The node of an entry: for one caller, once, if it lives.
fn take(entry: &CountedNode) -> Option<Arc<Node>> {
    let node = entry.node.swap(null_mut(), AcqRel);
    if node.is_null() {
        return None;
    }
    // SAFETY: from `into_raw`, and nobody else's since the swap.
    unsafe { Weak::from_raw(node.cast_const()) }.upgrade()
}

/// The counts of an engine; 0 for those of the process.
fn counts(node: &Node) -> Counts {
    COUNTERS.map(|(_, _, source)| match source {
        Engine(get) => get(node),
        Process(_) => 0,
    })
}

/// All that this process's engines counted.
fn total(here: u32) -> Counts {
    begin(here);
    let mut total: Counts = core::array::from_fn(|at| GONE[at].load(Relaxed));
    for entry in entries().filter(|entry| entry.process == here) {
        let Some(node) = take(entry) else {
            continue;
        };
        for (total, count) in total.iter_mut().zip(counts(&node)) {
            *total += count;
        }
        // Its last owner may be ending with the process.
        core::mem::forget(node);
    }
    total
}

extern "C" fn at_exit() {
    let here = std::process::id();
    let of_engines = total(here);
    let mut counts = of_process();
    for (count, parents) in counts.iter_mut().zip(&PARENTS) {
        *count = count.saturating_sub(parents.load(Relaxed));
    }
    let faults = COUNTERS.iter().position(|(_, name, _)| *name == "faults");
    let is_idle = counts.iter().all(|&count| count == 0)
        && faults.is_none_or(|faults| of_engines[faults] == 0);
    let is_child = FIRST.load(Relaxed) != here;
    if is_child && is_idle {
        return;
    }
    for (count, of_engines) in counts.iter_mut().zip(of_engines) {
        *count += of_engines;
    }
    let block = block(here, &counts);
    // A program that has closed it may have a file of its own by that number.
    let now = identity_of(libc::STDERR_FILENO);
    if now.is_ok() && STANDARD_ERROR.get() == Some(&now) {
        // One write: blocks of several processes do not mix. Nobody is left to hear of an error.
        error::print(&block);
    }
}

fn block(process: u32, counts: &Counts) -> String {
    const PREFIX: &str = "softfault-stats:";
    let (mut block, mut last) = (format!("{PREFIX} pid={process}"), 0);
    for ((row, name, _), count) in COUNTERS.iter().zip(counts) {
        if *row != last {
            block.push('\n');
            block.push_str(PREFIX);
            last = *row;
        }
        let _ = write!(block, " {name}={count}");
    }
    block.push('\n');
    block
}
