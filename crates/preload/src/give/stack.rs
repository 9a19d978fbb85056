//! A thread whose stack, or whose thread-local data, is memory that was taken.
//!
//! A hook holds locks of the engine, and a fault in the meantime would wait for them. So such memory is handed
//! over before, by a thread of ours that has another stack.

use crate::{call, inside, marked, table};

/// Of the thread that does it.
const STACK: usize = 256 << 10;

/// Hands over the memory under the calling thread's stack. False if that cannot be: the call is to be refused, or to lock nothing of the
/// engine's. In a thread that is inside and has nothing locked.
#[must_use]
pub fn leave_stack() -> bool {
    let here = 0_u8;
    let places = [&raw const here as usize, call::errno_place()];
    let may_be = |&place: &usize| marked::may_be_taken(place, 1);
    if !places.iter().any(may_be) {
        return true;
    }
    // Exactly: the bits are of wider ranges. A fault does not wait for the table.
    let served = |place: usize| table::lock().private.served(place).is_some();
    let under: Vec<_> = places.into_iter().filter(|&place| served(place)).collect();
    if under.is_empty() {
        return true;
    }
    let hand_over = move || {
        let _inside = inside::enter();
        let mut table = table::lock();
        for place in under {
            if let Some(room) = table.private.room_of(place) {
                super::hand_over(&mut table, &room);
            }
        }
    };
    // There may be as many threads as may be, or the memory cannot be handed over.
    if let Ok(join) = softfault::start_thread(c"softfault-give", STACK, hand_over) {
        join();
    }
    !places.into_iter().any(served)
}
