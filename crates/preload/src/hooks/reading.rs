//! read(2) and its like into private memory that was taken, where faults are signals: piece by piece.

use super::put::{first_piece, may_be_put};
use super::receive::{bytes_if_memory, ended, is_taken, pieces_into, received};
use crate::{call, change, decide};
use core::ffi::c_void;
use libc::{c_int, ssize_t};

/// Bytes that are read at a time where all of them come without waiting.
pub const STEP: usize = 1 << 20;

/// A read(2) or its like: `call` gets where to, how many bytes, and how many were read before. Of a file or a disk
/// all requested bytes are read, piece by piece; of anything else the bytes of one call.
#[inline]
pub fn read_into(
    fd: c_int,
    to: *mut c_void,
    bytes: usize,
    mut call: impl FnMut(*mut c_void, usize, usize) -> ssize_t,
) -> ssize_t {
    if !is_taken(to, bytes) {
        return call(to, bytes, 0);
    }
    let all = to as usize..(to as usize).saturating_add(bytes);
    if is_one_call(to, bytes) || !is_file(fd) {
        let answer = bytes_if_memory(to, bytes, 0, |to| call(to, bytes, 0));
        return match answer {
            Some(answer) => answer,
            None if is_file(fd) => by_pieces(to, bytes, call),
            None => change::refuse(libc::ENOMEM) as ssize_t,
        };
    }
    let mut done = 0;
    while done < bytes {
        // Memory that was handed back is the kernel's to write to, or to refuse.
        let (piece, is_live) = first_piece(all.start + done..all.end);
        let some = STEP.min(piece.len());
        let place = to.wrapping_byte_add(done);
        let got = match is_live {
            true => bytes_if_memory(place, some, 0, |to| call(to, some, done)),
            false => Some(call(place, some, done)),
        };
        let Some(got) = got else {
            let read = |to, some, more| call(to, some, done + more);
            return match by_pieces(place, bytes - done, read) {
                refused if done == 0 => refused,
                rest => (done + received(rest)) as ssize_t,
            };
        };
        if let Some(answer) = ended(&mut done, got, some) {
            return answer;
        }
    }
    done as ssize_t
}

/// The same of a file where there is no memory to read into.
#[cold]
fn by_pieces(
    to: *mut c_void,
    bytes: usize,
    mut call: impl FnMut(*mut c_void, usize, usize) -> ssize_t,
) -> ssize_t {
    let mut done = 0;
    pieces_into(to, bytes, |to, some| {
        let got = call(to, some, done);
        done += received(got);
        got
    })
}

/// True if a read into memory that was taken is one call.
#[cold]
pub(super) fn is_one_call(to: *mut c_void, bytes: usize) -> bool {
    let all = to as usize..(to as usize).saturating_add(bytes);
    bytes <= STEP && may_be_put(all)
}

/// How long a regular file is that this descriptor reads. `None` of files without bytes: those of /proc(5) may have no positions.
#[cold]
pub(super) fn bytes_of_file(fd: c_int) -> Option<libc::off_t> {
    let about = about(fd)?;
    // SAFETY: only asks.
    let flags = unsafe { softfault::system_call!(libc::SYS_fcntl, fd, libc::F_GETFL) };
    let reads = flags >= 0 && flags as c_int & libc::O_ACCMODE != libc::O_WRONLY;
    let has_bytes = about.st_mode & libc::S_IFMT == libc::S_IFREG && about.st_size > 0;
    (reads && has_bytes).then_some(about.st_size)
}

#[cold]
pub(super) fn is_file(fd: c_int) -> bool {
    let kind = about(fd).map(|about| about.st_mode & libc::S_IFMT);
    matches!(kind, Some(libc::S_IFREG | libc::S_IFBLK))
}

/// The answer of fstat(2) about it, errno kept.
fn about(fd: c_int) -> Option<libc::stat> {
    let errno = call::errno();
    let about = decide::look(fd);
    call::set_errno(errno);
    about
}
