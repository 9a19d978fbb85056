//! Functions of the C library that a program compiled with `_FORTIFY_SOURCE` calls, where faults are signals: they check
//! bounds, and make the system call themselves.

use super::again::{Reads, again, again_by_error, reading};
use super::direct::{bytes_at_position, bytes_by};
use super::next::hooks;
use super::polled::polled;
use super::receive::{bytes_from, bytes_over, items_into, size, text_into};
use super::signals::without;
use core::ffi::c_void;
use core::mem::MaybeUninit;
use libc::{
    FILE, c_char, c_int, gid_t, nfds_t, off_t, pollfd, sigset_t, size_t, sockaddr, socklen_t,
    ssize_t, timespec,
};

hooks! {
    /// read(2).
    fn __read_chk(fd: c_int, to: *mut c_void, bytes: size_t, room: size_t) -> ssize_t = |next| {
        if bytes > room {
            // It ends the process.
            return next(fd, to, bytes, room);
        }
        bytes_at_position(fd, (to, bytes), |to, bytes| next(fd, to, bytes, room))
    };

    /// pread(2).
    fn __pread_chk(fd: c_int, to: *mut c_void, bytes: size_t, at: off_t, room: size_t) -> ssize_t = |next| {
        read_at(fd, (to, bytes, room), at, |to, bytes, at| next(fd, to, bytes, at, room))
    };

    /// pread(2).
    fn __pread64_chk(fd: c_int, to: *mut c_void, bytes: size_t, at: off_t, room: size_t) -> ssize_t = |next| {
        read_at(fd, (to, bytes, room), at, |to, bytes, at| next(fd, to, bytes, at, room))
    };

    /// recv(2).
    fn __recv_chk(fd: c_int, to: *mut c_void, bytes: size_t, room: size_t, flags: c_int) -> ssize_t = |next| {
        bytes_over(to, bytes, flags, |to| next(fd, to, bytes, room, flags))
    };

    /// recvfrom(2).
    fn __recvfrom_chk(fd: c_int, to: *mut c_void, bytes: size_t, room: size_t, flags: c_int, from: *mut sockaddr, len: *mut socklen_t) -> ssize_t = |next| {
        bytes_from((to, bytes), flags, (from, len), |to, from, len| next(fd, to, bytes, room, flags, from, len))
    };

    /// fread(3).
    fn __fread_chk(to: *mut c_void, room: size_t, each: size_t, count: size_t, from: *mut FILE) -> size_t = |next| {
        if each.checked_mul(count).is_none_or(|bytes| bytes > room) {
            return next(to, room, each, count, from);
        }
        items_into(to, (each, count), Some(from), || next(to, room, each, count, from), |to, bytes| next(to, room, 1, bytes, from))
    };

    /// fread(3), without a lock.
    fn __fread_unlocked_chk(to: *mut c_void, room: size_t, each: size_t, count: size_t, from: *mut FILE) -> size_t = |next| {
        if each.checked_mul(count).is_none_or(|bytes| bytes > room) {
            return next(to, room, each, count, from);
        }
        items_into(to, (each, count), None, || next(to, room, each, count, from), |to, bytes| next(to, room, 1, bytes, from))
    };

    /// getcwd(3).
    fn __getcwd_chk(to: *mut c_char, bytes: size_t, room: size_t) -> *mut c_char = |next| {
        text_into(to, bytes, |to| next(to, bytes, room))
    };

    /// getwd(3).
    fn __getwd_chk(to: *mut c_char, room: size_t) -> *mut c_char = |next| {
        text_into(to, libc::PATH_MAX as usize, |to| next(to, room))
    };

    /// ttyname_r(3), which answers an error.
    fn __ttyname_r_chk(fd: c_int, to: *mut c_char, bytes: size_t, room: size_t) -> c_int = |next| {
        again_by_error(&[Reads::Into(to.cast(), bytes)], || next(fd, to, bytes, room))
    };

    /// ppoll(2), which sets a mask.
    fn __ppoll_chk(all: *mut pollfd, count: nfds_t, until: *const timespec, set: *const sigset_t, room: size_t) -> c_int = |next| {
        let mut place = MaybeUninit::uninit();
        let set = without(set, &mut place);
        polled(all, count, |all| {
            again(&[Reads::Bytes(until.cast(), size(until))], || next(all, count, until, set, room))
        })
    };

    /// poll(2).
    fn __poll_chk(all: *mut pollfd, count: nfds_t, until: c_int, room: size_t) -> c_int = |next| {
        polled(all, count, |all| next(all, count, until, room))
    };
}

/// pread(2), which ends the process if there is no room for the bytes: a part of them might be within the bounds.
///
/// # Safety
/// As of pread(2).
unsafe fn read_at(
    fd: c_int,
    (to, bytes, room): (*mut c_void, size_t, size_t),
    at: off_t,
    mut read: impl FnMut(*mut c_void, size_t, off_t) -> ssize_t,
) -> ssize_t {
    if bytes > room {
        return read(to, bytes, at);
    }
    // SAFETY: the caller's promise.
    unsafe {
        bytes_by(fd, (to, bytes), |to, bytes, done| {
            read(to, bytes, at + done as off_t)
        })
    }
}

mod others {
    use super::*;

    reading! {
        /// open(2), of a file that is there.
        fn __open_2(path: *const c_char, flags: c_int) -> c_int => Text(path);
        /// open(2), by its other name.
        fn __open64_2(path: *const c_char, flags: c_int) -> c_int => Text(path);
        /// openat(2).
        fn __openat_2(at: c_int, path: *const c_char, flags: c_int) -> c_int => Text(path);
        /// openat(2), by its other name.
        fn __openat64_2(at: c_int, path: *const c_char, flags: c_int) -> c_int => Text(path);
        /// mq_open(3), of a queue that is there.
        fn __mq_open_2(name: *const c_char, flags: c_int) -> c_int => Text(name);
        /// readlink(2).
        fn __readlink_chk(path: *const c_char, to: *mut c_char, bytes: size_t, room: size_t) -> ssize_t => Text(path), Into(to.cast(), bytes);
        /// readlinkat(2).
        fn __readlinkat_chk(at: c_int, path: *const c_char, to: *mut c_char, bytes: size_t, room: size_t) -> ssize_t => Text(path), Into(to.cast(), bytes);
        /// getgroups(2).
        fn __getgroups_chk(most: c_int, to: *mut gid_t, room: size_t) -> c_int => Into(to.cast(), most.max(0) as usize * size_of::<gid_t>());
    }
}

/// Looks all of them up.
pub fn find_all() {
    find();
    others::find();
}
