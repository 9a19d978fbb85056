//! Queues of `io_submit(2)` that no engine uses now, kept for the next.
//!
//! `io_destroy(2)` waits until no processor can still be looking at the queue, which
//! takes 30 ms each, and an engine has several: that was nearly all of the cost of
//! making one and dropping it. A queue that is given up has nothing in flight, so it is as good
//! as a new one.

use crate::generation::Owner;
use std::sync::{Mutex, MutexGuard};

/// Queues that are kept at most: those of two engines on a large machine. Each takes its
/// share of the system's limit (`fs.aio-max-nr`).
const MOST: usize = 32;

/// Queues of one process.
struct Idle {
    /// That made them.
    by: Option<Owner>,
    /// By the kernel's name, with their entries.
    queues: Vec<(libc::c_ulong, usize)>,
}

/// Tried only: where somebody else has it, or had it at a fork, nothing is kept.
static IDLE: Mutex<Idle> = Mutex::new(Idle {
    by: None,
    queues: Vec::new(),
});

/// Those of this process.
fn idle() -> Option<MutexGuard<'static, Idle>> {
    let mut idle = IDLE.try_lock().ok()?;
    let here = Some(Owner::here());
    if idle.by != here {
        // A child has none: the parent's are its memory's.
        idle.by = here;
        idle.queues.clear();
    }
    Some(idle)
}

/// A queue of so many entries, if one is kept.
pub(super) fn take(entries: usize) -> Option<libc::c_ulong> {
    let mut idle = idle()?;
    let place = idle.queues.iter().rposition(|&(_, its)| its == entries)?;
    Some(idle.queues.swap_remove(place).0)
}

/// Keeps a queue that has nothing in flight and no answers; `false` if there are enough.
pub(super) fn keep(context: libc::c_ulong, entries: usize) -> bool {
    let Some(mut idle) = idle() else {
        return false;
    };
    let room = idle.queues.len() < MOST;
    if room {
        idle.queues.push((context, entries));
    }
    room
}
