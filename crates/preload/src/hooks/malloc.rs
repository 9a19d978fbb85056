//! malloc(3) and its like: blocks of `--min-size` are memory that was taken (`blocks.rs`), where `--anonymous` says so and
//! the C library's malloc is the program's. All others are the C library's: a comparison is in between.

use super::next::{Next, hooks};
use crate::decide::{LEAST as LEAST_MAPPING, PAGE};
use crate::{blocks, call, early, heap, marked, options, program};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use libc::{c_int, c_void, size_t};

/// Bytes of the smallest block that is taken. Relaxed: set when the library is loaded.
static LEAST: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Before the program's own code runs.
pub fn prepare() {
    find();
    FIRST_FREE.find();
    FIRST_REALLOC.find();
    let options = options::get();
    if options.anonymous && !program::has_own_malloc() {
        let least = usize::try_from(options.min_size).unwrap_or(usize::MAX);
        LEAST.store(least.max(LEAST_MAPPING), Relaxed);
    }
}

/// True if a block of so many bytes is to be taken.
#[inline]
fn is_large(bytes: usize) -> bool {
    bytes >= LEAST.load(Relaxed)
}

/// True if a block may be one that is not the C library's.
#[inline]
fn may_be_ours(block: *mut c_void) -> bool {
    (block as usize).is_multiple_of(PAGE)
        && (marked::may_be_taken(block as usize, 1) || early::has(block))
}

/// A block of so many bytes at a multiple of a power of two, if it is to be taken.
#[inline]
fn aligned(align: usize, bytes: usize) -> Option<*mut c_void> {
    match is_large(bytes) && align.is_power_of_two() {
        true => blocks::allocate(bytes, align.max(PAGE)),
        false => None,
    }
}

/// Frees a block; false if it is the C library's.
#[cold]
fn free_ours(block: *mut c_void) -> bool {
    if early::has(block) {
        early::free(block);
        return true;
    }
    blocks::free(block)
}

/// realloc(3), where the block may be ours, or is to be; `None`: both are the C library's.
///
/// # Safety
/// As of realloc(3).
#[cold]
unsafe fn reallocate(block: *mut c_void, bytes: usize) -> Option<*mut c_void> {
    if block.is_null() {
        return aligned(PAGE, bytes);
    }
    let had = match early::has(block) {
        true => Some(early::LEAST),
        false => blocks::bytes_of(block),
    };
    if had.is_some() && bytes == 0 {
        free_ours(block);
        return Some(null_mut());
    }
    if let Some(had) = had
        && heap::is_held()
        && !early::has(block)
    {
        // A block can neither move nor be copied while the process forks: its pages may be missing, and nobody brings them in.
        if had >= bytes {
            return Some(block);
        }
        call::set_errno(libc::ENOMEM);
        return Some(null_mut());
    }
    if had.is_some()
        && is_large(bytes)
        && let Some(resized) = blocks::resize(block, bytes)
    {
        return Some(resized);
    }
    // SAFETY: the caller's promise: the copied bytes are in both blocks, and the caller may free the old one.
    unsafe {
        let fresh = match aligned(PAGE, bytes) {
            Some(fresh) => fresh,
            None if had.is_none() => return None,
            None => nexts::malloc.get()(bytes),
        };
        if fresh.is_null() {
            return Some(fresh);
        }
        let had = had.unwrap_or_else(|| nexts::malloc_usable_size.get()(block));
        fresh
            .cast::<u8>()
            .copy_from_nonoverlapping(block.cast(), had.min(bytes));
        free(block);
        Some(fresh)
    }
}

/// Of an allocator that is in front of ours, and has some of these functions: its blocks are its own.
static FIRST_FREE: Next<unsafe extern "C-unwind" fn(*mut c_void)> = Next::first(c"free");
static FIRST_REALLOC: Next<unsafe extern "C-unwind" fn(*mut c_void, size_t) -> *mut c_void> =
    Next::first(c"realloc");

hooks! {
    /// malloc(3).
    fn malloc(bytes: size_t) -> *mut c_void = |next| {
        if is_large(bytes) && let Some(block) = blocks::allocate(bytes, PAGE) {
            return block;
        }
        next(bytes)
    };

    /// free(3).
    fn free(block: *mut c_void) = |next| {
        if may_be_ours(block) && free_ours(block) {
            return;
        }
        next(block)
    };

    /// free(3), by the C library's name for its own.
    fn __libc_free(block: *mut c_void) = |next| {
        if may_be_ours(block) && free_ours(block) {
            return;
        }
        next(block)
    };

    /// realloc(3), the same.
    fn __libc_realloc(block: *mut c_void, bytes: size_t) -> *mut c_void = |next| {
        if may_be_ours(block) && let Some(block) = reallocate(block, bytes) {
            return block;
        }
        next(block, bytes)
    };

    /// free(3), by a name that old programs have.
    fn cfree(block: *mut c_void) = |_next| {
        FIRST_FREE.get()(block)
    };

    /// free_sized(3), of C23; here also where the C library has none.
    fn free_sized(block: *mut c_void, _bytes: size_t) = |_next| {
        FIRST_FREE.get()(block)
    };

    /// free_aligned_sized(3), of C23; here also where the C library has none.
    fn free_aligned_sized(block: *mut c_void, _align: size_t, _bytes: size_t) = |_next| {
        FIRST_FREE.get()(block)
    };

    /// calloc(3): taken memory is zeros.
    fn calloc(count: size_t, bytes: size_t) -> *mut c_void = |next| {
        let all = count.checked_mul(bytes);
        if all.is_some_and(is_large) && let Some(block) = all.and_then(|all| blocks::allocate(all, PAGE)) {
            return block;
        }
        next(count, bytes)
    };

    /// realloc(3).
    fn realloc(block: *mut c_void, bytes: size_t) -> *mut c_void = |next| {
        if (is_large(bytes) || may_be_ours(block)) && let Some(block) = reallocate(block, bytes) {
            return block;
        }
        next(block, bytes)
    };

    /// reallocarray(3).
    fn reallocarray(block: *mut c_void, count: size_t, bytes: size_t) -> *mut c_void = |next| {
        match count.checked_mul(bytes) {
            Some(bytes) => FIRST_REALLOC.get()(block, bytes),
            None => next(block, count, bytes),
        }
    };

    /// memalign(3).
    fn memalign(align: size_t, bytes: size_t) -> *mut c_void = |next| {
        aligned(align, bytes).unwrap_or_else(|| next(align, bytes))
    };

    /// aligned_alloc(3).
    fn aligned_alloc(align: size_t, bytes: size_t) -> *mut c_void = |next| {
        aligned(align, bytes).unwrap_or_else(|| next(align, bytes))
    };

    /// posix_memalign(3).
    fn posix_memalign(to: *mut *mut c_void, align: size_t, bytes: size_t) -> c_int = |next| {
        let is_right = align.is_multiple_of(size_of::<*mut c_void>());
        match is_right.then(|| aligned(align, bytes)).flatten() {
            Some(block) => {
                to.write(block);
                0
            }
            None => next(to, align, bytes),
        }
    };

    /// valloc(3).
    fn valloc(bytes: size_t) -> *mut c_void = |next| {
        aligned(PAGE, bytes).unwrap_or_else(|| next(bytes))
    };

    /// pvalloc(3).
    fn pvalloc(bytes: size_t) -> *mut c_void = |next| {
        aligned(PAGE, bytes).unwrap_or_else(|| next(bytes))
    };

    /// malloc_usable_size(3).
    fn malloc_usable_size(block: *mut c_void) -> size_t = |next| {
        if may_be_ours(block) {
            if early::has(block) {
                return early::LEAST;
            }
            if let Some(bytes) = blocks::bytes_of(block) {
                return bytes;
            }
        }
        next(block)
    };
}
