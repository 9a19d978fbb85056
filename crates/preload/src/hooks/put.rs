//! Bytes that a call has received elsewhere are put where the program wants them.
//!
//! A part of taken memory that was handed back may be protected. There the kernel is asked to write, which reports that;
//! a store would end the program.

use crate::{call, inside, table};
use core::ffi::c_void;
use core::ops::Range;
use libc::iovec;

/// The first piece of a range, and whether the engine serves it and lets it be written to. Nothing that was allocated is left when it returns: a handler of a
/// signal may come then.
#[cold]
pub fn first_piece(range: Range<usize>) -> (Range<usize>, bool) {
    let Some(_inside) = inside::enter() else {
        return (range, true);
    };
    let parts = table::lock().private.writable_parts(&range);
    match parts.first() {
        Some(part) if part.start == range.start => (part.clone(), true),
        Some(part) => (range.start..part.start, false),
        None => (range, false),
    }
}

/// Copies bytes to memory of the program: as many as could be written.
///
/// # Safety
/// So many bytes are at `from`, and the program lets a call write to so many at `to`.
pub unsafe fn put(to: *mut c_void, from: *const c_void, bytes: usize) -> usize {
    let end = (to as usize).saturating_add(bytes);
    let mut done = 0;
    while done < bytes {
        let (piece, is_live) = first_piece(to as usize + done..end);
        // SAFETY: the caller's promise; it may be written to.
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
        done += written;
        if written < piece.len() {
            break;
        }
    }
    done
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
