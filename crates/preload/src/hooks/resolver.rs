//! res_query(3) and its like, where faults are signals: the C library hands the program's buffers to the kernel without a hook in
//! between. The answer of the server comes by way of other memory.

use super::again::with_bytes_copied;
use super::bounce::BounceBuffer;
use super::next::hooks;
use core::ffi::{c_char, c_int, c_uchar, c_void};

/// A call that receives an answer of some length.
///
/// # Safety
/// The program lets so many bytes be written to.
unsafe fn answered(
    to: *mut c_uchar,
    bytes: c_int,
    call: impl FnOnce(*mut c_uchar) -> c_int,
) -> c_int {
    // All of it is the program's: it may look at an answer that is an error of the server's.
    let aside = BounceBuffer::of(to.cast(), bytes.max(0) as usize, true);
    if aside.is_refused() {
        return -1;
    }
    let answer = call(aside.place().cast());
    aside.end_all();
    answer
}

/// A call that sends a message, and receives an answer.
///
/// # Safety
/// As of res_send(3).
unsafe fn sent(
    (message, bytes): (*const c_uchar, c_int),
    (to, most): (*mut c_uchar, c_int),
    call: impl FnOnce(*const c_uchar, *mut c_uchar) -> c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        with_bytes_copied(message.cast(), bytes.max(0) as usize, |message| {
            answered(to, most, |to| call(message.cast(), to))
        })
    }
}

/// Where the C library has the settings of a thread, which it looks at in that thread.
type State = *mut c_void;
type Text = *const c_char;
type Message = *const c_uchar;
type Place = *mut c_uchar;

hooks! {
    /// res_query(3).
    fn res_query(name: Text, class: c_int, kind: c_int, to: Place, most: c_int) -> c_int = |next| answered(to, most, |to| next(name, class, kind, to, most));

    /// res_search(3).
    fn res_search(name: Text, class: c_int, kind: c_int, to: Place, most: c_int) -> c_int = |next| answered(to, most, |to| next(name, class, kind, to, most));

    /// res_querydomain(3).
    fn res_querydomain(name: Text, domain: Text, class: c_int, kind: c_int, to: Place, most: c_int) -> c_int = |next| answered(to, most, |to| next(name, domain, class, kind, to, most));

    /// res_send(3).
    fn res_send(message: Message, bytes: c_int, to: Place, most: c_int) -> c_int = |next| {
        sent((message, bytes), (to, most), |message, to| next(message, bytes, to, most))
    };

    /// res_query(3), as programs for glibc before 2.34 call it: nobody can look that name up.
    fn __res_query(name: Text, class: c_int, kind: c_int, to: Place, most: c_int) -> c_int = |_next| res_query(name, class, kind, to, most);

    /// res_search(3), as programs for glibc before 2.34 call it.
    fn __res_search(name: Text, class: c_int, kind: c_int, to: Place, most: c_int) -> c_int = |_next| res_search(name, class, kind, to, most);

    /// res_querydomain(3), as programs for glibc before 2.34 call it.
    fn __res_querydomain(name: Text, domain: Text, class: c_int, kind: c_int, to: Place, most: c_int) -> c_int = |_next| res_querydomain(name, domain, class, kind, to, most);

    /// res_send(3), as programs for glibc before 2.34 call it.
    fn __res_send(message: Message, bytes: c_int, to: Place, most: c_int) -> c_int = |_next| res_send(message, bytes, to, most);

    /// res_nquery(3).
    fn res_nquery(state: State, name: Text, class: c_int, kind: c_int, to: Place, most: c_int) -> c_int = |next| answered(to, most, |to| next(state, name, class, kind, to, most));

    /// res_nsearch(3).
    fn res_nsearch(state: State, name: Text, class: c_int, kind: c_int, to: Place, most: c_int) -> c_int = |next| answered(to, most, |to| next(state, name, class, kind, to, most));

    /// res_nquerydomain(3).
    fn res_nquerydomain(state: State, name: Text, domain: Text, class: c_int, kind: c_int, to: Place, most: c_int) -> c_int = |next| answered(to, most, |to| next(state, name, domain, class, kind, to, most));

    /// res_nsend(3).
    fn res_nsend(state: State, message: Message, bytes: c_int, to: Place, most: c_int) -> c_int = |next| {
        sent((message, bytes), (to, most), |message, to| next(state, message, bytes, to, most))
    };

    /// res_nquery(3), as programs for glibc before 2.34 call it.
    fn __res_nquery(state: State, name: Text, class: c_int, kind: c_int, to: Place, most: c_int) -> c_int = |_next| res_nquery(state, name, class, kind, to, most);

    /// res_nsearch(3), as programs for glibc before 2.34 call it.
    fn __res_nsearch(state: State, name: Text, class: c_int, kind: c_int, to: Place, most: c_int) -> c_int = |_next| res_nsearch(state, name, class, kind, to, most);

    /// res_nquerydomain(3), as programs for glibc before 2.34 call it.
    fn __res_nquerydomain(state: State, name: Text, domain: Text, class: c_int, kind: c_int, to: Place, most: c_int) -> c_int = |_next| res_nquerydomain(state, name, domain, class, kind, to, most);

    /// res_nsend(3), as programs for glibc before 2.34 call it.
    fn __res_nsend(state: State, message: Message, bytes: c_int, to: Place, most: c_int) -> c_int = |_next| res_nsend(state, message, bytes, to, most);
}
