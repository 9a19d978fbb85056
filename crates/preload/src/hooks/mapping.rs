//! mmap(2) and what changes mappings.

use crate::count;
use crate::decide::{self, Call};
use crate::table::Table;
use crate::{call, change, inside, marked, table, take};
use core::ops::Range;
use libc::{c_int, c_long, c_void, off_t, size_t};

/// mmap(2).
///
/// # Safety
/// As of the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap(
    addr: *mut c_void,
    bytes: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    if !inside::is_inside() {
        if flags & libc::MAP_FIXED != 0 && marked::may_be_taken(addr as usize, bytes) {
            give_way(addr, bytes);
        }
        if flags & libc::MAP_ANONYMOUS == 0
            && fd >= 0
            && let Some(taken) = take_over(&Call {
                bytes,
                protection,
                flags,
                fd,
                offset,
            })
        {
            return taken as *mut c_void;
        }
    }
    // SAFETY: the caller's promise.
    unsafe { call::mmap(addr, bytes, protection, flags, fd, offset) }
}

/// mmap(2), by its other name.
///
/// # Safety
/// As of the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap64(
    addr: *mut c_void,
    bytes: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { mmap(addr, bytes, protection, flags, fd, offset) }
}

/// Takes a mapping, if it is to be taken; otherwise counts why not.
#[cold]
fn take_over(call: &Call) -> Option<usize> {
    let errno = call::errno();
    let taken = match decide::decide(call) {
        Ok(Some(wanted)) => {
            let _inside = inside::enter()?;
            take::take(&mut table::lock(), &wanted)
        }
        Ok(None) => return None,
        Err(why) => Err(why),
    };
    call::set_errno(errno);
    match taken {
        Ok(start) => Some(start),
        Err(why) => {
            count::declined(why, call.bytes);
            None
        }
    }
}

/// Something else is about to be mapped there.
#[cold]
fn give_way(addr: *mut c_void, bytes: usize) {
    if let (Some(_inside), Some(range)) = (inside::enter(), change::pages(addr, bytes)) {
        change::hand_back(&mut table::lock(), &range);
    }
}

/// A call on a range that may be taken, by `ours`; where that has no answer, by the kernel.
#[inline]
fn on_range(
    addr: *const c_void,
    bytes: size_t,
    ours: impl FnOnce(&mut Table, &Range<usize>) -> Option<c_int>,
    kernel: impl FnOnce() -> c_int,
) -> c_int {
    if !marked::may_be_taken(addr as usize, bytes) || inside::is_inside() {
        return kernel();
    }
    match answer(addr, bytes, ours) {
        Some(Ok(answer)) => answer,
        Some(Err(errno)) => change::refuse(errno),
        None => kernel(),
    }
}

/// What `ours` answers, and the errno if that is an error.
#[cold]
fn answer(
    addr: *const c_void,
    bytes: size_t,
    ours: impl FnOnce(&mut Table, &Range<usize>) -> Option<c_int>,
) -> Option<Result<c_int, c_int>> {
    let range = change::pages(addr, bytes)?;
    let _inside = inside::enter()?;
    let answer = ours(&mut table::lock(), &range)?;
    // Leaving restores the caller's errno.
    Some(match answer {
        -1 => Err(call::errno()),
        answer => Ok(answer),
    })
}

/// The kernel does it, on mappings of its own.
fn handed_back(table: &mut Table, range: &Range<usize>) -> Option<c_int> {
    match change::hand_back(table, range) {
        true => None,
        false => Some(change::refuse(libc::ENOMEM)),
    }
}

/// A call of the kernel's that takes addresses.
fn by_kernel(number: c_long, args: [usize; 4]) -> impl FnOnce() -> c_int {
    // SAFETY: the program's own arguments, for its own memory.
    move || unsafe { call::any(number, args) }
}

/// munmap(2).
///
/// # Safety
/// As of the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(addr: *mut c_void, bytes: size_t) -> c_int {
    let kernel = by_kernel(libc::SYS_munmap, [addr as usize, bytes, 0, 0]);
    on_range(
        addr,
        bytes,
        |table, range| Some(change::unmap(table, range)),
        kernel,
    )
}

/// mremap(2). In C it has the last argument only with `MREMAP_FIXED` and `MREMAP_DONTUNMAP`: otherwise it is not
/// looked at.
///
/// # Safety
/// As of the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mremap(
    addr: *mut c_void,
    old: size_t,
    new: size_t,
    flags: c_int,
    to: *mut c_void,
) -> *mut c_void {
    if !inside::is_inside() {
        if marked::may_be_taken(addr as usize, old.max(1)) {
            give_way(addr, old.max(1));
        }
        if flags & libc::MREMAP_FIXED != 0 && marked::may_be_taken(to as usize, new) {
            give_way(to, new);
        }
    }
    let to = match flags & (libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP) {
        0 => core::ptr::null_mut(),
        _ => to,
    };
    // SAFETY: the caller's promise.
    unsafe { call::mremap(addr, old, new, flags, to) }
}

/// mprotect(2).
///
/// # Safety
/// As of the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mprotect(addr: *mut c_void, bytes: size_t, protection: c_int) -> c_int {
    let ours = |table: &mut Table, range: &Range<usize>| match change::is_protected(
        table, range, protection,
    ) {
        true => Some(0),
        false => handed_back(table, range),
    };
    let args = [addr as usize, bytes, protection as usize, 0];
    on_range(addr, bytes, ours, by_kernel(libc::SYS_mprotect, args))
}

/// pkey_mprotect(2).
///
/// # Safety
/// As of the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pkey_mprotect(
    addr: *mut c_void,
    bytes: size_t,
    protection: c_int,
    key: c_int,
) -> c_int {
    if key == -1 {
        // SAFETY: the caller's promise.
        return unsafe { mprotect(addr, bytes, protection) };
    }
    let args = [addr as usize, bytes, protection as usize, key as usize];
    on_range(
        addr,
        bytes,
        handed_back,
        by_kernel(libc::SYS_pkey_mprotect, args),
    )
}

/// madvise(2).
///
/// # Safety
/// As of the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madvise(addr: *mut c_void, bytes: size_t, advice: c_int) -> c_int {
    let ours = |table: &mut Table, range: &Range<usize>| change::advise(table, range, advice);
    let args = [addr as usize, bytes, advice as usize, 0];
    on_range(addr, bytes, ours, by_kernel(libc::SYS_madvise, args))
}

/// posix_madvise(3): the error is its answer, and what is not needed stays.
///
/// # Safety
/// As of the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_madvise(addr: *mut c_void, bytes: size_t, advice: c_int) -> c_int {
    if advice == libc::POSIX_MADV_DONTNEED {
        return 0;
    }
    let errno = call::errno();
    // SAFETY: the caller's promise.
    let answer = match unsafe { madvise(addr, bytes, advice) } {
        0 => 0,
        _ => call::errno(),
    };
    call::set_errno(errno);
    answer
}

/// mlock(2): what is to stay in memory is the kernel's.
///
/// # Safety
/// As of the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlock(addr: *const c_void, bytes: size_t) -> c_int {
    let (start, bytes) = whole_pages(addr, bytes);
    on_range(
        start,
        bytes,
        handed_back,
        by_kernel(libc::SYS_mlock, [start as usize, bytes, 0, 0]),
    )
}

/// mlock2(2).
///
/// # Safety
/// As of the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlock2(addr: *const c_void, bytes: size_t, flags: c_int) -> c_int {
    let (start, bytes) = whole_pages(addr, bytes);
    let args = [start as usize, bytes, flags as usize, 0];
    on_range(start, bytes, handed_back, by_kernel(libc::SYS_mlock2, args))
}

/// The pages of what mlock(2) takes, which need not begin with one.
fn whole_pages(addr: *const c_void, bytes: size_t) -> (*const c_void, size_t) {
    let skip = addr as usize % decide::PAGE;
    (addr.wrapping_byte_sub(skip), bytes.saturating_add(skip))
}

/// remap_file_pages(2).
///
/// # Safety
/// As of the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remap_file_pages(
    addr: *mut c_void,
    bytes: size_t,
    protection: c_int,
    page: size_t,
    flags: c_int,
) -> c_int {
    let kernel = move || {
        // SAFETY: the caller's promise.
        unsafe {
            libc::syscall(
                libc::SYS_remap_file_pages,
                addr,
                bytes,
                protection,
                page,
                flags,
            ) as c_int
        }
    };
    on_range(addr, bytes, handed_back, kernel)
}
