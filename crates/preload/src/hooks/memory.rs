//! Calls that hand memory to the kernel, where faults are signals: the kernel raises none for its own accesses, and
//! answers EFAULT, or a count that is too short.
//!
//! What was taken may only be read, so it is never where a call puts something: nothing is consumed when such a call
//! fails. The memory is touched then, in the program's thread, and the call is made again. Where the budget is so short
//! that it is gone again each time, the bytes are copied.

use super::next::hooks;
use crate::call::{errno, set_errno};
use crate::{marked, mode};
use core::ops::Range;
use libc::{
    FILE, c_char, c_int, c_uint, c_void, iovec, mmsghdr, msghdr, off_t, size_t, sockaddr,
    socklen_t, ssize_t,
};

const PAGE: usize = crate::decide::PAGE;
/// Times that a call is made again, before its bytes are copied.
const AGAIN: usize = 8;
/// Bytes that are copied at a time.
const COPIED: usize = 64 << 10;

/// True if a call has failed for memory that may have to be brought in.
pub fn may_be_missing(memory: &[Range<usize>]) -> bool {
    mode::is_signals()
        && errno() == libc::EFAULT
        && memory
            .iter()
            .any(|range| marked::may_be_taken(range.start, range.len()))
}

/// Touches all pages of what may have been taken.
pub fn touch(memory: &[Range<usize>]) {
    for range in memory {
        let mut page = range.start;
        while page < range.end {
            if marked::may_be_taken(page, 1) {
                // SAFETY: the program hands it to the kernel to be read. Where it is not there, this faults where the
                // call would have answered EFAULT, as long as nothing was taken there.
                unsafe { (page as *const u8).read_volatile() };
            }
            page = (page & !(PAGE - 1)) + PAGE;
        }
    }
}

fn range(start: *const c_void, bytes: usize) -> Range<usize> {
    start as usize..(start as usize).saturating_add(bytes)
}

/// What vectors name.
///
/// # Safety
/// So many vectors are there.
unsafe fn ranges(vectors: *const iovec, count: usize) -> Vec<Range<usize>> {
    // SAFETY: the caller's promise.
    let vectors = (0..count).map(|at| unsafe { vectors.add(at).read() });
    vectors
        .map(|vector| range(vector.iov_base, vector.iov_len))
        .collect()
}

/// A call that reads one range: made until it is done. `call` gets how many bytes are done, and where the rest is.
fn with_bytes(
    start: *const c_void,
    bytes: usize,
    is_stream: bool,
    mut call: impl FnMut(usize, *const c_void, usize) -> ssize_t,
) -> ssize_t {
    let mut done = 0;
    let mut tries = 0;
    loop {
        let rest = range(start.wrapping_byte_add(done), bytes - done);
        let answer = match tries < AGAIN {
            true => call(done, rest.start as *const c_void, rest.len()),
            false => with_copy(&rest, is_stream, |copy, bytes| call(done, copy, bytes)),
        };
        if answer < 0 && may_be_missing(core::slice::from_ref(&rest)) {
            tries += 1;
            touch(core::slice::from_ref(
                &(rest.start..rest.end.min(rest.start + COPIED)),
            ));
            continue;
        }
        if answer < 0 {
            return if done > 0 { done as ssize_t } else { answer };
        }
        done += answer as usize;
        // It is short because a page was missing behind, or for a reason of the file's, which is told again.
        let is_short = is_stream && answer > 0 && done < bytes;
        if !is_short || !mode::is_signals() || !marked::may_be_taken(start as usize + done, 1) {
            return done as ssize_t;
        }
        if tries == AGAIN {
            continue;
        }
        tries = 0;
    }
}

/// A call on a copy of some bytes: of all, or of the first of a stream.
fn with_copy(
    bytes: &Range<usize>,
    is_stream: bool,
    call: impl FnOnce(*const c_void, usize) -> ssize_t,
) -> ssize_t {
    let most = if is_stream { COPIED } else { usize::MAX };
    let len = bytes.len().min(most);
    // SAFETY: the program hands them to the kernel to be read.
    let copy = unsafe { core::slice::from_raw_parts(bytes.start as *const u8, len) }.to_vec();
    call(copy.as_ptr().cast(), copy.len())
}

/// A call that reads what vectors name: made again as long as something is missing.
fn with_ranges<T: Copy + PartialEq + From<i8>>(
    ranges: impl Fn() -> Vec<Range<usize>>,
    mut call: impl FnMut() -> T,
) -> T {
    let mut answer = call();
    let mut tries = 0;
    while answer == T::from(-1) && mode::is_signals() && errno() == libc::EFAULT && tries < 64 {
        let memory = ranges();
        if !may_be_missing(&memory) {
            set_errno(libc::EFAULT);
            break;
        }
        touch(&memory);
        tries += 1;
        answer = call();
    }
    answer
}

/// What a message has.
///
/// # Safety
/// It is there, with all that it names.
unsafe fn message_ranges(message: *const msghdr) -> Vec<Range<usize>> {
    // SAFETY: the caller's promise.
    unsafe {
        let message = &*message;
        let mut all = ranges(message.msg_iov, message.msg_iovlen);
        all.push(range(message.msg_name, message.msg_namelen as usize));
        all.push(range(message.msg_control, message.msg_controllen));
        all
    }
}

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
        with_bytes(from, bytes, false, |_, from, bytes| next(fd, from, bytes, flags, to, len))
    };

    /// writev(2).
    fn writev(fd: c_int, vectors: *const iovec, count: c_int) -> ssize_t = |next| {
        with_ranges(|| ranges(vectors, count.max(0) as usize), || next(fd, vectors, count))
    };

    /// pwritev(2).
    fn pwritev(fd: c_int, vectors: *const iovec, count: c_int, at: off_t) -> ssize_t = |next| {
        with_ranges(|| ranges(vectors, count.max(0) as usize), || next(fd, vectors, count, at))
    };

    /// pwritev(2), by its other name.
    fn pwritev64(fd: c_int, vectors: *const iovec, count: c_int, at: off_t) -> ssize_t = |next| {
        with_ranges(|| ranges(vectors, count.max(0) as usize), || next(fd, vectors, count, at))
    };

    /// pwritev2(2).
    fn pwritev2(fd: c_int, vectors: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t = |next| {
        with_ranges(|| ranges(vectors, count.max(0) as usize), || next(fd, vectors, count, at, flags))
    };

    /// pwritev2(2), by its other name.
    fn pwritev64v2(fd: c_int, vectors: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t = |next| {
        with_ranges(|| ranges(vectors, count.max(0) as usize), || next(fd, vectors, count, at, flags))
    };

    /// vmsplice(2).
    fn vmsplice(fd: c_int, vectors: *const iovec, count: size_t, flags: c_uint) -> ssize_t = |next| {
        with_ranges(|| ranges(vectors, count), || next(fd, vectors, count, flags))
    };

    /// sendmsg(2).
    fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t = |next| {
        with_ranges(|| message_ranges(message), || next(fd, message, flags))
    };

    /// sendmmsg(2).
    fn sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int = |next| {
        let ranges = || (0..count as usize).flat_map(|at| message_ranges(&raw const (*messages.add(at)).msg_hdr)).collect();
        with_ranges(ranges, || next(fd, messages, count, flags))
    };

    /// fwrite(3): the C library hands large parts to the kernel without a hook in between.
    fn fwrite(from: *const c_void, size: size_t, count: size_t, to: *mut FILE) -> size_t = |next| {
        in_copies(from, size, count, |from, count| next(from, size, count, to))
    };

    /// fwrite(3), without a lock.
    fn fwrite_unlocked(from: *const c_void, size: size_t, count: size_t, to: *mut FILE) -> size_t = |next| {
        in_copies(from, size, count, |from, count| next(from, size, count, to))
    };

    /// fputs(3).
    fn fputs(text: *const c_char, to: *mut FILE) -> c_int = |next| {
        if mode::is_signals() && marked::may_be_taken(text as usize, 1) {
            let copy = core::ffi::CStr::from_ptr(text).to_owned();
            return next(copy.as_ptr(), to);
        }
        next(text, to)
    };
}

/// Items that are written from copies, where they may have been taken.
fn in_copies(
    from: *const c_void,
    size: usize,
    count: usize,
    mut write: impl FnMut(*const c_void, usize) -> usize,
) -> usize {
    let bytes = size.saturating_mul(count);
    if !mode::is_signals() || bytes == 0 || !marked::may_be_taken(from as usize, bytes) {
        return write(from, count);
    }
    let most = (COPIED / size).max(1);
    let mut done = 0;
    while done < count {
        let items = most.min(count - done);
        let start = from.wrapping_byte_add(done * size).cast::<u8>();
        // SAFETY: the program hands them to the C library to be read.
        let copy = unsafe { core::slice::from_raw_parts(start, items * size) }.to_vec();
        let written = write(copy.as_ptr().cast(), items);
        done += written;
        if written < items {
            break;
        }
    }
    done
}
