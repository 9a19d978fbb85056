//! Bytes that a call has received elsewhere are put where the program wants them.
//!
//! Parts of it may be protected, or nothing may be there. The kernel is asked, which reports that; a store would end the program.

use super::again::PAGE;
use super::readable::is_page;
use crate::{call, inside, table};
use core::ffi::c_void;
use core::ops::Range;

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
                false => put_by_pages(to, from, piece.len()),
            }
        };
        done += written;
        if written < piece.len() {
            break;
        }
    }
    done
}

/// The same of the bytes that differ from those `before`. Others are the program's to change meanwhile.
///
/// # Safety
/// As of [`put`]; so many bytes are at `before`, too.
pub unsafe fn put_changed(
    to: *mut c_void,
    from: *const c_void,
    before: *const c_void,
    bytes: usize,
) -> usize {
    // SAFETY: the caller's promise.
    let (now, before) = unsafe {
        (
            core::slice::from_raw_parts(from.cast::<u8>(), bytes),
            core::slice::from_raw_parts(before.cast::<u8>(), bytes),
        )
    };
    let is_changed = |&at: &usize| now[at] != before[at];
    let mut done = 0;
    while let Some(first) = (done..bytes).find(is_changed) {
        let end = (first..bytes).find(|at| !is_changed(at)).unwrap_or(bytes);
        // SAFETY: the caller's promise.
        let written = unsafe { put(to.byte_add(first), from.byte_add(first), end - first) };
        done = first + written;
        if done < end {
            return done;
        }
    }
    bytes
}

/// The same as [`put`], to memory that is not served: page by page, as far as the kernel says that it may be written to.
unsafe fn put_by_pages(to: *mut c_void, from: *const c_void, bytes: usize) -> usize {
    let mut done = 0;
    while done < bytes {
        let at = to as usize + done;
        if !may_be_written(at) {
            break;
        }
        let some = (PAGE - at % PAGE).min(bytes - done);
        // SAFETY: the caller's promise; the page is there, and may be written to.
        unsafe {
            (to.byte_add(done)).copy_from_nonoverlapping(from.byte_add(done), some);
        }
        done += some;
    }
    done
}

/// True if the program may write to an address of memory that is not served. The byte there is one of a buffer that a call is about to
/// fill, and stays as it is.
fn may_be_written(at: usize) -> bool {
    let page = at & !(PAGE - 1);
    if !is_page(page) {
        return false;
    }
    let (byte, errno) = (at as *mut u8, call::errno());
    // SAFETY: the page is there. mincore(2) puts its answer about one page there, or fails where it cannot.
    unsafe {
        let before = byte.read_volatile();
        let answer = call::any(libc::SYS_mincore, [page, PAGE, at, 0]);
        if answer == 0 {
            byte.write_volatile(before);
        }
        call::set_errno(errno);
        answer == 0
    }
}

/// True if each byte of a range may be written to.
pub fn may_be_put(range: Range<usize>) -> bool {
    let mut at = range.start;
    while at < range.end {
        let (piece, is_live) = first_piece(at..range.end);
        let next_page = |&at: &usize| Some((at & !(PAGE - 1)).saturating_add(PAGE));
        let pages = core::iter::successors(Some(piece.start), next_page);
        let mut pages = pages.take_while(|&at| at < piece.end);
        if !is_live && !pages.all(may_be_written) {
            return false;
        }
        at = piece.end;
    }
    true
}
