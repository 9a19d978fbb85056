//! Hints to the processor.

use crate::machine;

/// How many times [`spin_until`] asks.
const ASKS: u32 = 16;
/// Pauses between two of them. With the real machine's 64 asks of a pause each
/// the span is the same; asking less often only makes the simulation faster.
const PAUSES: u64 = 4;
/// A pause, in picoseconds.
const PAUSE: u64 = 10_000;

/// A pause of the processor.
#[inline]
#[track_caller]
pub fn spin_loop() {
    if !machine::pause(PAUSE) {
        core::hint::spin_loop();
    }
}

/// Means nothing here: bytes have no lines.
#[inline]
pub fn prefetch(_addr: core::ptr::NonNull<u8>, _bytes: usize) {}

/// Asks `done` a few times, for about as long as a short critical section on
/// another processor lasts; true as soon as it is. For use before a sleep.
#[track_caller]
pub fn spin_until(mut done: impl FnMut() -> bool) -> bool {
    for _ in 0..ASKS {
        if done() {
            return true;
        }
        if !machine::pause(PAUSE * PAUSES) {
            core::hint::spin_loop();
        }
    }
    false
}
