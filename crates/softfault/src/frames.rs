//! Memory for the frame pool.

use crate::generation::ProcessGeneration;
use core::ptr::NonNull;
use libc::c_void;
use softfault_engine::cache::FrameMemory;
use softfault_engine::mmu::TABLE_SPAN;

/// Anonymous memory, a mapping a chunk: nothing is reserved, so `mlockall` locks, and
/// `RLIMIT_AS` counts, no more than the pool has.
///
/// In huge pages where the machine gives them: the pool takes and gives 2 MiB at a
/// time, and large I/O wants few pieces.
pub struct AnonymousFrames {
    bytes: usize,
    generation: ProcessGeneration,
}

impl AnonymousFrames {
    /// No frames yet; at most `bytes` of them.
    pub fn new(bytes: usize) -> Self {
        Self {
            bytes: bytes.next_multiple_of(TABLE_SPAN),
            generation: ProcessGeneration::here(),
        }
    }
}

impl FrameMemory for AnonymousFrames {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn provide(&self, _chunk: usize) -> Option<NonNull<u8>> {
        let at = aligned()?;
        let addr = at.as_ptr().cast::<c_void>();
        for advice in [libc::MADV_HUGEPAGE, libc::MADV_DONTFORK] {
            // SAFETY: advice about a mapping that was just made. Machines without huge
            // pages refuse the first.
            unsafe { sync::kernel_calls::madvise(addr, TABLE_SPAN, advice) };
        }
        // SAFETY: all of the range that was just reserved.
        if unsafe { sync::pages::open(at, TABLE_SPAN) } {
            return Some(at);
        }
        unmap(at.as_ptr() as usize, TABLE_SPAN);
        None
    }

    fn discard(&self, _chunk: usize, at: NonNull<u8>) {
        // In a child it is the parent's, and was not inherited.
        if !self.generation.is_parents() {
            unmap(at.as_ptr() as usize, TABLE_SPAN);
        }
    }
}

/// Address space for a chunk, where a huge page may be.
fn aligned() -> Option<NonNull<u8>> {
    let at = sync::pages::reserve(TABLE_SPAN).ok()?;
    // As Linux places them from 6.7 on, and often before.
    if (at.as_ptr() as usize).is_multiple_of(TABLE_SPAN) {
        return Some(at);
    }
    unmap(at.as_ptr() as usize, TABLE_SPAN);
    let wide = sync::pages::reserve(2 * TABLE_SPAN).ok()?.as_ptr() as usize;
    let start = wide.next_multiple_of(TABLE_SPAN);
    unmap(wide, start - wide);
    unmap(start + TABLE_SPAN, wide + TABLE_SPAN - start);
    NonNull::new(core::ptr::with_exposed_provenance_mut(start))
}

/// Gives back mapped memory that is not used.
fn unmap(start: usize, bytes: usize) {
    if bytes > 0 {
        // SAFETY: of a mapping made here; the pool says that nobody uses it.
        unsafe { sync::kernel_calls::munmap(start as *mut c_void, bytes) };
    }
}
