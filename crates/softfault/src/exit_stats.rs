//! `SOFTFAULT_STATS=1`: the statistics of the process's engines, on the standard error at its end.
//!
//! ```text
//! softfault-stats: pid=4711 engines=1 peak_bytes=268435456
//! softfault-stats: faults=90 minor=60 major=20 anonymous=10 zero_pages=0 failed=0
//! softfault-stats: read_bytes=81920 read_errors=0 readahead=5 readahead_used=4 readahead_dropped=0
//! softfault-stats: evicted=0 refaults=0 memory_waits=0 swapped_out=0 swapped_in=0 huge_faults=0
//! softfault-stats: read_direct_bytes=81920 read_cached_bytes=0 small_maps=0 small_bytes=0 shown_by_kernel=0 shown_bytes=0 taken_over=0 shared_maps=0 shared_bytes=0 special_maps=0 special_bytes=0
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
use core::fmt::Write;
use core::ptr::null_mut;
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};
use softfault_engine::PAGE_SIZE;
use softfault_engine::cache::Node;
use std::sync::{Arc, OnceLock, Weak};

/// The counters, in the order in which they are printed.
#[derive(Clone, Copy)]
enum Count {
    Engines,
    PeakBytes,
    Faults,
    Minor,
    Major,
    Anonymous,
    ZeroPages,
    ReadBytes,
    ReadErrors,
    Readahead,
    ReadaheadUsed,
    ReadaheadDropped,
    Evicted,
    Refaults,
    MemoryWaits,
    SwappedOut,
    SwappedIn,
    WrittenBackBytes,
    WriteErrors,
}

const COUNTS: usize = Count::WriteErrors as usize + 1;
type Counts = [u64; COUNTS];

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
/// The counters of the process as a whole, by name.
const OF_PROCESS: [&str; 15] = [
    "failed",
    "huge_faults",
    "writable_maps",
    "writable_bytes",
    "read_direct_bytes",
    "read_cached_bytes",
    "small_maps",
    "small_bytes",
    "shown_by_kernel",
    "shown_bytes",
    "taken_over",
    "shared_maps",
    "shared_bytes",
    "special_maps",
    "special_bytes",
];
/// Maps that write to their file over an engine, and their bytes, at any time.
static WRITABLE: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
/// The counts of a child's parent at the fork.
static PARENTS: [AtomicU64; OF_PROCESS.len()] = [const { AtomicU64::new(0) }; OF_PROCESS.len()];

/// True if there will be something to print.
pub(crate) fn watch() -> bool {
    if !environment::wants_stats() {
        return false;
    }
    static REGISTERED: Done = Done::new();
    REGISTERED.once(|| {
        FIRST.store(std::process::id(), Relaxed);
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

/// In a child of fork: the counts so far are the parent's.
pub(crate) fn forked() {
    for (parents, count) in PARENTS.iter().zip(of_process()) {
        parents.store(count, Relaxed);
    }
}

fn of_process() -> [u64; OF_PROCESS.len()] {
    let huge = crate::huge_faults::HugeStats::now().faults;
    let [direct, cached] = ReadPolicy::bytes_of_process();
    [
        crate::faults::failed_touches(),
        huge,
        WRITABLE[0].load(Relaxed),
        WRITABLE[1].load(Relaxed),
        direct,
        cached,
        KernelCount::SmallMaps.get(),
        KernelCount::SmallBytes.get(),
        KernelCount::Shown.get(),
        KernelCount::ShownBytes.get(),
        KernelCount::TakenOver.get(),
        KernelCount::Shared.get(),
        KernelCount::SharedBytes.get(),
        KernelCount::Special.get(),
        KernelCount::SpecialBytes.get(),
    ]
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

/// The first engine that goes in a child of fork forgets the counts of the parent's.
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

fn counts(node: &Node) -> Counts {
    let (stats, mut counts) = (&node.stats, [0; COUNTS]);
    let mut set = |which: Count, count: u64| counts[which as usize] = count;
    set(Count::Engines, 1);
    set(Count::PeakBytes, node.budget.peak() * PAGE_SIZE as u64);
    let (minor, major) = (stats.minor_faults.get(), stats.major_faults.get());
    let anonymous = stats.anonymous_faults.get();
    let faults = minor + major + anonymous + stats.spurious.get();
    set(Count::Faults, faults);
    set(Count::Minor, minor);
    set(Count::Major, major);
    set(Count::Anonymous, anonymous);
    set(Count::ZeroPages, stats.zero_pages.get());
    set(Count::ReadBytes, stats.bytes_read.get());
    set(Count::ReadErrors, stats.read_errors.get());
    set(Count::Readahead, stats.readahead_pages.get());
    set(Count::ReadaheadUsed, stats.readahead_used.get());
    set(Count::ReadaheadDropped, stats.readahead_dropped.get());
    set(Count::Evicted, stats.evicted.get());
    set(Count::Refaults, stats.refaults.get());
    set(Count::MemoryWaits, stats.memory_waits.get());
    set(
        Count::WrittenBackBytes,
        stats.written_back.get() * PAGE_SIZE as u64,
    );
    set(Count::WriteErrors, stats.write_errors.get());
    if let Some(swap) = &node.swap {
        set(Count::SwappedOut, swap.stats.pages_out.get());
        set(Count::SwappedIn, swap.stats.pages_in.get());
    }
    counts
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
    let counts = total(here);
    let mut of_process = of_process();
    let is_child = FIRST.load(Relaxed) != here;
    if is_child {
        for (count, parents) in of_process.iter_mut().zip(&PARENTS) {
            *count = count.saturating_sub(parents.load(Relaxed));
        }
        if counts[Count::Faults as usize] == 0 && of_process.iter().all(|&count| count == 0) {
            return;
        }
    }
    let block = block(here, &counts, &of_process);
    // A program that has closed it may have a file of its own by that number.
    let now = identity_of(libc::STDERR_FILENO);
    if now.is_ok() && STANDARD_ERROR.get() == Some(&now) {
        // One write: blocks of several processes do not mix. Nobody is left to hear of an error.
        error::print(&block);
    }
}

fn block(process: u32, counts: &Counts, of_process: &[u64; OF_PROCESS.len()]) -> String {
    let of = |which: Count| counts[which as usize];
    let named: [(&str, u64); OF_PROCESS.len()] =
        core::array::from_fn(|at| (OF_PROCESS[at], of_process[at]));
    let [failed, huge, maps, bytes, rest @ ..] = &named;
    let rows: [&[(&str, u64)]; 6] = [
        &[
            ("pid", process.into()),
            ("engines", of(Count::Engines)),
            ("peak_bytes", of(Count::PeakBytes)),
        ],
        &[
            ("faults", of(Count::Faults)),
            ("minor", of(Count::Minor)),
            ("major", of(Count::Major)),
            ("anonymous", of(Count::Anonymous)),
            ("zero_pages", of(Count::ZeroPages)),
            *failed,
        ],
        &[
            ("read_bytes", of(Count::ReadBytes)),
            ("read_errors", of(Count::ReadErrors)),
            ("readahead", of(Count::Readahead)),
            ("readahead_used", of(Count::ReadaheadUsed)),
            ("readahead_dropped", of(Count::ReadaheadDropped)),
        ],
        &[
            ("evicted", of(Count::Evicted)),
            ("refaults", of(Count::Refaults)),
            ("memory_waits", of(Count::MemoryWaits)),
            ("swapped_out", of(Count::SwappedOut)),
            ("swapped_in", of(Count::SwappedIn)),
            *huge,
        ],
        rest,
        &[
            *maps,
            *bytes,
            ("written_back_bytes", of(Count::WrittenBackBytes)),
            ("write_errors", of(Count::WriteErrors)),
        ],
    ];
    let mut block = String::new();
    for row in rows {
        block.push_str("softfault-stats:");
        for (name, count) in row {
            let _ = write!(block, " {name}={count}");
        }
        block.push('\n');
    }
    block
}
