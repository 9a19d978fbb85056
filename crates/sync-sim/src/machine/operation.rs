//! An operation of the façade: begun, executed at its moment, and noted.

use super::kernel::{self, Machine};
use core::panic::Location;

/// Kinds, as the trace knows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Operation {
    /// A load.
    Load,
    /// A store.
    Store,
    /// A read-modify-write that always writes.
    Change,
    /// A compare-and-exchange. Its class is that of zero if it failed.
    Exchange,
    /// A fence.
    Fence,
    /// A look at a waitable word in order to sleep.
    Wait,
    /// A wake-up of the waiters on a word.
    Wake,
    /// Bytes moved or cleared.
    Bytes,
    /// Pages mapped or given back.
    Map,
    /// A thread started.
    Spawn,
    /// A thread ended.
    End,
    /// A thread gave its processor up for others.
    Yield,
    /// A thread began to run again after a wait.
    Run,
}

use Operation::*;

/// Executes a load: `f` returns its value, and whether that is zero.
#[inline]
#[track_caller]
pub(crate) fn shared<R>(addr: usize, f: impl FnOnce() -> (R, bool)) -> R {
    let machine = kernel::machine();
    if machine.is_null() {
        return f().0;
    }
    let at = Location::caller();
    // SAFETY: the machine of this thread, which runs; no borrow of it lives.
    unsafe {
        let line = Machine::access(machine, addr, false, false, at);
        let (result, zero) = f();
        (*machine).note(Load, line, zero, at);
        result
    }
}

/// Executes operations that write or may write.
#[inline]
#[track_caller]
pub(crate) fn exclusive<R>(kind: Operation, addr: usize, f: impl FnOnce() -> (R, bool)) -> R {
    let machine = kernel::machine();
    if machine.is_null() {
        return f().0;
    }
    let at = Location::caller();
    // SAFETY: as in `shared`.
    unsafe {
        let line = Machine::access(machine, addr, true, kind != Store, at);
        let (result, zero) = f();
        (*machine).note(kind, line, zero, at);
        if !(kind == Exchange && zero) {
            (*machine).progress();
        }
        result
    }
}

/// A fence.
#[inline]
#[track_caller]
pub(crate) fn fence() {
    let machine = kernel::machine();
    if !machine.is_null() {
        // SAFETY: as in `shared`.
        unsafe {
            Machine::step(machine, Fence, Location::caller(), |machine| {
                machine.costs().rmw
            })
        };
    }
}
