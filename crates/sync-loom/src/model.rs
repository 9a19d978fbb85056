//! A model's settings of the world that it runs in. Not for the engine.

use std::cell::Cell;

/// When a sleep with a timeout ends that nobody wakes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Timeouts {
    /// Never: a thread that counts on it sleeps for ever, and the model fails.
    #[default]
    Never,
    /// At once, after the others were let run.
    AtOnce,
}

thread_local! {
    /// Loom's threads are coroutines of one thread.
    static TIMEOUTS: Cell<Timeouts> = const { Cell::new(Timeouts::Never) };
    static SPINS: Cell<bool> = const { Cell::new(false) };
}

/// Begins a schedule: the model calls it first.
pub fn begin(timeouts: Timeouts) {
    crate::wait::begin();
    TIMEOUTS.set(timeouts);
    SPINS.set(false);
}

/// In this schedule a thread that would spin asks once before it sleeps. Most models leave that out: it multiplies their
/// schedules.
pub fn spin() {
    SPINS.set(true);
}

pub(crate) fn spins() -> bool {
    SPINS.get()
}

pub(crate) fn timeouts_end() -> bool {
    TIMEOUTS.get() == Timeouts::AtOnce
}
