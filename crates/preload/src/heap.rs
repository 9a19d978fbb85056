//! A heap of our own: a hook may be called by the program's malloc, and a fault may interrupt it.
//!
//! Its memory is the kernel's, past all hooks, and it is still while the process forks: a child has one that is whole,
//! however it was forked.

use crate::{block_list, call};
use core::alloc::{GlobalAlloc, Layout};
use core::cell::{Cell, UnsafeCell};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use dlmalloc::{Allocator, Dlmalloc};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The heap.
pub struct Heap;

/// Its allocator.
struct Parts(Dlmalloc<Kernel>);

static PARTS: Mutex<Parts> = Mutex::new(Parts(Dlmalloc::new_with_allocator(Kernel)));

// SAFETY: its pointers lead to memory that is nobody else's.
unsafe impl Send for Parts {}

fn lock() -> MutexGuard<'static, Parts> {
    PARTS.lock().unwrap_or_else(PoisonError::into_inner)
}

// SAFETY: dlmalloc's, one call at a time.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise, as below.
        unsafe { lock().0.malloc(layout.size(), layout.align()) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { lock().0.free(start, layout.size(), layout.align()) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe { lock().0.calloc(layout.size(), layout.align()) }
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let mut heap = lock();
        // SAFETY: as above.
        unsafe { heap.0.realloc(start, layout.size(), layout.align(), size) }
    }
}

/// The lock of the forking thread.
struct Held(UnsafeCell<Option<MutexGuard<'static, Parts>>>);

// SAFETY: only the thread that has the heap locked looks at it.
unsafe impl Sync for Held {}

static HELD: Held = Held(UnsafeCell::new(None));

thread_local! {
    /// How often this thread holds it: a handler of a fork may fork.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Before the process forks; nothing is allocated until it is let go.
pub extern "C" fn hold() {
    if DEPTH.replace(DEPTH.get() + 1) == 0 {
        // In front of the heap, from which the list has its memory.
        block_list::hold();
        let locked = lock();
        // SAFETY: this thread has the heap locked.
        unsafe { *HELD.0.get() = Some(locked) };
    }
}

/// After it, in the parent.
pub extern "C" fn let_go() {
    // 0 in a child that was forked by a handler, within the fork that it goes on with.
    match DEPTH.get() {
        0 => {}
        1 => let_go_in_child(),
        depth => DEPTH.set(depth - 1),
    }
}

/// After it, in the child.
pub extern "C" fn let_go_in_child() {
    DEPTH.set(0);
    // SAFETY: this thread has locked the heap in `hold`, or its parent's copy of it has.
    drop(unsafe { (*HELD.0.get()).take() });
    block_list::let_go();
}

/// True in a thread that holds it for a fork: nothing can be allocated. It is a handler that asks, of a library that found
/// `__register_atfork` by dlsym(3) and so came past our hook, before ours.
pub fn is_held() -> bool {
    DEPTH.get() > 0
}

/// Memory for when the kernel has none, for lack of addresses or of mappings. The program may be about to give some back, by a
/// call for which a list has to grow, and an allocation that fails ends the process. It is handed out once, and stays with the heap.
#[repr(align(4096))]
struct Reserve(UnsafeCell<[u8; RESERVE]>);

const RESERVE: usize = 1 << 20;

// SAFETY: only the heap hands it out, once and under its lock; from then on each byte belongs to one allocation.
unsafe impl Sync for Reserve {}

static RESERVED: Reserve = Reserve(UnsafeCell::new([0; RESERVE]));

/// The mark of its part of the heap, above dlmalloc's own bits. With it no mapping that happens to lie beside it is joined to it.
const OF_RESERVE: u32 = 2;

/// True when it was handed out. Relaxed: the heap is locked.
static IS_HANDED_OUT: AtomicBool = AtomicBool::new(false);

/// All of it, if it is there yet and has so many bytes.
fn reserve(size: usize) -> (*mut u8, usize, u32) {
    match size <= RESERVE && !IS_HANDED_OUT.swap(true, Relaxed) {
        true => (RESERVED.0.get().cast(), RESERVE, OF_RESERVE),
        false => (null_mut(), 0, 0),
    }
}

/// True of a part of it: it is no mapping that could go or grow.
fn is_reserve(start: *mut u8) -> bool {
    let reserve: *mut u8 = RESERVED.0.get().cast();
    (reserve..reserve.wrapping_add(RESERVE)).contains(&start)
}

/// The kernel's memory.
struct Kernel;

// SAFETY: the memory that it maps is new, and no one else's.
unsafe impl Allocator for Kernel {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: new memory.
        let mapped = unsafe { call::mmap(null_mut(), size, protection, flags, -1, 0) };
        match mapped {
            libc::MAP_FAILED => reserve(size),
            mapped => (mapped.cast(), size, 0),
        }
    }

    fn remap(&self, start: *mut u8, old: usize, new: usize, may_move: bool) -> *mut u8 {
        if is_reserve(start) {
            return null_mut();
        }
        let flags = if may_move { libc::MREMAP_MAYMOVE } else { 0 };
        // SAFETY: dlmalloc's own, which nobody refers to meanwhile.
        let mapped = unsafe { call::mremap(start.cast(), old, new, flags, null_mut()) };
        match mapped {
            libc::MAP_FAILED => null_mut(),
            mapped => mapped.cast(),
        }
    }

    fn free_part(&self, start: *mut u8, old: usize, new: usize) -> bool {
        self.free(start.wrapping_add(new), old - new)
    }

    fn free(&self, start: *mut u8, size: usize) -> bool {
        // SAFETY: dlmalloc's own, which nobody refers to any more.
        !is_reserve(start)
            && unsafe { call::any(libc::SYS_munmap, [start as usize, size, 0, 0]) == 0 }
    }

    fn can_release_part(&self, _: u32) -> bool {
        true
    }

    fn allocates_zeros(&self) -> bool {
        true
    }

    fn page_size(&self) -> usize {
        crate::decide::PAGE
    }
}
