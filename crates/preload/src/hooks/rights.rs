//! Calls by which the program gives rights up, or takes others: the threads that have softfault's descriptors, of which the C library does
//! not know, follow.

use super::again::{Reads, again};
use super::next::hooks;
use crate::inside;
use libc::{c_char, c_int, c_long, c_void, gid_t, size_t, uid_t};

/// Bytes of the header of capset(2), and of its data.
const HEAD: usize = 2 * size_of::<c_int>();
const DATA: usize = 6 * size_of::<c_int>();

/// The answer of a call that changes the rights of all threads.
fn of_all(answer: c_int) -> c_int {
    if answer == 0
        && let Some(_inside) = inside::enter()
    {
        softfault::follow_credentials();
    }
    answer
}

/// The same of one that changes those of the calling thread. If that is not the first, it is a thread with rights of its own.
pub(super) fn of_one(answer: c_int) -> c_int {
    // SAFETY: only asks.
    let is_first = || unsafe { softfault::system_call!(libc::SYS_gettid) == libc::getpid().into() };
    match answer == 0 && is_first() {
        true => of_all(answer),
        false => answer,
    }
}

/// True of a system call that changes the rights of the calling thread.
pub(super) fn is_change(number: c_long) -> bool {
    matches!(
        number,
        libc::SYS_setuid
            | libc::SYS_setgid
            | libc::SYS_setreuid
            | libc::SYS_setregid
            | libc::SYS_setresuid
            | libc::SYS_setresgid
            | libc::SYS_setgroups
            | libc::SYS_capset
    )
}

hooks! {
    /// setuid(2).
    fn setuid(user: uid_t) -> c_int = |next| of_all(next(user));
    /// seteuid(3).
    fn seteuid(user: uid_t) -> c_int = |next| of_all(next(user));
    /// setreuid(2).
    fn setreuid(real: uid_t, effective: uid_t) -> c_int = |next| of_all(next(real, effective));
    /// setresuid(2).
    fn setresuid(real: uid_t, effective: uid_t, saved: uid_t) -> c_int = |next| of_all(next(real, effective, saved));
    /// setgid(2).
    fn setgid(group: gid_t) -> c_int = |next| of_all(next(group));
    /// setegid(3).
    fn setegid(group: gid_t) -> c_int = |next| of_all(next(group));
    /// setregid(2).
    fn setregid(real: gid_t, effective: gid_t) -> c_int = |next| of_all(next(real, effective));
    /// setresgid(2).
    fn setresgid(real: gid_t, effective: gid_t, saved: gid_t) -> c_int = |next| of_all(next(real, effective, saved));
    /// setgroups(2).
    fn setgroups(count: size_t, groups: *const gid_t) -> c_int = |next| {
        let reads = [Reads::Bytes(groups.cast(), count.saturating_mul(size_of::<gid_t>()))];
        of_all(again(&reads, || next(count, groups)))
    };
    /// initgroups(3).
    fn initgroups(user: *const c_char, group: gid_t) -> c_int = |next| of_all(next(user, group));
    /// capset(2).
    fn capset(head: *mut c_void, with: *const c_void) -> c_int = |next| {
        let reads = [Reads::Bytes(head, HEAD), Reads::Bytes(with, DATA)];
        of_one(again(&reads, || next(head, with)))
    };
}
