//! Which locks a thread holds, so that a debug build can check their order.
//!
//! A slot of a table belongs to a thread from the first lock that it takes to the last one that it lets go. There is
//! no thread-local and no memory from the heap, so the fault handler may use it. If a thread finds no slot, or a slot has
//! no room for its locks, they are not checked: this is an instrument and changes nothing.
//!
//! After a fork the child finds the slots of its parent's threads. A slot names its process, which is
//! compared only where the order seems broken.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicUsize};

/// Whether the order of locks is checked: in debug builds.
pub const CHECKED: bool = cfg!(debug_assertions);

/// Locks that a thread may hold at a time and that are checked.
const DEPTH: usize = 54;
/// Threads that may hold locks at a time and that are checked.
const SLOTS: usize = match CHECKED {
    true => 1024,
    false => 1,
};
/// Slots that a thread looks at for its own.
const PROBED: usize = 16;
/// The slot is nobody's.
const NOBODY: usize = 0;

/// The locks of one thread. That thread alone changes it, from the moment that it has set `thread` until it clears it.
struct Slot {
    /// The owner, or [`NOBODY`].
    thread: AtomicUsize,
    process: AtomicU32,
    /// How many of `ranks` are held.
    count: AtomicU32,
    ranks: [AtomicU8; DEPTH],
}

static TABLE: [Slot; SLOTS] = [const {
    Slot {
        thread: AtomicUsize::new(NOBODY),
        process: AtomicU32::new(0),
        count: AtomicU32::new(0),
        ranks: [const { AtomicU8::new(0) }; DEPTH],
    }
}; SLOTS];

/// The caller is about to wait for a lock of `rank`. Returns the rank of the innermost lock that it holds and that
/// `may_nest(held, rank)` refuses.
pub fn find_wrong(rank: u8, may_nest: impl Fn(u8, u8) -> bool) -> Option<u8> {
    let slot = own(false)?;
    let count = slot.count.load(Relaxed) as usize;
    let held = slot.ranks[..count].iter().rev();
    let wrong = held
        .map(|held| held.load(Relaxed))
        .find(|&held| !may_nest(held, rank))?;
    if slot.process.load(Relaxed) != process() {
        // Left by a thread of the parent.
        slot.count.store(0, Relaxed);
        slot.process.store(process(), Relaxed);
        return None;
    }
    Some(wrong)
}

/// The caller has taken a lock of `rank`.
pub fn push(rank: u8) {
    let Some(slot) = own(true) else { return };
    let count = slot.count.load(Relaxed);
    if let Some(place) = slot.ranks.get(count as usize) {
        place.store(rank, Relaxed);
        slot.count.store(count + 1, Relaxed);
    }
}

/// The caller releases a lock of `rank`, the last one that it took. The table may not know it: it had no room, or the
/// lock was taken before a fork.
pub fn pop(rank: u8) {
    let Some(slot) = own(false) else { return };
    let count = slot.count.load(Relaxed) as usize;
    let held = &slot.ranks[..count];
    let Some(place) = held.iter().rposition(|held| held.load(Relaxed) == rank) else {
        return;
    };
    for at in place + 1..count {
        let next = held[at].load(Relaxed);
        held[at - 1].store(next, Relaxed);
    }
    slot.count.store(count as u32 - 1, Relaxed);
    if count == 1 {
        // Release pairs with the Acquire in `own`: the next thread begins with none.
        slot.thread.store(NOBODY, Release);
    }
}

/// The caller's slot; a free one, if it may `claim` it and has none.
fn own(claim: bool) -> Option<&'static Slot> {
    let thread = this_thread();
    let first = thread.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
    let near = || (0..PROBED).map(|step| &TABLE[(first + step) % SLOTS]);
    if let Some(slot) = near().find(|slot| slot.thread.load(Relaxed) == thread) {
        return Some(slot);
    }
    if !claim {
        return None;
    }
    let slot = near().find(|slot| {
        // Acquire pairs with the Release in `pop`.
        let free = slot
            .thread
            .compare_exchange(NOBODY, thread, Acquire, Relaxed);
        free.is_ok()
    })?;
    slot.process.store(process(), Relaxed);
    Some(slot)
}

/// A number that no other thread of the process has.
fn this_thread() -> usize {
    // SAFETY: takes no arguments, and is made for any thread at any time.
    unsafe { libc::__errno_location() as usize }
}

fn process() -> u32 {
    // SAFETY: takes no arguments and always succeeds.
    unsafe { libc::getpid() as u32 }
}
