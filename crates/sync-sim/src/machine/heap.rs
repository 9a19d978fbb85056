//! The heap of simulated threads.

use core::alloc::{GlobalAlloc, Layout};
use core::ptr::NonNull;
use std::alloc::System;

use super::arena::{self, MOST_ALIGN};
use super::{kernel, region};

/// A heap that gives simulated threads memory of their machine, in whole lines,
/// and everybody else the system's. To be installed by the program:
///
/// ```
/// #[global_allocator]
/// static HEAP: softfault_sync_sim::machine::Heap = softfault_sync_sim::machine::Heap;
/// ```
///
/// Without it, memory that a simulation allocates has no place in the machine: each
/// atomic there has a line of its own, and false sharing is not seen.
#[derive(Debug, Default)]
pub struct Heap;

/// From how many bytes on a block with this layout comes, in the arena.
fn bytes(layout: Layout) -> usize {
    layout.size().max(layout.align())
}

/// The running machine, if memory is to come from it.
#[inline]
fn machine(layout: Layout) -> Option<*mut kernel::Machine> {
    let machine = kernel::machine();
    if machine.is_null() || layout.align() > MOST_ALIGN {
        return None;
    }
    // SAFETY: the machine of this thread. Its own memory is the system's.
    let own = unsafe { (*machine).own_work };
    (!own).then_some(machine)
}

/// The place of a block in the region.
#[inline]
fn place(block: *mut u8) -> Option<usize> {
    region::place(region::base(), block.addr())
}

// SAFETY: blocks are the system's or the arena's, each handed out once, and
// given back to where they came from, which their addresses tell.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match machine(layout) {
            // SAFETY: the machine of this thread; no borrow of its arena lives.
            Some(machine) => pointer(unsafe { (*machine).arena.alloc(bytes(layout), false) }),
            // SAFETY: the caller's promise.
            None => unsafe { System.alloc(layout) },
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match machine(layout) {
            // SAFETY: as in `alloc`.
            Some(machine) => pointer(unsafe { (*machine).arena.alloc(bytes(layout), true) }),
            // SAFETY: the caller's promise.
            None => unsafe { System.alloc_zeroed(layout) },
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let Some(place) = place(block) else {
            // SAFETY: not of the region, so it is the system's.
            return unsafe { System.dealloc(block, layout) };
        };
        // SAFETY: a block of the region, which the caller gives back.
        unsafe { free(block, place, bytes(layout)) };
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if place(block).is_none() && machine(layout).is_none() {
            // SAFETY: the caller's promise.
            return unsafe { System.realloc(block, layout, size) };
        }
        // SAFETY: as the trait's own way: a new block, a copy, the old one freed.
        unsafe {
            let new = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
            if !new.is_null() {
                new.copy_from_nonoverlapping(block, size.min(layout.size()));
                self.dealloc(block, layout);
            }
            new
        }
    }
}

/// Gives a block of the region back: to its machine if that is the caller's.
///
/// # Safety
/// It is a block from `Arena::alloc` for so many bytes, and nobody has it.
pub unsafe fn free(block: *mut u8, place: usize, bytes: usize) {
    let machine = kernel::machine();
    // SAFETY: the machine of this thread; no borrow of its arena lives.
    unsafe {
        match NonNull::new(block) {
            Some(block) if !machine.is_null() && (*machine).arena.has(place) => {
                (*machine).arena.free(block, bytes);
            }
            // Its machine has gone, or runs elsewhere: nobody gets it again
            // before all of the chunk is free.
            _ => arena::discount(place, bytes),
        }
    }
}

fn pointer(block: Option<NonNull<u8>>) -> *mut u8 {
    block.map_or(core::ptr::null_mut(), NonNull::as_ptr)
}
