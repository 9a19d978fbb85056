//! The order in which locks are taken, checked in debug builds.
//!
//! ARCHITECTURE.md has the order as a tree. Here each class of locks has a rank, larger ones are inside, and a thread
//! may wait for a lock only if all locks that it holds rank below it. `try_lock` may come in any order, since it does
//! not wait. The locks that are waited for under it are checked.
//!
//! A debug build panics in the thread that breaks this, whether or not another thread is in the way at that
//! moment, so a test needs no luck to find a deadlock. A release build has none of this, neither in time nor in memory:
//! the rank is a part of the lock's type.
//!
//! Not ranked: locks of a page, a folio or a leaf slot that are bits of a word; `resize`, `i_mmap` and the share lock of huge
//! pages, whose order is that of a policy; a VMA's write lock, which ends with `mmap_lock`, or at the thaw. Models check these.

use sync::held;

/// No rank: a lock that is not checked.
pub const UNRANKED: u8 = 0;
/// The length of a page cache that is written to. Held over write-back; a fault takes it with no other lock.
pub const LENGTH: u8 = 1;
/// `mmap_lock`, for reading or for writing.
pub const MMAP_LOCK: u8 = 2;
/// VMAs that wait for lookups.
pub const GRACE_PERIODS: u8 = 3;
/// A VMA, for reading. Never waited for.
pub const VMA_READ: u8 = 4;
/// Fault mutexes of huge pages. A fault tries those of neighbours.
pub const FAULT_MUTEX: u8 = 5;
/// The sharers of a span of huge pages.
pub const SPAN: u8 = 6;
/// A mapping's slot for a leaf of huge pages.
pub const LEAF_SLOT: u8 = 7;
/// A leaf of huge pages.
pub const HUGE_LEAF: u8 = 8;
/// A batch of private memory. Held over writes to swap; a fork holds all of them.
pub const PRIVATE_BATCH: u8 = 9;
/// The windows that reclaim goes over.
pub const RECLAIM_WINDOWS: u8 = 10;
/// The cursor of swap slots.
pub const SWAP_SLOTS: u8 = 11;
/// A batch of reclaim. Held over writes to files.
pub const RECLAIM_BATCH: u8 = 12;
/// A bucket of the index.
pub const BUCKET: u8 = 13;
/// The reclaim lists.
pub const RECLAIM_LISTS: u8 = 14;
/// The pool of frames.
pub const FRAME_POOL: u8 = 15;
/// The windows of soft page tables.
pub const SOFT_WINDOWS: u8 = 16;
/// A leaf of soft page tables, its parent before it.
pub const SOFT_LEAF: u8 = 17;
/// Free frames of a few processors.
pub const FRAME_SHARD: u8 = 18;
/// All other free frames.
pub const FRAME_DEPOT: u8 = 19;
/// Read-ahead of a page cache: a leaf.
pub const READAHEAD: u8 = 20;

/// By rank.
const NAMES: [&str; 21] = [
    "a lock without rank",
    "length of a page cache",
    "mmap_lock",
    "slots that wait for lookups",
    "vma read lock",
    "fault mutex of a huge page",
    "span of huge pages",
    "slot of a huge mapping",
    "leaf of huge pages",
    "batch of private memory",
    "windows of reclaim",
    "slots of swap",
    "batch of reclaim",
    "bucket of the index",
    "shard of the reclaim lists",
    "part of the frame pool",
    "soft windows",
    "leaf of soft tables",
    "shard of frames",
    "depot of frames",
    "read-ahead lock of a page cache",
];

/// Classes of which a thread may wait for one while it holds another: a leaf and its parent's; a fork takes all batches.
const WITHIN_ITSELF: [u8; 2] = [SOFT_LEAF, PRIVATE_BATCH];

/// The caller is about to wait for a lock of this rank.
///
/// # Panics
/// In a debug build, if it holds one that has to come after it.
#[inline(always)]
#[track_caller]
pub fn check(rank: u8) {
    if held::CHECKED && rank != UNRANKED {
        check_held(rank);
    }
}

#[track_caller]
fn check_held(rank: u8) {
    let Some(held) = held::find_wrong(rank, may_wait_under) else {
        return;
    };
    let [held, wanted] = [held, rank].map(|rank| NAMES[rank as usize]);
    panic!("lock order: \"{wanted}\" is waited for under \"{held}\", which comes after it");
}

/// True if a holder of `held` may wait for `wanted`.
fn may_wait_under(held: u8, wanted: u8) -> bool {
    held < wanted || held == wanted && WITHIN_ITSELF.contains(&held)
}

/// The caller has taken a lock of this rank.
#[inline(always)]
pub fn taken(rank: u8) {
    if held::CHECKED && rank != UNRANKED {
        held::push(rank);
    }
}

/// The caller lets a lock of this rank go.
#[inline(always)]
pub fn let_go(rank: u8) {
    if held::CHECKED && rank != UNRANKED {
        held::pop(rank);
    }
}

/// A lock of this rank that is held until this is dropped, for guards that are not [`MutexGuard`](super::MutexGuard)s.
#[derive(Debug)]
pub struct Held<const RANK: u8>(());

impl<const RANK: u8> Held<RANK> {
    /// The caller has taken it.
    #[inline(always)]
    pub fn new() -> Self {
        taken(RANK);
        Self(())
    }
}

impl<const RANK: u8> Default for Held<RANK> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const RANK: u8> Drop for Held<RANK> {
    #[inline(always)]
    fn drop(&mut self) {
        let_go(RANK);
    }
}
