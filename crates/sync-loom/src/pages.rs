//! Memory by the page: plain allocations, here.

use core::alloc::Layout;
use core::ptr::NonNull;

const PAGE: usize = 4096;

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes.max(1), PAGE).expect("a mapping's size fits the address space")
}

/// Allocates `bytes` of zeroed, page-aligned memory.
pub fn map(bytes: usize) -> Option<NonNull<u8>> {
    // SAFETY: the layout's size is not zero.
    NonNull::new(unsafe { std::alloc::alloc_zeroed(layout(bytes)) })
}

/// Gives memory from [`map`] back.
///
/// # Safety
/// `addr` and `bytes` are those of one `map`, and nothing uses it any more.
pub unsafe fn unmap(addr: NonNull<u8>, bytes: usize) {
    // SAFETY: the caller owns the whole allocation, made with this layout.
    unsafe { std::alloc::dealloc(addr.as_ptr(), layout(bytes)) };
}
