//! Memory by the page: plain allocations, here, and the kernel's own memory where that is large: few pages of it are touched, and an
//! allocation would set all of them to zeros, in each schedule.

use core::alloc::Layout;
use core::cell::RefCell;
use core::ptr::{self, NonNull};

const PAGE: usize = 4096;
/// Bytes that are mapped, and not allocated.
const LARGE: usize = 1 << 20;

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes.max(1), PAGE).expect("a mapping's size fits the address space")
}

/// Allocates `bytes` of zeroed, page-aligned memory.
pub fn map(bytes: usize) -> Option<NonNull<u8>> {
    if bytes < LARGE {
        // SAFETY: the layout's size is not zero.
        return NonNull::new(unsafe { std::alloc::alloc_zeroed(layout(bytes)) });
    }
    let (protection, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
    );
    // SAFETY: a new mapping, where the kernel has room.
    let addr = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, -1, 0) };
    NonNull::new(addr.cast()).filter(|_| addr != libc::MAP_FAILED)
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
    if bytes < LARGE {
        // SAFETY: the caller owns the whole allocation, which `map` made with this layout, since it is small.
        unsafe { std::alloc::dealloc(addr.as_ptr(), layout(bytes)) };
        return;
    }
    // SAFETY: the caller owns the whole mapping, which `map` made since it is large, and nothing uses it any more.
    let unmapped = unsafe { libc::munmap(addr.as_ptr().cast(), bytes) };
    assert_eq!(unmapped, 0);
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
