//! Memory for the frame pool.

use crate::fork::Born;
use core::ptr::NonNull;
use libc::c_void;
use softfault_engine::cache::FrameMemory;
use softfault_engine::mmu::TABLE_SPAN;

/// Anonymous memory, in huge pages where the machine gives them: the pool
/// takes and gives 2 MiB at a time, and large I/O wants few pieces.
pub struct AnonymousFrames {
    base: NonNull<u8>,
    mapped: NonNull<u8>,
    bytes: usize,
    born: Born,
}

// SAFETY: owns the mapping; frames are handed out by the pool.
unsafe impl Send for AnonymousFrames {}
// SAFETY: as above.
unsafe impl Sync for AnonymousFrames {}

impl AnonymousFrames {
    /// Address space for `bytes` of frames. `None` where there is none.
    pub fn new(bytes: usize) -> Option<Self> {
        let bytes = bytes.next_multiple_of(TABLE_SPAN);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let mapped = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                bytes + TABLE_SPAN,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if mapped == libc::MAP_FAILED {
            return None;
        }
        let mapped = NonNull::new(mapped.cast::<u8>())?;
        let skip = mapped.as_ptr().align_offset(TABLE_SPAN);
        // SAFETY: within the mapping; advice about it.
        let base = unsafe {
            let base = mapped.add(skip);
            let addr = base.as_ptr().cast::<c_void>();
            libc::madvise(addr, bytes, libc::MADV_HUGEPAGE);
            libc::madvise(addr, bytes, libc::MADV_DONTFORK);
            base
        };
        Some(Self {
            base,
            mapped,
            bytes,
            born: Born::here(),
        })
    }
}

impl FrameMemory for AnonymousFrames {
    fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn discard(&self, offset: usize, bytes: usize) {
        assert!(offset + bytes <= self.bytes);
        // SAFETY: within the mapping; the pool says that nobody uses it.
        unsafe {
            let addr = self.base.add(offset).as_ptr().cast::<c_void>();
            libc::madvise(addr, bytes, libc::MADV_DONTNEED);
        }
    }
}

impl Drop for AnonymousFrames {
    fn drop(&mut self) {
        if self.born.is_parents() {
            return;
        }
        // SAFETY: the whole mapping; the pool is gone.
        unsafe { libc::munmap(self.mapped.as_ptr().cast(), self.bytes + TABLE_SPAN) };
    }
}
