//! Calls by which the kernel moves a mapping, or puts one over another: mremap(2) and shmat(2).

use crate::{call, change, decide, give, inside, marked, private_calls, table};
use libc::{c_int, c_void, size_t};

/// The kernel is about to change mappings there: the memory becomes the kernel's first. False if it cannot.
#[cold]
fn give_way(addr: *mut c_void, bytes: usize) -> bool {
    match (inside::enter(), change::pages(addr, bytes)) {
        (Some(_inside), Some(range)) => {
            if !give::leave_stack() {
                return false;
            }
            let mut table = table::lock();
            if !change::hand_back(&mut table, &range) {
                return false;
            }
            table.forget_reserved(&range);
            let done = give::hand_over(&mut table, &range);
            if done {
                // Something else may come to be where it was.
                table.private.let_children_have(&range);
            }
            done
        }
        _ => true,
    }
}

/// A mapping of the kernel's, which `map` puts there, takes the place of what is there.
#[cold]
fn replace(to: *mut c_void, bytes: usize, map: impl FnOnce() -> *mut c_void) -> *mut c_void {
    let (Some(inside), Some(range)) = (inside::enter(), change::pages(to, bytes)) else {
        return map();
    };
    let (can, holes) = match give::leave_stack() {
        true => {
            let mut table = table::lock();
            match change::hand_back(&mut table, &range) {
                true => {
                    table.forget_reserved(&range);
                    give::before_replaced(&mut table, &range)
                }
                false => (false, Vec::new()),
            }
        }
        false => (false, Vec::new()),
    };
    let mapped = match can {
        true => map(),
        false => {
            call::set_errno(libc::ENOMEM);
            libc::MAP_FAILED
        }
    };
    let errno = call::errno();
    let is_refused = mapped == libc::MAP_FAILED;
    if is_refused && !holes.is_empty() {
        give::not_replaced(&mut table::lock(), &holes);
    }
    drop(holes);
    drop(inside);
    if is_refused {
        call::set_errno(errno);
    }
    mapped
}

/// True if there is nothing at an address, although it is taken.
#[cold]
fn is_hole(addr: *const c_void) -> bool {
    let (Some(_inside), Some(range)) = (inside::enter(), change::pages(addr, 1)) else {
        return false;
    };
    table::lock().private.is_hole(&range)
}

/// mremap(2) of private memory: the engine's answer; `None`: the kernel is to do it.
#[cold]
fn move_private(
    addr: *mut c_void,
    old: size_t,
    new: size_t,
    flags: c_int,
) -> Option<Result<usize, c_int>> {
    let old = change::pages(addr, old)?;
    let new = new.checked_next_multiple_of(decide::PAGE)?;
    let _inside = inside::enter()?;
    if !give::leave_stack() {
        return Some(Err(libc::ENOMEM));
    }
    private_calls::move_to(&mut table::lock(), &old, new, flags)
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
    let place = match flags & (libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP) {
        0 => core::ptr::null_mut(),
        _ => to,
    };
    // SAFETY: the caller's promise.
    let kernel = || unsafe { call::mremap(addr, old, new, flags, place) };
    if inside::is_inside() {
        return kernel();
    }
    if marked::may_be_taken(addr as usize, old.max(1)) {
        let refused = match move_private(addr, old, new, flags) {
            Some(Ok(moved)) => return moved as *mut c_void,
            Some(Err(errno)) => Some(errno),
            None if is_hole(addr) => Some(libc::EFAULT),
            None => (!give_way(addr, old.max(1))).then_some(libc::ENOMEM),
        };
        if let Some(errno) = refused {
            call::set_errno(errno);
            return libc::MAP_FAILED;
        }
    }
    match flags & libc::MREMAP_FIXED != 0 && marked::may_be_taken(to as usize, new) {
        true => replace(to, new, kernel),
        false => kernel(),
    }
}

/// True if the program has nothing in a range where there is private memory, as far as is known here: the addresses are taken.
#[cold]
fn is_free(addr: *const c_void, bytes: usize) -> bool {
    let (Some(_inside), Some(range)) = (inside::enter(), change::pages(addr, bytes)) else {
        return false;
    };
    let mut table = table::lock();
    change::free_idle(&mut table, &range);
    table.private.is_hole(&range)
}

/// shmat(2): with SHM_REMAP it replaces what is there.
///
/// # Safety
/// As of the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shmat(segment: c_int, addr: *const c_void, flags: c_int) -> *mut c_void {
    // SAFETY: the caller's promise.
    let kernel = |flags| unsafe {
        softfault::system_call!(libc::SYS_shmat, segment, addr, flags) as *mut c_void
    };
    let place = match flags & libc::SHM_RND {
        0 => addr.cast_mut(),
        _ => addr.map_addr(|addr| addr & !(decide::PAGE - 1)).cast_mut(),
    };
    if place.is_null() || !marked::is_any() || inside::is_inside() {
        return kernel(flags);
    }
    let bytes = segment_bytes(segment);
    if bytes == 0 || !marked::may_be_taken(place as usize, bytes) {
        return kernel(flags);
    }
    let replaces = flags & libc::SHM_REMAP;
    match replaces != 0 || is_free(place, bytes) {
        // The addresses are taken where the program has nothing.
        true => replace(place, bytes, || kernel(flags | libc::SHM_REMAP)),
        false => kernel(flags),
    }
}

/// Bytes of a segment of shared memory; 0 if the kernel says none.
fn segment_bytes(segment: c_int) -> usize {
    let mut about = core::mem::MaybeUninit::<libc::shmid_ds>::zeroed();
    let errno = call::errno();
    // SAFETY: fills the structure; zeros are a valid one.
    let about = unsafe {
        softfault::system_call!(
            libc::SYS_shmctl,
            segment,
            libc::IPC_STAT,
            about.as_mut_ptr(),
        );
        about.assume_init()
    };
    call::set_errno(errno);
    about.shm_segsz
}
