//! Calls that hand bytes to the kernel, where faults are signals (`again.rs`). A negative count of vectors comes to the kernel as it
//! is, which has an error for it.

use super::again::{COPIED, Reads, may_be_missing, with_copy, with_text};
use super::direct::behind;
use super::next::hooks;
use super::readable::is_readable;
use super::receive::vectors_into;
use super::stream_lock::LockedStream;
use super::writes::{Destination, with_bytes, with_message, with_two_vectors, with_vectors};
use crate::call::{errno, set_errno};
use crate::{marked, mode};
use libc::{
    FILE, c_char, c_int, c_uint, c_ulong, c_void, iovec, mmsghdr, msghdr, off_t, pid_t, size_t,
    sockaddr, socklen_t, ssize_t,
};

hooks! {
    /// write(2).
    fn write(fd: c_int, from: *const c_void, bytes: size_t) -> ssize_t = |next| {
        with_bytes(Destination::of(fd), (from, bytes), &[], |_, from, bytes| next(fd, from, bytes))
    };

    /// pwrite(2).
    fn pwrite(fd: c_int, from: *const c_void, bytes: size_t, at: off_t) -> ssize_t = |next| {
        with_bytes(Destination::of(fd), (from, bytes), &[], |done, from, bytes| next(fd, from, bytes, at + done as off_t))
    };

    /// pwrite(2), by its other name.
    fn pwrite64(fd: c_int, from: *const c_void, bytes: size_t, at: off_t) -> ssize_t = |next| {
        with_bytes(Destination::of(fd), (from, bytes), &[], |done, from, bytes| next(fd, from, bytes, at + done as off_t))
    };

    /// send(2).
    fn send(fd: c_int, from: *const c_void, bytes: size_t, flags: c_int) -> ssize_t = |next| {
        with_bytes(Destination { fd, flags }, (from, bytes), &[], |_, from, bytes| next(fd, from, bytes, flags))
    };

    /// sendto(2).
    fn sendto(fd: c_int, from: *const c_void, bytes: size_t, flags: c_int, to: *const sockaddr, len: socklen_t) -> ssize_t = |next| {
        let name = [Reads::Bytes(to.cast(), len as usize)];
        with_bytes(Destination { fd, flags }, (from, bytes), &name, |_, from, bytes| next(fd, from, bytes, flags, to, len))
    };

    /// process_vm_writev(2).
    fn process_vm_writev(process: pid_t, from: *const iovec, count: c_ulong, to: *const iovec, to_count: c_ulong, flags: c_ulong) -> ssize_t = |next| {
        with_two_vectors((from, count as usize), (to, to_count as usize), |from, count, to, to_count| {
            next(process, from, count as c_ulong, to, to_count as c_ulong, flags)
        })
    };

    /// writev(2).
    fn writev(fd: c_int, vectors: *const iovec, count: c_int) -> ssize_t = |next| {
        with_vectors(Destination::of(fd), (vectors, count as usize), &[], |_, vectors, count| next(fd, vectors, count as c_int))
    };

    /// pwritev(2).
    fn pwritev(fd: c_int, vectors: *const iovec, count: c_int, at: off_t) -> ssize_t = |next| {
        with_vectors(Destination::of(fd), (vectors, count as usize), &[], |done, vectors, count| next(fd, vectors, count as c_int, at + done as off_t))
    };

    /// pwritev(2), by its other name.
    fn pwritev64(fd: c_int, vectors: *const iovec, count: c_int, at: off_t) -> ssize_t = |next| {
        with_vectors(Destination::of(fd), (vectors, count as usize), &[], |done, vectors, count| next(fd, vectors, count as c_int, at + done as off_t))
    };

    /// pwritev2(2).
    fn pwritev2(fd: c_int, vectors: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t = |next| {
        with_vectors(Destination::of(fd), (vectors, count as usize), &[], |done, vectors, count| next(fd, vectors, count as c_int, behind(at, done), flags))
    };

    /// pwritev2(2), by its other name.
    fn pwritev64v2(fd: c_int, vectors: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t = |next| {
        with_vectors(Destination::of(fd), (vectors, count as usize), &[], |done, vectors, count| next(fd, vectors, count as c_int, behind(at, done), flags))
    };

    /// vmsplice(2).
    fn vmsplice(fd: c_int, vectors: *const iovec, count: size_t, flags: c_uint) -> ssize_t = |next| {
        spliced(fd, (vectors, count), |vectors, count| next(fd, vectors, count, flags))
    };

    /// sendmsg(2).
    fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t = |next| {
        with_message(Destination { fd, flags }, message, |message| next(fd, message, flags))
    };

    /// sendmmsg(2): where memory may be missing, one message after the other.
    fn sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int = |next| {
        if !mode::is_signals() || !marked::is_any() || !may_be_missing(&[Reads::Messages(messages, count as usize)]) {
            return next(fd, messages, count, flags);
        }
        send_each(fd, messages, count as usize, flags)
    };

    /// fwrite(3): the C library hands large parts to the kernel without a hook in between.
    fn fwrite(from: *const c_void, size: size_t, count: size_t, to: *mut FILE) -> size_t = |next| {
        in_copies(from, (size, count), Some(to), || next(from, size, count, to), |copy, bytes| next(copy, 1, bytes, to))
    };

    /// fwrite(3), without a lock.
    fn fwrite_unlocked(from: *const c_void, size: size_t, count: size_t, to: *mut FILE) -> size_t = |next| {
        in_copies(from, (size, count), None, || next(from, size, count, to), |copy, bytes| next(copy, 1, bytes, to))
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

/// vmsplice(2), which reads the buffers of vectors where the descriptor is a pipe's end to write to, and fills them where it is the
/// other: those bytes are gone from the pipe then.
///
/// # Safety
/// As of vmsplice(2).
#[inline]
pub unsafe fn spliced(
    fd: c_int,
    (vectors, count): (*const iovec, usize),
    mut call: impl FnMut(*const iovec, usize) -> ssize_t,
) -> ssize_t {
    if !mode::is_signals() || !marked::is_any() {
        return call(vectors, count);
    }
    if is_only_read(fd) {
        // SAFETY: the caller's promise.
        return unsafe { vectors_into(vectors, count, call) };
    }
    let to = Destination::of(fd);
    with_vectors(to, (vectors, count), &[], |_, vectors, count| {
        call(vectors, count)
    })
}

/// True if a descriptor is one that may not be written to.
#[cold]
fn is_only_read(fd: c_int) -> bool {
    let before = errno();
    // SAFETY: asks about a descriptor.
    let flags = unsafe { softfault::system_call!(libc::SYS_fcntl, fd, libc::F_GETFL) };
    set_errno(before);
    // Of no descriptor the answer is -1.
    flags as c_int & libc::O_ACCMODE == libc::O_RDONLY
}

/// As sendmmsg(2), which ends with a message of which some is left.
///
/// # Safety
/// As of sendmmsg(2).
unsafe fn send_each(fd: c_int, messages: *mut mmsghdr, count: usize, flags: c_int) -> c_int {
    let mut done = 0;
    // More than so many the kernel does not take.
    for at in 0..count.min(libc::UIO_MAXIOV as usize) {
        let message = messages.wrapping_add(at);
        // SAFETY: the caller's promise; what is not there is the kernel's to say.
        let (sent, bytes) = unsafe {
            let bytes = match is_readable(message.cast(), size_of::<mmsghdr>()) {
                true => bytes_of(&(*message).msg_hdr),
                false => 0,
            };
            let sent = sendmsg(fd, &raw const (*message).msg_hdr, flags);
            if sent >= 0 {
                (*message).msg_len = sent as c_uint;
            }
            (sent, bytes)
        };
        if sent < 0 {
            return if done > 0 { done } else { -1 };
        }
        done += 1;
        if (sent as usize) < bytes {
            break;
        }
    }
    done
}

/// Bytes of a message.
///
/// # Safety
/// The program hands it to the kernel.
unsafe fn bytes_of(about: &msghdr) -> usize {
    let (vectors, count) = (about.msg_iov, about.msg_iovlen);
    if !is_readable(vectors.cast(), count.saturating_mul(size_of::<iovec>())) {
        return 0;
    }
    // SAFETY: they are there.
    let each = (0..count).map(|at| unsafe { (*vectors.add(at)).iov_len });
    each.fold(0, usize::saturating_add)
}

/// Sends some vectors as far as that does not wait.
///
/// # Safety
/// So many vectors may be read; what is not there of their buffers is the kernel's to say.
pub unsafe fn send_at_once(to: Destination, vectors: *const iovec, count: usize) -> ssize_t {
    // SAFETY: a message of zeros is valid, and has neither a name nor control data; the caller's promise.
    unsafe {
        let mut message = core::mem::zeroed::<msghdr>();
        message.msg_iov = vectors.cast_mut();
        message.msg_iovlen = count;
        let flags = to.flags & !libc::MSG_FASTOPEN | libc::MSG_DONTWAIT;
        nexts::sendmsg.get()(to.fd, &message, flags)
    }
}

/// Items that are written from copies, where they may have been taken; how many are whole. `locks`: the stream, to which no other
/// thread writes in between.
///
/// # Safety
/// As of fwrite(3).
unsafe fn in_copies(
    from: *const c_void,
    (size, count): (usize, usize),
    locks: Option<*mut FILE>,
    write: impl FnOnce() -> usize,
    mut write_bytes: impl FnMut(*const c_void, usize) -> usize,
) -> usize {
    let bytes = size.saturating_mul(count);
    if !mode::is_signals() || bytes == 0 || !marked::may_be_taken(from as usize, bytes) {
        return write();
    }
    let _locked = LockedStream::of(locks);
    let mut done = 0;
    while done < bytes {
        let some = COPIED.min(bytes - done);
        let start = from.wrapping_byte_add(done);
        // SAFETY: the caller's promise.
        let written = unsafe { with_copy(start, some, |copy| write_bytes(copy, some) as ssize_t) };
        done += written as usize;
        if (written as usize) < some {
            break;
        }
    }
    done / size
}
