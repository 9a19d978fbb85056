//! Calls that hand a path to the kernel, where faults are signals: a path may be in a file that was taken.

use super::memory::may_be_missing;
use super::next::hooks;
use libc::{c_char, c_int, c_uint, mode_t, size_t, ssize_t, stat as Stat, statx as Statx};

/// A call with a path in it: made once more with a copy, where the path may be missing.
fn with_path<T: Copy + PartialEq + From<i8>>(
    path: *const c_char,
    mut call: impl FnMut(*const c_char) -> T,
) -> T {
    let answer = call(path);
    let start = path as usize;
    if answer != T::from(-1) || !may_be_missing(core::slice::from_ref(&(start..start + 1))) {
        return answer;
    }
    // SAFETY: the program hands it to the kernel to be read.
    let copy = unsafe { core::ffi::CStr::from_ptr(path) }.to_owned();
    call(copy.as_ptr())
}

hooks! {
    /// open(2). In C it has the last argument only where a file may be made: otherwise it is not looked at.
    fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int = |next| {
        with_path(path, |path| next(path, flags, mode))
    };

    /// open(2), by its other name.
    fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int = |next| {
        with_path(path, |path| next(path, flags, mode))
    };

    /// openat(2).
    fn openat(at: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int = |next| {
        with_path(path, |path| next(at, path, flags, mode))
    };

    /// openat(2), by its other name.
    fn openat64(at: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int = |next| {
        with_path(path, |path| next(at, path, flags, mode))
    };

    /// access(2).
    fn access(path: *const c_char, how: c_int) -> c_int = |next| {
        with_path(path, |path| next(path, how))
    };

    /// readlink(2).
    fn readlink(path: *const c_char, to: *mut c_char, bytes: size_t) -> ssize_t = |next| {
        with_path(path, |path| next(path, to, bytes))
    };

    /// unlink(2).
    fn unlink(path: *const c_char) -> c_int = |next| {
        with_path(path, |path| next(path))
    };

    /// statx(2).
    fn statx(at: c_int, path: *const c_char, flags: c_int, mask: c_uint, to: *mut Statx) -> c_int = |next| {
        with_path(path, |path| next(at, path, flags, mask, to))
    };

    /// fstatat(2).
    fn fstatat(at: c_int, path: *const c_char, to: *mut Stat, flags: c_int) -> c_int = |next| {
        with_path(path, |path| next(at, path, to, flags))
    };
}
