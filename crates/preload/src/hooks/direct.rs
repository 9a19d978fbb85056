//! Reads past the page cache (O_DIRECT) into private memory that was taken: a device writes to the page that was there
//! when the call began, and the page may be evicted meanwhile. So it writes to memory of the kernel's, which is copied.

use super::bounce::Temporary;
use super::next::hooks;
use super::position::ClaimedBytes;
use super::put::put;
use super::readable::is_readable;
use super::reading::{STEP as PIECE, is_file, is_one_call, read_into};
use super::receive::{MOST, ended, is_taken, some_of, vectors_into};
use crate::{call, inside, marked, mode};
use libc::{c_int, c_void, iovec, off_t, size_t, ssize_t};

/// Bytes that are read and copied at a time.
const STEP: usize = 256 << 10;

/// True if a call that reads into some memory has to be made piece by piece.
fn is_direct(fd: c_int, to: *const c_void, bytes: usize) -> bool {
    // Where faults are signals, it is other memory that is read into.
    if !marked::may_be_taken(to as usize, bytes) || mode::is_signals() || inside::is_inside() {
        return false;
    }
    let errno = call::errno();
    // SAFETY: only asks.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    call::set_errno(errno);
    // Of a pipe it says that a read takes one packet, and leaves nothing of it.
    flags >= 0 && flags & libc::O_DIRECT != 0 && is_file(fd)
}

/// Reads into `bytes` bytes by `read`, which gets where to read, how much, and how much was read before.
///
/// # Safety
/// The program lets the bytes be written to.
unsafe fn by_copies(
    to: *mut c_void,
    bytes: usize,
    mut read: impl FnMut(*mut c_void, usize, usize) -> ssize_t,
) -> ssize_t {
    // Pages: aligned as any device wants it.
    let Some(aside) = Temporary::new(STEP) else {
        call::set_errno(libc::ENOMEM);
        return -1;
    };
    let mut done = 0;
    while done < bytes {
        let want = STEP.min(bytes - done);
        let got = read(aside.start(), want, done);
        if got < 0 {
            return if done > 0 { done as ssize_t } else { got };
        }
        // SAFETY: so much was read; the caller's promise.
        let has = unsafe { put(to.byte_add(done), aside.start(), got as usize) };
        done += has;
        if done == 0 && got > 0 {
            return some_of(0);
        }
        if has < want {
            break;
        }
    }
    done as ssize_t
}

/// The same of vectors, one after the other.
///
/// # Safety
/// So many vectors are there, and the program lets their buffers be written to.
unsafe fn vectors_by_copies(
    vectors: *const iovec,
    count: c_int,
    mut read: impl FnMut(*mut c_void, usize, usize) -> ssize_t,
) -> ssize_t {
    let mut done = 0;
    for at in 0..count.max(0) as usize {
        // SAFETY: the caller's promise.
        let vector = unsafe { vectors.add(at).read() };
        let read = |to: *mut c_void, bytes: usize, before: usize| read(to, bytes, done + before);
        // SAFETY: the caller's promise.
        let got = unsafe { by_copies(vector.iov_base, vector.iov_len, read) };
        if got < 0 {
            return if done > 0 { done as ssize_t } else { got };
        }
        done += got as usize;
        if (got as usize) < vector.iov_len {
            break;
        }
    }
    done as ssize_t
}

/// True if a call that reads into the buffers of vectors has to be made piece by piece.
///
/// # Safety
/// The program hands so many to the kernel.
unsafe fn are_direct(fd: c_int, vectors: *const iovec, count: c_int) -> bool {
    let count = count.max(0) as usize;
    if !marked::is_any() || count > MOST || !is_readable(vectors.cast(), count * size_of::<iovec>())
    {
        return false;
    }
    let is_direct = |at: usize| {
        // SAFETY: the caller's promise.
        let vector = unsafe { vectors.add(at).read() };
        is_direct(fd, vector.iov_base, vector.iov_len)
    };
    (0..count).any(is_direct)
}

/// A call that reads into memory: `read` gets where to, how many bytes, and how many were read before.
///
/// # Safety
/// As of pread(2).
#[inline]
pub unsafe fn bytes_by(
    fd: c_int,
    (to, bytes): (*mut c_void, usize),
    read: impl FnMut(*mut c_void, usize, usize) -> ssize_t,
) -> ssize_t {
    match is_direct(fd, to, bytes) {
        // SAFETY: the caller's promise.
        true => unsafe { by_copies(to, bytes, read) },
        false => read_into(fd, to, bytes, read),
    }
}

/// A call that reads into the buffers of vectors: `read` gets vectors, and how many bytes were read before.
///
/// # Safety
/// As of preadv(2).
#[inline]
pub unsafe fn vectors_by(
    fd: c_int,
    (vectors, count): (*const iovec, c_int),
    mut read: impl FnMut(*const iovec, c_int, usize) -> ssize_t,
) -> ssize_t {
    // SAFETY: the caller's promise.
    unsafe {
        let is_direct = are_direct(fd, vectors, count);
        if is_direct || are_several(fd, vectors, count) {
            let read = |to: *mut c_void, bytes, done| {
                let one = iovec {
                    iov_base: to,
                    iov_len: bytes,
                };
                read(&one, 1, done)
            };
            return match is_direct {
                true => vectors_by_copies(vectors, count, read),
                false => vectors_in_pieces(fd, (vectors, count), read),
            };
        }
        match usize::try_from(count) {
            Ok(some) => vectors_into(vectors, some, |vectors, count| {
                read(vectors, count as c_int, 0)
            }),
            // The kernel has an error for it.
            Err(_) => read(vectors, count, 0),
        }
    }
}

/// True if a file is read into the buffers of vectors piece by piece, where faults are signals: more than is read into other memory at
/// a time, or where some may not be written to: the file's position would be behind bytes that have no place.
///
/// # Safety
/// As of [`are_direct`].
unsafe fn are_several(fd: c_int, vectors: *const iovec, count: c_int) -> bool {
    let count = count.max(0) as usize;
    if !mode::is_signals() || !marked::is_any() || count > MOST {
        return false;
    }
    if !is_readable(vectors.cast(), count * size_of::<iovec>()) {
        return false;
    }
    // SAFETY: the caller's promise; they are there.
    let each = || (0..count).map(|at| unsafe { vectors.add(at).read() });
    // SAFETY: the same.
    let bytes = unsafe { bytes_of(vectors, count as c_int) };
    bytes.is_some_and(|bytes| {
        each().any(|each| is_taken(each.iov_base, each.iov_len))
            && is_file(fd)
            && (bytes > PIECE || !each().all(|each| is_one_call(each.iov_base, each.iov_len)))
    })
}

/// Reads into the buffers of vectors, one after the other, as far as there are bytes.
///
/// # Safety
/// As of [`vectors_by_copies`].
unsafe fn vectors_in_pieces(
    fd: c_int,
    (vectors, count): (*const iovec, c_int),
    mut read: impl FnMut(*mut c_void, usize, usize) -> ssize_t,
) -> ssize_t {
    let mut done = 0;
    for at in 0..count.max(0) as usize {
        // SAFETY: the caller's promise.
        let iovec { iov_base, iov_len } = unsafe { vectors.add(at).read() };
        let got = read_into(fd, iov_base, iov_len, |to, bytes, before| {
            read(to, bytes, done + before)
        });
        if let Some(answer) = ended(&mut done, got, iov_len) {
            return answer;
        }
    }
    done as ssize_t
}

/// The same of readv(2), which reads where the file's position is.
///
/// # Safety
/// As of readv(2).
pub unsafe fn vectors_at_position(
    fd: c_int,
    (vectors, count): (*const iovec, c_int),
    mut read: impl FnMut(*const iovec, c_int) -> ssize_t,
) -> ssize_t {
    // SAFETY: the caller's promise; they are there where they are read in pieces.
    unsafe {
        let is_direct = are_direct(fd, vectors, count);
        if (is_direct || are_several(fd, vectors, count))
            && let Some(bytes) = bytes_of(vectors, count)
            && let Some(claimed) = ClaimedBytes::claim(fd, bytes)
        {
            let read = |to, bytes, done| claimed.read(to, bytes, done);
            let answer = match is_direct {
                true => vectors_by_copies(vectors, count, read),
                false => vectors_in_pieces(fd, (vectors, count), read),
            };
            claimed.end(answer);
            return answer;
        }
        vectors_by(fd, (vectors, count), |vectors, count, _| {
            read(vectors, count)
        })
    }
}

/// The bytes of vectors that are there; `None` if the kernel has an error for so many.
///
/// # Safety
/// They are there.
unsafe fn bytes_of(vectors: *const iovec, count: c_int) -> Option<usize> {
    // SAFETY: the caller's promise.
    let mut each = (0..count.max(0) as usize).map(|at| unsafe { vectors.add(at).read().iov_len });
    let bytes = each.try_fold(0_usize, usize::checked_add)?;
    (bytes <= isize::MAX as usize).then_some(bytes)
}

/// The same of a call that reads where the file's position is: `read` gets where to, and how many bytes.
///
/// # Safety
/// As of read(2).
#[inline]
pub unsafe fn bytes_at_position(
    fd: c_int,
    (to, bytes): (*mut c_void, usize),
    mut read: impl FnMut(*mut c_void, usize) -> ssize_t,
) -> ssize_t {
    let is_several = match mode::is_signals() {
        true => is_taken(to, bytes) && !is_one_call(to, bytes),
        false => bytes > STEP && is_direct(fd, to, bytes),
    };
    // SAFETY: the caller's promise.
    unsafe {
        match is_several.then(|| ClaimedBytes::claim(fd, bytes)).flatten() {
            Some(claimed) => {
                let read = |to, bytes, done| claimed.read(to, bytes, done);
                let answer = bytes_by(fd, (to, bytes), read);
                claimed.end(answer);
                answer
            }
            None => bytes_by(fd, (to, bytes), |to, bytes, _| read(to, bytes)),
        }
    }
}

/// pread(2), past the hook.
///
/// # Safety
/// As of pread(2).
pub unsafe fn next_pread(fd: c_int, to: *mut c_void, bytes: usize, at: off_t) -> ssize_t {
    // SAFETY: the caller's promise.
    unsafe { nexts::pread.get()(fd, to, bytes, at) }
}

hooks! {
    /// read(2).
    fn read(fd: c_int, to: *mut c_void, bytes: size_t) -> ssize_t = |next| {
        bytes_at_position(fd, (to, bytes), |to, bytes| next(fd, to, bytes))
    };

    /// pread(2).
    fn pread(fd: c_int, to: *mut c_void, bytes: size_t, at: off_t) -> ssize_t = |next| {
        bytes_by(fd, (to, bytes), |to, bytes, done| next(fd, to, bytes, at + done as off_t))
    };

    /// readv(2).
    fn readv(fd: c_int, vectors: *const iovec, count: c_int) -> ssize_t = |next| {
        vectors_at_position(fd, (vectors, count), |vectors, count| next(fd, vectors, count))
    };

    /// preadv(2).
    fn preadv(fd: c_int, vectors: *const iovec, count: c_int, at: off_t) -> ssize_t = |next| {
        vectors_by(fd, (vectors, count), |vectors, count, done| next(fd, vectors, count, at + done as off_t))
    };

    /// preadv2(2).
    fn preadv2(fd: c_int, vectors: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t = |next| {
        if at == -1 && flags == 0 {
            return vectors_at_position(fd, (vectors, count), |vectors, count| next(fd, vectors, count, at, flags));
        }
        vectors_by(fd, (vectors, count), |vectors, count, done| next(fd, vectors, count, behind(at, done), flags))
    };
}

/// Where a call of preadv2(2) or pwritev2(2) goes on. -1: where the file is, which moves with each.
pub fn behind(at: off_t, done: usize) -> off_t {
    if at == -1 {
        at
    } else {
        at.wrapping_add(done as off_t)
    }
}
