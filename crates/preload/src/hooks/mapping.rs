//! mmap(2) and calls that change mappings. Those that move them are in `moving.rs`.

use crate::decide::{self, Call};
use crate::private::PrivateMapping;
use crate::table::Table;
use crate::{
    call, change, commit, declined, give, inside, marked, options, populate, private_calls,
    program, table, take,
};
use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
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
        // Both together are MAP_FIXED_NOREPLACE to the kernel.
        let flags = match flags & libc::MAP_FIXED_NOREPLACE {
            0 => flags,
            _ => flags & !libc::MAP_FIXED,
        };
        let call = Call {
            bytes,
            protection,
            flags,
            fd,
            offset,
        };
        let is_fixed = flags & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE) != 0;
        let is_large = flags & libc::MAP_ANONYMOUS != 0 && bytes >= ANONYMOUS_LEAST.load(Relaxed);
        if is_fixed && marked::may_be_taken(addr as usize, bytes) {
            // SAFETY: the caller's promise.
            return unsafe { map_over(addr, &call, is_large) };
        }
        if is_large && decide::is_reservation(&call) {
            // SAFETY: as above.
            return reserved(&call, unsafe {
                call::mmap(addr, bytes, protection, flags, fd, offset)
            });
        }
        let taken = match flags & libc::MAP_ANONYMOUS {
            0 if fd >= 0 => take_over(&call),
            0 => None,
            _ if is_large => take_anonymous(&call),
            _ => None,
        };
        if let Some(taken) = taken {
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
            if !give::leave_stack() {
                return None;
            }
            take::take(&mut table::lock(), &wanted)
        }
        Ok(None) => return None,
        Err(why) => Err(why),
    };
    call::set_errno(errno);
    match taken {
        Ok(start) => Some(start),
        Err(why) => {
            declined::declined(why, call);
            None
        }
    }
}

/// Bytes of the smallest anonymous mapping that is looked at. Relaxed: set when the library is loaded.
static ANONYMOUS_LEAST: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Before the program's own code runs.
pub fn prepare() {
    let options = options::get();
    if options.anonymous {
        let least = usize::try_from(options.min_size).unwrap_or(usize::MAX);
        // Looked up now: a hook may be called where nothing can be looked up.
        program::has_own_malloc();
        program::makes_calls_itself();
        ANONYMOUS_LEAST.store(least.max(decide::LEAST), Relaxed);
    }
}

/// Takes anonymous memory, if it is to be taken; otherwise counts why not.
#[cold]
fn take_anonymous(call: &Call) -> Option<usize> {
    let errno = call::errno();
    let taken = match decide::decide_anonymous(call) {
        Ok(Some(bytes)) => {
            let _inside = inside::enter()?;
            if !give::leave_stack() {
                return None;
            }
            take::take_anonymous(&mut table::lock(), bytes)
        }
        Ok(None) => return None,
        Err(why) => Err(why),
    };
    call::set_errno(errno);
    taken.map_err(|why| declined::declined(why, call)).ok()
}

/// Something else is mapped at addresses some of which may be taken.
///
/// # Safety
/// As of mmap(2).
#[cold]
unsafe fn map_over(addr: *mut c_void, call: &Call, is_large: bool) -> *mut c_void {
    let mut flags = call.flags;
    let reserves = decide::is_reservation(call);
    let is_commit = flags & libc::MAP_FIXED != 0 && decide::is_commit(call);
    let mut why = None;
    // SAFETY: the caller's promise.
    let map = |addr, bytes, flags| unsafe {
        call::mmap(addr, bytes, call.protection, flags, call.fd, call.offset)
    };
    let mut refused = None;
    if let (Some(inside), Some(range)) = (inside::enter(), change::pages(addr, call.bytes)) {
        if !give::leave_stack() {
            drop(inside);
            call::set_errno(libc::ENOMEM);
            return libc::MAP_FAILED;
        }
        let mut table = table::lock();
        change::free_idle(&mut table, &range);
        let is_fixed = flags & libc::MAP_FIXED != 0;
        // The kernel refuses what is not to replace anything, where there is something.
        let is_free = flags & libc::MAP_FIXED_NOREPLACE != 0 && !table.has_any(&range);
        if (is_fixed || is_free) && !change::hand_back(&mut table, &range) {
            // Over a window that the engine goes on to serve.
            refused = Some(libc::ENOMEM);
        }
        if is_commit && refused.is_none() {
            let by_kernel = |part: &Range<usize>| {
                // SAFETY: the program wants this at a part of its call's range.
                let mapped = unsafe {
                    let start = part.start as *mut c_void;
                    call::mmap(start, part.len(), call.protection, flags, -1, 0)
                };
                mapped != libc::MAP_FAILED
            };
            match commit::renew(&mut table, &range, by_kernel) {
                Some(Ok(())) => return addr,
                Some(Err(reason)) => why = Some(reason),
                None => {}
            }
        }
        if flags & libc::MAP_FIXED != 0 && !reserves && refused.is_none() {
            table.reservations.forget(&range);
        }
        if refused.is_none() && table.private.is_over(&range) {
            match give_place(&mut table, &range, flags, map) {
                Ok(how) => flags = how,
                Err(errno) => refused = Some(errno),
            }
        }
    }
    if let Some(errno) = refused {
        call::set_errno(errno);
        return libc::MAP_FAILED;
    }
    let mapped = map(addr, call.bytes, flags);
    if reserves {
        return reserved(call, mapped);
    }
    if is_large {
        why = why.or_else(|| decide::why_not_fixed(call));
    } else if call.flags & libc::MAP_ANONYMOUS == 0 && call.fd >= 0 {
        // Never: an engine's window has a place of its own.
        why = why.or_else(|| decide::decide(call).err());
    }
    if let Some(why) = why.filter(|_| mapped != libc::MAP_FAILED) {
        declined::declined(why, call);
    }
    mapped
}

/// Remembers address space that the kernel has reserved; where it is.
#[cold]
fn reserved(call: &Call, mapped: *mut c_void) -> *mut c_void {
    if mapped != libc::MAP_FAILED
        && let (Some(_inside), Some(range)) = (inside::enter(), change::pages(mapped, call.bytes))
    {
        if !give::leave_stack() {
            return mapped;
        }
        let is_part = call.flags & libc::MAP_FIXED != 0;
        table::lock().reserve(&range, ANONYMOUS_LEAST.load(Relaxed), is_part);
    }
    mapped
}

/// Private memory makes way for a mapping over it: with which flags, or an errno.
fn give_place(
    table: &mut Table,
    range: &Range<usize>,
    flags: c_int,
    map: impl Fn(*mut c_void, usize, c_int) -> *mut c_void,
) -> Result<c_int, c_int> {
    // Where there is nothing anything may be, although the addresses are taken.
    if flags & libc::MAP_FIXED == 0 && !table.private.is_hole(range) {
        return Ok(flags);
    }
    // A call that the kernel refuses replaces nothing. It is asked by a mapping elsewhere, which is no longer than what the call
    // adds: what it replaces makes room for it. But there have to be huge pages for all of it, and of a device the length may matter.
    let lasting = libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE;
    let filled = libc::MAP_POPULATE | libc::MAP_LOCKED;
    let is_done = |bytes| {
        let tried = map(core::ptr::null_mut(), bytes, flags & !(lasting | filled));
        if tried != libc::MAP_FAILED {
            // SAFETY: just mapped, and nobody's.
            unsafe { call::any(libc::SYS_munmap, [tried as usize, bytes, 0, 0]) };
        }
        tried != libc::MAP_FAILED
    };
    let added: usize = table.private.gaps(range).iter().map(Range::len).sum();
    let is_by_part = flags & libc::MAP_HUGETLB == 0 && is_done(added.max(decide::PAGE));
    if !is_by_part && !is_done(range.len()) {
        return Err(call::errno());
    }
    match give::before_fixed(table, range) {
        true => Ok(flags & !libc::MAP_FIXED_NOREPLACE | libc::MAP_FIXED),
        false => Err(libc::ENOMEM),
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

/// The program's own userfaultfd is to serve the faults of a range, by `kernel`: the kernel has one for a mapping.
pub fn served_by_program(
    addr: *const c_void,
    bytes: size_t,
    kernel: impl FnOnce() -> c_int,
) -> c_int {
    ahead(addr, bytes, |_, _| true);
    on_range(addr, bytes, handed_back, kernel)
}

/// Before a call for which private memory is handed over, where `is_wanted` says so.
#[inline]
fn ahead(
    addr: *const c_void,
    bytes: size_t,
    is_wanted: impl Fn(&PrivateMapping, &Range<usize>) -> bool,
) {
    if marked::may_be_taken(addr as usize, bytes)
        && let Some(range) = change::pages(addr, bytes)
        && let Some(_inside) = inside::enter()
    {
        // Otherwise the call itself is refused.
        if give::leave_stack() {
            give::hand_over_ahead(&range, is_wanted);
        }
    }
}

/// The answer of `ours`, and the errno if that is an error.
#[cold]
fn answer(
    addr: *const c_void,
    bytes: size_t,
    ours: impl FnOnce(&mut Table, &Range<usize>) -> Option<c_int>,
) -> Option<Result<c_int, c_int>> {
    let range = change::pages(addr, bytes)?;
    let _inside = inside::enter()?;
    if !give::leave_stack() {
        return Some(Err(libc::ENOMEM));
    }
    let mut table = table::lock();
    // The program may name addresses where it has nothing any more.
    change::free_idle(&mut table, &range);
    let answer = ours(&mut table, &range)?;
    drop(table);
    // Leaving restores the caller's errno.
    Some(match answer {
        -1 => Err(call::errno()),
        answer => Ok(answer),
    })
}

/// The kernel does it, on mappings of its own.
fn handed_back(table: &mut Table, range: &Range<usize>) -> Option<c_int> {
    table.forget_reserved(range);
    match change::hand_back(table, range) && give::hand_over(table, range) {
        true => None,
        false => Some(change::refuse(libc::ENOMEM)),
    }
}

/// The same, of a call with one argument more: where there is private memory, by its parts.
fn handed_back_for(
    table: &mut Table,
    range: &Range<usize>,
    (number, argument): (c_long, usize),
) -> Option<c_int> {
    table.forget_reserved(range);
    match table.private.is_over(range) {
        true => Some(private_calls::by_kernel(table, range, number, argument)),
        false => handed_back(table, range),
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

/// mprotect(2).
///
/// # Safety
/// As of the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mprotect(addr: *mut c_void, bytes: size_t, protection: c_int) -> c_int {
    ahead(addr, bytes, |mapping, part| {
        private_calls::is_protected_by_kernel(mapping, part, protection)
    });
    let mut taken = Ok(());
    let ours = |table: &mut Table, range: &Range<usize>| {
        taken = commit::before_protect(table, range, protection);
        if table.private.is_over(range) {
            return Some(private_calls::protect(table, range, protection));
        }
        match change::is_protected(table, range, protection) {
            true => Some(0),
            false if change::hand_back(table, range) => None,
            false => Some(change::refuse(libc::ENOMEM)),
        }
    };
    let args = [addr as usize, bytes, protection as usize, 0];
    let answer = on_range(addr, bytes, ours, by_kernel(libc::SYS_mprotect, args));
    if let Err(why) = taken
        && answer == 0
    {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let call = Call {
            bytes,
            protection,
            flags,
            fd: -1,
            offset: 0,
        };
        declined::declined(why, &call);
    }
    answer
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
    ahead(addr, bytes, |_, _| true);
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
    let waits = matches!(advice, libc::MADV_POPULATE_READ | libc::MADV_POPULATE_WRITE);
    if waits
        && marked::may_be_taken(addr as usize, bytes)
        && !inside::is_inside()
        && let Some(range) = change::pages(addr, bytes)
    {
        return populate::populate(&range, advice);
    }
    if private_calls::is_advised_by_kernel(advice) {
        ahead(addr, bytes, |_, _| true);
    }
    let ours = |table: &mut Table, range: &Range<usize>| {
        table.advise_reserved(range, advice);
        match table.private.is_over(range) {
            true => Some(private_calls::advise(table, range, advice)),
            false => change::advise(table, range, advice),
        }
    };
    let args = [addr as usize, bytes, advice as usize, 0];
    on_range(addr, bytes, ours, by_kernel(libc::SYS_madvise, args))
}

/// posix_madvise(3): the error is its answer, and pages that are not needed stay.
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

/// mlock(2): the kernel gets memory that has to stay.
///
/// # Safety
/// As of the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlock(addr: *const c_void, bytes: size_t) -> c_int {
    let (start, bytes) = whole_pages(addr, bytes);
    ahead(start, bytes, |_, _| true);
    on_range(
        start,
        bytes,
        |table, range| handed_back_for(table, range, (libc::SYS_mlock, 0)),
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
    ahead(start, bytes, |_, _| true);
    let args = [start as usize, bytes, flags as usize, 0];
    let number = libc::SYS_mlock2;
    let ours = |table: &mut Table, range: &Range<usize>| {
        handed_back_for(table, range, (number, flags as usize))
    };
    on_range(start, bytes, ours, by_kernel(number, args))
}

/// mseal(2), which the crate of the C library has no number for.
pub const SYS_MSEAL: c_long = 462;

/// The same: the kernel gets memory that has to stay as it is. The C libraries for which there are hooks have no such function.
pub fn sealed(addr: *const c_void, bytes: size_t, flags: usize) -> c_int {
    let kernel = by_kernel(SYS_MSEAL, [addr as usize, bytes, flags, 0]);
    // There are none.
    if flags != 0 {
        return kernel();
    }
    ahead(addr, bytes, |_, _| true);
    // The kernel seals all of a range or nothing, and it has windows also where the program has unmapped something.
    let ours = |table: &mut Table, range: &Range<usize>| match table.first_hole(range) {
        Some(_) => Some(change::refuse(libc::ENOMEM)),
        None => handed_back(table, range),
    };
    on_range(addr, bytes, ours, kernel)
}

/// The pages of a range of mlock(2), which need not begin with one.
pub(super) fn whole_pages(addr: *const c_void, bytes: size_t) -> (*const c_void, size_t) {
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
            softfault::system_call!(
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
