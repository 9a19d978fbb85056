//! Limits that the program sets: setrlimit(2) and prlimit(2).
//!
//! Below a limit on the size of files (RLIMIT_FSIZE) that is less than swap has, a page could not be written there, and a touch
//! that needs memory would fail. So all private memory is handed over to the kernel before, and none is taken as long as the limit stands.

use super::again::{Reads, again};
use super::next::hooks;
use super::readable::is_readable;
use super::receive::{BounceBuffer, size};
use crate::{declined, fork, give, inside, marked, private, table};
use libc::{c_int, c_uint, pid_t, rlimit};

/// Sets a limit of this process, by `call`.
///
/// # Safety
/// As of setrlimit(2).
pub unsafe fn set(what: c_uint, to: *const rlimit, call: impl FnMut() -> c_int) -> c_int {
    if !fork::is_in_parents_memory() {
        // SAFETY: the caller's promise.
        unsafe { make_way(what, to) };
    }
    again(&[Reads::Bytes(to.cast(), size(to))], call)
}

/// Sets a limit of a process, and asks which there was; `call` gets where that is put.
///
/// # Safety
/// As of prlimit(2).
pub unsafe fn exchange(
    process: pid_t,
    (what, to): (c_uint, *const rlimit),
    before: *mut rlimit,
    mut call: impl FnMut(*mut rlimit) -> c_int,
) -> c_int {
    let aside = BounceBuffer::of(before.cast(), size(before), true);
    let place = aside.place().cast();
    let is_own = match process {
        // A child of vfork has limits of its own, and its parent's memory.
        0 => !fork::is_in_parents_memory(),
        _ => fork::is_this_process(process),
    };
    if is_own {
        // SAFETY: the caller's promise.
        unsafe { make_way(what, to) };
    }
    let answer = again(&[Reads::Bytes(to.cast(), size(to))], || call(place));
    aside.end_all();
    answer
}

/// # Safety
/// As of setrlimit(2).
#[inline]
unsafe fn make_way(what: c_uint, to: *const rlimit) {
    let is_of_files = what == libc::RLIMIT_FSIZE as c_uint && marked::is_any();
    if is_of_files && is_readable(to.cast(), size_of::<rlimit>()) {
        // SAFETY: it is there.
        hand_over_if_above(unsafe { (*to).rlim_cur });
    }
}

#[cold]
fn hand_over_if_above(limit: u64) {
    let Some(_inside) = inside::enter() else {
        return;
    };
    give::leave_stack();
    let mut table = table::lock();
    let engine = table.inherited.as_ref().or(table.engine.as_ref());
    let Some(engine) = engine.cloned() else {
        return;
    };
    if table.private.is_empty() || private::fits_in_files(&engine, limit) {
        return;
    }
    let rooms: Vec<_> = (table.private.iter_mut())
        .map(|mapping| mapping.room.clone())
        .collect();
    for room in rooms {
        // What cannot be handed over for want of memory stays, and a touch of it may fail.
        give::hand_over(&mut table, &room);
    }
    declined::tell_of_file_limit(limit);
}

hooks! {
    /// setrlimit(2).
    fn setrlimit(what: c_uint, to: *const rlimit) -> c_int = |next| set(what, to, || next(what, to));

    /// setrlimit(2), by its other name.
    fn setrlimit64(what: c_uint, to: *const rlimit) -> c_int = |next| set(what, to, || next(what, to));

    /// prlimit(2).
    fn prlimit(process: pid_t, what: c_uint, to: *const rlimit, before: *mut rlimit) -> c_int = |next| {
        exchange(process, (what, to), before, |before| next(process, what, to, before))
    };

    /// prlimit(2), by its other name.
    fn prlimit64(process: pid_t, what: c_uint, to: *const rlimit, before: *mut rlimit) -> c_int = |next| {
        exchange(process, (what, to), before, |before| next(process, what, to, before))
    };
}
