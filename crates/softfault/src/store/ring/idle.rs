//! Queues of `io_submit(2)` that no engine uses now, kept for the next.
//!
//! `io_destroy(2)` waits until no processor can still be looking at the queue, which
//! takes 30 ms each, and an engine has several: that was nearly all of the cost of
//! making one and dropping it. A queue that is given up has nothing in flight, so it is as good
//! as a new one.

use std::sync::{Mutex, MutexGuard};

/// Queues that are kept at most: those of two engines on a large machine. Each takes its
/// share of the system's limit (`fs.aio-max-nr`).
const MOST: usize = 32;

/// The process that made them, and its queues: by the kernel's name, with their entries.
/// Tried only: where somebody else has it, or had it at a fork, nothing is kept.
static IDLE: Mutex<(u32, Vec<(libc::c_ulong, usize)>)> = Mutex::new((0, Vec::new()));

type IdleQueues = MutexGuard<'static, (u32, Vec<(libc::c_ulong, usize)>)>;

/// Those of this process.
fn idle() -> Option<IdleQueues> {
    let mut idle = IDLE.try_lock().ok()?;
    let process = std::process::id();
    if idle.0 != process {
        // A child has none: the parent's are its memory's.
        idle.0 = process;
        idle.1.clear();
    }
    Some(idle)
}

/// A queue of so many entries, if one is kept.
pub(super) fn take(entries: usize) -> Option<libc::c_ulong> {
    let mut idle = idle()?;
    let place = idle.1.iter().rposition(|&(_, its)| its == entries)?;
    Some(idle.1.swap_remove(place).0)
}

/// Keeps a queue that has nothing in flight and no answers; `false` if there are enough.
pub(super) fn keep(context: libc::c_ulong, entries: usize) -> bool {
    let Some(mut idle) = idle() else {
        return false;
    };
    let room = idle.1.len() < MOST;
    if room {
        idle.1.push((context, entries));
    }
    room
}
