//! Memory for the frame pool.

use core::ptr::NonNull;
use softfault_engine::cache::FrameMemory;
use softfault_engine::mmu::TABLE_SPAN;
use sync::pages;

/// Memory from the system, as the engine's own.
pub struct Frames {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: owns the memory; frames are handed out by the pool.
unsafe impl Send for Frames {}
// SAFETY: as above.
unsafe impl Sync for Frames {}

impl Frames {
    /// Address space for `bytes` of frames, in whole chunks.
    pub fn new(bytes: usize) -> Option<Self> {
        let bytes = bytes.next_multiple_of(TABLE_SPAN);
        let base = pages::map(bytes)?;
        Some(Self { base, bytes })
    }
}

impl FrameMemory for Frames {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn provide(&self, chunk: usize) -> Option<NonNull<u8>> {
        assert!((chunk + 1) * TABLE_SPAN <= self.bytes);
        // SAFETY: within the memory, as just asserted.
        Some(unsafe { self.base.add(chunk * TABLE_SPAN) })
    }

    /// The memory stays: there is enough of it, and it is not measured.
    fn discard(&self, _chunk: usize, _at: NonNull<u8>) {}
}

impl Drop for Frames {
    fn drop(&mut self) {
        // SAFETY: the whole mapping; the pool is gone.
        unsafe { pages::unmap(self.base, self.bytes) };
    }
}
