//! Calls that give random bytes. A program may end where it gets none: without memory to receive all of them into, they come
//! piece by piece.

use super::bounce::BounceBuffer;
use super::next::hooks;
use super::receive::{bytes_if_memory, pieces_into, received, some_of};
use crate::call;
use core::ffi::c_void;
use libc::{c_int, c_uint, size_t, ssize_t};

/// Bytes that getentropy(3) gives at most.
const ENTROPY: usize = 256;

/// Random bytes by getrandom(2): `call` gets where to, and how many.
pub fn random_into(
    to: *mut c_void,
    bytes: usize,
    mut call: impl FnMut(*mut c_void, usize) -> ssize_t,
) -> ssize_t {
    let answer = bytes_if_memory(to, bytes, 0, |to| call(to, bytes));
    answer.unwrap_or_else(|| pieces_into(to, bytes, call))
}

hooks! {
    /// getrandom(2).
    fn getrandom(to: *mut c_void, bytes: size_t, flags: c_uint) -> ssize_t = |next| {
        random_into(to, bytes, |to, bytes| next(to, bytes, flags))
    };

    /// getentropy(3).
    fn getentropy(to: *mut c_void, bytes: size_t) -> c_int = |next| {
        let aside = BounceBuffer::of(to, bytes, false);
        if aside.is_missing() && bytes <= ENTROPY {
            let one = |to, bytes| if next(to, bytes) < 0 { -1 } else { bytes as ssize_t };
            return match received(pieces_into(to, bytes, one)) {
                all if all == bytes => 0,
                _ => -1,
            };
        }
        let answer = next(aside.place(), bytes);
        match aside.end(if answer < 0 { 0 } else { bytes }) {
            has if answer == 0 && has < bytes => some_of(0) as c_int,
            _ => answer,
        }
    };

    /// arc4random_buf(3): the C library ends the process where the memory is missing.
    fn arc4random_buf(to: *mut c_void, bytes: size_t) = |next| {
        let fill = |to, bytes| match nexts::arc4random_buf.is_missing() {
            // Before glibc 2.36 a program that looks for it finds this one.
            true => all_random_into(to, bytes),
            false => next(to, bytes),
        };
        let aside = BounceBuffer::of(to, bytes, false);
        if aside.is_missing() {
            pieces_into(to, bytes, |to, bytes| {
                fill(to, bytes);
                bytes as ssize_t
            });
            return;
        }
        fill(aside.place(), bytes);
        aside.end_all()
    };
}

/// Random bytes by getrandom(2), as arc4random_buf(3) has them: without them the process ends.
fn all_random_into(to: *mut c_void, bytes: size_t) {
    let mut done = 0;
    while done < bytes {
        // SAFETY: within the caller's bytes.
        let answer = unsafe {
            let to = to.byte_add(done);
            softfault::system_call!(libc::SYS_getrandom, to, bytes - done, 0)
        };
        match usize::try_from(answer) {
            Ok(got) => done += got,
            Err(_) if call::errno() == libc::EINTR => {}
            Err(_) => std::process::abort(),
        }
    }
}
