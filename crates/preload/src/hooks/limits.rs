//! Limits that the program sets: setrlimit(2) and prlimit(2).
//!
//! Below a limit on the size of files (RLIMIT_FSIZE) that is less than swap has, a page could not be written there, and a touch
//! that needs memory would fail. So all private memory is handed over to the kernel before, and none is taken as long as the limit stands.

use super::again::{Reads, again};
use super::next::hooks;
use super::readable::is_readable;
use super::receive::{BounceBuffer, size};
use crate::table::{self, Table};
use crate::{call, declined, fork, give, inside, marked, mode, private};
use core::ptr::null_mut;
use libc::{c_int, c_uint, pid_t, rlimit};

/// Sets a limit of this process, by `call`, which gets where the limit is.
///
/// # Safety
/// As of setrlimit(2).
pub unsafe fn set(
    what: c_uint,
    to: *const rlimit,
    call: impl FnMut(*const rlimit) -> c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { change(0, (what, to), call) }
}

/// Sets a limit of a process, and asks which there was; `call` also gets where that is put.
///
/// # Safety
/// As of prlimit(2).
pub unsafe fn exchange(
    process: pid_t,
    (what, to): (c_uint, *const rlimit),
    before: *mut rlimit,
    mut call: impl FnMut(*const rlimit, *mut rlimit) -> c_int,
) -> c_int {
    let aside = BounceBuffer::of(before.cast(), size(before), true);
    let place = aside.place().cast();
    // SAFETY: the caller's promise.
    let answer = unsafe { change(process, (what, to), |to| call(to, place)) };
    aside.end_all();
    answer
}

/// # Safety
/// As of prlimit(2).
#[inline]
unsafe fn change(
    process: pid_t,
    (what, to): (c_uint, *const rlimit),
    mut call: impl FnMut(*const rlimit) -> c_int,
) -> c_int {
    let is_of_files = what == libc::RLIMIT_FSIZE as c_uint && marked::is_any();
    if is_of_files && is_readable(to.cast(), size_of::<rlimit>()) && is_own(process) {
        // SAFETY: it is there.
        let limit = unsafe { to.read() };
        if let Some(answer) = set_of_files(&limit, &mut || call(&limit)) {
            return answer;
        }
    }
    again(&[Reads::Bytes(to.cast(), size(to))], || call(to))
}

/// True if a process is the one whose memory this is, by the number of any of its threads: limits are of all of them.
fn is_own(process: pid_t) -> bool {
    if process == 0 {
        // A child of vfork has limits of its own, and its parent's memory.
        return !fork::is_in_parents_memory();
    }
    let errno = call::errno();
    // SAFETY: no signal, only whether there is such a thread.
    let sent = unsafe { softfault::system_call!(libc::SYS_tgkill, fork::process(), process, 0) };
    call::set_errno(errno);
    sent == 0
}

/// Sets the limit on the size of files with the table locked: what is mapped meanwhile finds the new one.
#[cold]
fn set_of_files(limit: &rlimit, call: &mut dyn FnMut() -> c_int) -> Option<c_int> {
    let (answer, errno) = {
        let _inside = inside::enter()?;
        match give::leave_stack() {
            true => {
                let mut table = table::lock();
                if is_allowed(limit) {
                    hand_over_if_above(&mut table, limit.rlim_cur);
                }
                (call(), call::errno())
            }
            false => (-1, libc::ENOMEM),
        }
    };
    if answer < 0 {
        call::set_errno(errno);
    }
    Some(answer)
}

/// True if the kernel does not refuse a limit. A higher hard limit is tried first: only some processes may have it.
fn is_allowed(limit: &rlimit) -> bool {
    let what = libc::RLIMIT_FSIZE;
    let now = mode::limits(what);
    let raised = rlimit {
        rlim_cur: now.rlim_cur,
        rlim_max: limit.rlim_max,
    };
    let try_raised = || {
        let (number, none) = (libc::SYS_prlimit64, null_mut::<rlimit>());
        // SAFETY: the structure is there.
        unsafe { softfault::system_call!(number, 0, what, &raw const raised, none) == 0 }
    };
    limit.rlim_cur <= limit.rlim_max && (limit.rlim_max <= now.rlim_max || try_raised())
}

fn hand_over_if_above(table: &mut Table, limit: u64) {
    let engine = table.inherited.as_ref().or(table.engine.as_ref());
    let Some(engine) = engine.cloned() else {
        return;
    };
    let swap = private::swap_bytes(&engine.stats());
    let swap_fits = swap.is_none_or(|bytes| private::fits_in_files(bytes, limit));
    if table.private.is_empty() || swap_fits {
        return;
    }
    let rooms: Vec<_> = (table.private.iter_mut())
        .map(|mapping| mapping.room.clone())
        .collect();
    for room in rooms {
        // Memory that cannot be handed over, for want of memory, stays, and a touch of it may fail.
        give::hand_over(table, &room);
    }
    declined::tell_of_file_limit(limit);
}

hooks! {
    /// setrlimit(2).
    fn setrlimit(what: c_uint, to: *const rlimit) -> c_int = |next| set(what, to, |to| next(what, to));

    /// setrlimit(2), by its other name.
    fn setrlimit64(what: c_uint, to: *const rlimit) -> c_int = |next| set(what, to, |to| next(what, to));

    /// prlimit(2).
    fn prlimit(process: pid_t, what: c_uint, to: *const rlimit, before: *mut rlimit) -> c_int = |next| {
        exchange(process, (what, to), before, |to, before| next(process, what, to, before))
    };

    /// prlimit(2), by its other name.
    fn prlimit64(process: pid_t, what: c_uint, to: *const rlimit, before: *mut rlimit) -> c_int = |next| {
        exchange(process, (what, to), before, |to, before| next(process, what, to, before))
    };
}
