//! Memory by the page: plain allocations, here.

use core::alloc::Layout;
use core::cell::RefCell;
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
    // SAFETY: the caller owns the whole allocation, made with this layout.
    unsafe { std::alloc::dealloc(addr.as_ptr(), layout(bytes)) };
}

thread_local! {
    /// A model's action when pages are discarded. All its threads are one thread's.
    static ON_DISCARD: RefCell<Box<dyn Fn()>> = RefCell::new(Box::new(|| ()));
}

/// From now on `each` is called for each [`discard`].
pub fn on_discard(each: impl Fn() + 'static) {
    ON_DISCARD.set(Box::new(each));
}

/// Would give the memory behind whole pages of a [`map`] back: here it stays, as it is.
///
/// # Safety
/// The pages are within one map, and nobody writes to them meanwhile.
pub unsafe fn discard(_addr: NonNull<u8>, _bytes: usize) -> bool {
    ON_DISCARD.with_borrow(|each| each());
    false
}
