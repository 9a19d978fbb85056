//! Calls that hand bytes to the kernel, where faults are signals (`again.rs`).

use super::again::{COPIED, Reads, again, with_bytes, with_copy, with_text, with_vectors};
use super::next::hooks;
use crate::{marked, mode};
use libc::{
    FILE, c_char, c_int, c_uint, c_void, iovec, mmsghdr, msghdr, off_t, size_t, sockaddr,
    socklen_t, ssize_t,
};

hooks! {
    /// write(2).
    fn write(fd: c_int, from: *const c_void, bytes: size_t) -> ssize_t = |next| {
        with_bytes(from, bytes, true, |_, from, bytes| next(fd, from, bytes))
    };

    /// pwrite(2).
    fn pwrite(fd: c_int, from: *const c_void, bytes: size_t, at: off_t) -> ssize_t = |next| {
        with_bytes(from, bytes, true, |done, from, bytes| next(fd, from, bytes, at + done as off_t))
    };

    /// pwrite(2), by its other name.
    fn pwrite64(fd: c_int, from: *const c_void, bytes: size_t, at: off_t) -> ssize_t = |next| {
        with_bytes(from, bytes, true, |done, from, bytes| next(fd, from, bytes, at + done as off_t))
    };

    /// send(2).
    fn send(fd: c_int, from: *const c_void, bytes: size_t, flags: c_int) -> ssize_t = |next| {
        with_bytes(from, bytes, false, |_, from, bytes| next(fd, from, bytes, flags))
    };

    /// sendto(2).
    fn sendto(fd: c_int, from: *const c_void, bytes: size_t, flags: c_int, to: *const sockaddr, len: socklen_t) -> ssize_t = |next| {
        with_bytes(from, bytes, false, |_, from, bytes| {
            again(&[Reads::Bytes(to.cast(), len as usize)], || next(fd, from, bytes, flags, to, len))
        })
    };

    /// writev(2).
    fn writev(fd: c_int, vectors: *const iovec, count: c_int) -> ssize_t = |next| {
        with_vectors(vectors, count.max(0) as usize, || next(fd, vectors, count), |_, vectors, count| next(fd, vectors, count))
    };

    /// pwritev(2).
    fn pwritev(fd: c_int, vectors: *const iovec, count: c_int, at: off_t) -> ssize_t = |next| {
        with_vectors(vectors, count.max(0) as usize, || next(fd, vectors, count, at), |done, vectors, count| next(fd, vectors, count, at + done as off_t))
    };

    /// pwritev(2), by its other name.
    fn pwritev64(fd: c_int, vectors: *const iovec, count: c_int, at: off_t) -> ssize_t = |next| {
        with_vectors(vectors, count.max(0) as usize, || next(fd, vectors, count, at), |done, vectors, count| next(fd, vectors, count, at + done as off_t))
    };

    /// pwritev2(2).
    fn pwritev2(fd: c_int, vectors: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t = |next| {
        with_vectors(vectors, count.max(0) as usize, || next(fd, vectors, count, at, flags), |done, vectors, count| next(fd, vectors, count, behind(at, done), flags))
    };

    /// pwritev2(2), by its other name.
    fn pwritev64v2(fd: c_int, vectors: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t = |next| {
        with_vectors(vectors, count.max(0) as usize, || next(fd, vectors, count, at, flags), |done, vectors, count| next(fd, vectors, count, behind(at, done), flags))
    };

    /// vmsplice(2).
    fn vmsplice(fd: c_int, vectors: *const iovec, count: size_t, flags: c_uint) -> ssize_t = |next| {
        with_vectors(vectors, count, || next(fd, vectors, count, flags), |_, vectors, count| next(fd, vectors, count as size_t, flags))
    };

    /// sendmsg(2).
    fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t = |next| {
        again(&[Reads::Message(message)], || next(fd, message, flags))
    };

    /// sendmmsg(2).
    fn sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int = |next| {
        again(&[Reads::Messages(messages, count as usize)], || next(fd, messages, count, flags))
    };

    /// fwrite(3): the C library hands large parts to the kernel without a hook in between.
    fn fwrite(from: *const c_void, size: size_t, count: size_t, to: *mut FILE) -> size_t = |next| {
        in_copies(from, (size, count), || next(from, size, count, to), |copy, bytes| next(copy, 1, bytes, to))
    };

    /// fwrite(3), without a lock.
    fn fwrite_unlocked(from: *const c_void, size: size_t, count: size_t, to: *mut FILE) -> size_t = |next| {
        in_copies(from, (size, count), || next(from, size, count, to), |copy, bytes| next(copy, 1, bytes, to))
    };

    /// fputs(3).
    fn fputs(text: *const c_char, to: *mut FILE) -> c_int = |next| {
        with_text(text, |text| next(text, to))
    };

    /// fputs(3), without a lock.
    fn fputs_unlocked(text: *const c_char, to: *mut FILE) -> c_int = |next| {
        with_text(text, |text| next(text, to))
    };

    /// puts(3).
    fn puts(text: *const c_char) -> c_int = |next| {
        with_text(text, |text| next(text))
    };
}

/// -1: where the file is.
fn behind(at: off_t, done: usize) -> off_t {
    if at == -1 { -1 } else { at + done as off_t }
}

/// Items that are written from copies, where they may have been taken; how many are whole.
fn in_copies(
    from: *const c_void,
    (size, count): (usize, usize),
    write: impl FnOnce() -> usize,
    mut write_bytes: impl FnMut(*const c_void, usize) -> usize,
) -> usize {
    let bytes = size.saturating_mul(count);
    if !mode::is_signals() || bytes == 0 || !marked::may_be_taken(from as usize, bytes) {
        return write();
    }
    let mut done = 0;
    while done < bytes {
        let some = COPIED.min(bytes - done);
        let start = from.wrapping_byte_add(done);
        let written = with_copy(start, some, |copy| write_bytes(copy, some) as ssize_t);
        done += written as usize;
        if (written as usize) < some {
            break;
        }
    }
    done / size
}
