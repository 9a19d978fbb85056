//! Bytes that a call has received elsewhere are put where the program wants them.
//!
//! A part of taken memory that was handed back may be protected. There the kernel is asked to write, which reports that;
//! a store would end the program.

use crate::{call, inside, table};
use core::ffi::c_void;
use core::ops::Range;
use libc::iovec;

/// The pieces of a range, in order, and whether the engine serves each. The range is all of one taken mapping.
#[cold]
pub fn pieces(start: usize, bytes: usize) -> Vec<(Range<usize>, bool)> {
    let all = start..start.saturating_add(bytes);
    let live = match inside::enter() {
        Some(_inside) => table::lock().private.served_parts(&all),
        None => vec![all.clone()],
    };
    let mut pieces = Vec::with_capacity(2 * live.len() + 1);
    let mut at = all.start;
    for part in live {
        if at < part.start {
            pieces.push((at..part.start, false));
        }
        at = part.end;
        pieces.push((part, true));
    }
    if at < all.end {
        pieces.push((at..all.end, false));
    }
    pieces
}

/// Copies bytes to memory of the program: as many as could be written.
///
/// # Safety
/// So many bytes are at `from`, and the program lets a call write to so many at `to`.
pub unsafe fn put(to: *mut c_void, from: *const c_void, bytes: usize) -> usize {
    for (piece, is_live) in pieces(to as usize, bytes) {
        let done = piece.start - to as usize;
        // SAFETY: the caller's promise; what is served may be written to.
        let written = unsafe {
            let (to, from) = (to.byte_add(done), from.byte_add(done));
            match is_live {
                true => {
                    to.copy_from_nonoverlapping(from, piece.len());
                    piece.len()
                }
                false => put_by_kernel(to, from, piece.len()),
            }
        };
        if written < piece.len() {
            return done + written;
        }
    }
    bytes
}

/// The same by process_vm_writev(2); where that is denied, by stores.
unsafe fn put_by_kernel(to: *mut c_void, from: *const c_void, bytes: usize) -> usize {
    let vector = |start: *mut c_void| iovec {
        iov_base: start,
        iov_len: bytes,
    };
    let (from_vector, to_vector) = (vector(from.cast_mut()), vector(to));
    let errno = call::errno();
    // SAFETY: the kernel looks at the memory that the vectors name, and reports what it cannot write.
    let written = unsafe {
        softfault::system_call!(
            libc::SYS_process_vm_writev,
            libc::getpid(),
            &raw const from_vector,
            1,
            &raw const to_vector,
            1,
            0,
        )
    };
    let why = call::errno();
    call::set_errno(errno);
    match usize::try_from(written) {
        Ok(written) => written,
        Err(_) if [libc::EPERM, libc::ENOSYS].contains(&why) => {
            // SAFETY: the caller's promise.
            unsafe { to.copy_from_nonoverlapping(from, bytes) };
            bytes
        }
        Err(_) => 0,
    }
}
