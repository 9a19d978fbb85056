//! Memory by the page, zeroed. No page is kept from one schedule to the next:
//! small maps come from the heap, large ones from the system.

use core::alloc::Layout;
use core::ptr::NonNull;

const PAGE: usize = 4096;
/// The largest map that is worth clearing by hand.
const SMALL: usize = 16 * PAGE;

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes.max(1), PAGE).expect("a mapping's size fits the address space")
}

/// Maps `bytes` of zeroed memory. `None` when the system has no more.
pub fn map(bytes: usize) -> Option<NonNull<u8>> {
    if bytes > SMALL {
        return softfault_sync_std::pages::map(bytes);
    }
    // SAFETY: the layout's size is not zero.
    NonNull::new(unsafe { std::alloc::alloc_zeroed(layout(bytes)) })
}

/// Memory that may be used once it is [opened](open): here it may be at once. The error
/// is an errno.
pub fn reserve(bytes: usize) -> Result<NonNull<u8>, i32> {
    const ENOMEM: i32 = 12;
    map(bytes).ok_or(ENOMEM)
}

/// Lets a part of reserved space be used.
///
/// # Safety
/// The part is of one reservation, in whole pages.
pub unsafe fn open(_addr: NonNull<u8>, _bytes: usize) -> bool {
    true
}

/// Gives memory from [`map`] back.
///
/// # Safety
/// `addr` and `bytes` are those of one `map`, and nothing uses it any more.
pub unsafe fn unmap(addr: NonNull<u8>, bytes: usize) {
    if bytes > SMALL {
        // SAFETY: the caller's promise; `map` took it from there.
        return unsafe { softfault_sync_std::pages::unmap(addr, bytes) };
    }
    // SAFETY: the caller owns the whole allocation, made with this layout.
    unsafe { std::alloc::dealloc(addr.as_ptr(), layout(bytes)) };
}

/// Would give the memory behind whole pages of a [`map`] back: here it stays, as it is.
///
/// # Safety
/// The pages are within one map, and nobody writes to them meanwhile.
pub unsafe fn discard(_addr: NonNull<u8>, _bytes: usize) -> bool {
    false
}
