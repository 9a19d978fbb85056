//! A machine's memory: blocks of whole lines, in sizes, from its chunks of the
//! region. Freed blocks are handed out again last in, first out, so that
//! places depend on the run alone.

use core::ptr::NonNull;

use super::line::Line;
use super::region::{self, CHUNK, LINE};

/// Classes: multiples of a line up to this, powers of two above.
const FINE: usize = 1024;
const FINE_CLASSES: usize = FINE / LINE;
const CLASSES: usize = FINE_CLASSES + (CHUNK / FINE).trailing_zeros() as usize + 1;
/// Blocks from here on go back to the system when they are given back.
const LARGE: usize = 1 << 20;
/// The greatest alignment that blocks of their own size have by themselves.
pub const MOST_ALIGN: usize = 4096;

/// The memory of a run.
#[derive(Debug)]
pub struct Arena {
    run: u32,
    base: usize,
    /// Places of its chunks.
    chunks: Vec<usize>,
    /// Where the rest of the current chunk begins and ends.
    next: usize,
    end: usize,
    /// The last block given back, by class; each holds the one before.
    free: [usize; CLASSES],
}

/// The class of a size, and its bytes.
fn class(bytes: usize) -> (usize, usize) {
    if bytes <= FINE {
        let lines = bytes.div_ceil(LINE).max(1);
        (lines - 1, lines * LINE)
    } else {
        let rounded = bytes.next_power_of_two();
        let above = (rounded / FINE).trailing_zeros() as usize;
        (FINE_CLASSES - 1 + above, rounded)
    }
}

impl Arena {
    pub fn new(run: u32) -> Self {
        region::reserve().expect("the system has address space for a simulated machine");
        Self {
            run,
            base: region::base(),
            chunks: Vec::with_capacity(64),
            next: 0,
            end: 0,
            free: [0; CLASSES],
        }
    }

    /// A block of at least so many bytes, zeroed or not, aligned to a line, and
    /// to its size up to [`MOST_ALIGN`]. Its lines are nobody's.
    pub fn alloc(&mut self, bytes: usize, zeroed: bool) -> Option<NonNull<u8>> {
        if bytes > CHUNK {
            return self.alloc_chunks(bytes);
        }
        let (class, bytes) = class(bytes);
        let block = self.free[class];
        if block == 0 {
            return self.fresh(bytes);
        }
        let pointer = core::ptr::with_exposed_provenance_mut::<u8>(block);
        // SAFETY: a block of this class that nobody has. A large one was cleaned
        // when it was given back; its first word alone is in use.
        unsafe {
            self.free[class] = pointer.cast::<usize>().read();
            if bytes >= LARGE {
                pointer.cast::<usize>().write(0);
            } else {
                if zeroed {
                    pointer.write_bytes(0, bytes);
                }
                self.forget_lines(block, bytes);
            }
        }
        region::count(block - self.base);
        NonNull::new(pointer)
    }

    /// A block that nobody had before.
    fn fresh(&mut self, bytes: usize) -> Option<NonNull<u8>> {
        let align = bytes.next_power_of_two().min(MOST_ALIGN);
        let mut begin = self.next.next_multiple_of(align);
        if begin + bytes > self.end {
            let place = region::take(1, self.run)?;
            self.chunks.push(place);
            begin = self.base + place;
            self.end = begin + CHUNK;
        }
        self.next = begin + bytes;
        region::count(begin - self.base);
        NonNull::new(core::ptr::with_exposed_provenance_mut(begin))
    }

    fn alloc_chunks(&mut self, bytes: usize) -> Option<NonNull<u8>> {
        let chunks = bytes.div_ceil(CHUNK);
        let place = region::take(chunks, self.run)?;
        for chunk in 0..chunks {
            self.chunks.push(place + chunk * CHUNK);
            region::count(place + chunk * CHUNK);
        }
        NonNull::new(core::ptr::with_exposed_provenance_mut(self.base + place))
    }

    /// Lines of memory that is handed out again are nobody's.
    ///
    /// # Safety
    /// The block is one of the region's, and nobody has it.
    unsafe fn forget_lines(&self, block: usize, bytes: usize) {
        let states = region::states() + (block - self.base);
        for place in (0..bytes).step_by(LINE) {
            let line = core::ptr::with_exposed_provenance_mut::<Line>(states + place);
            // SAFETY: within the reservation of states, which this thread uses.
            // Written only where something was: the rest stays untouched.
            unsafe {
                if (*line).is_of(self.run) {
                    line.write(Line::new(0, 0));
                }
            }
        }
    }

    /// Takes a block back that is this machine's.
    ///
    /// # Safety
    /// It came from `alloc` for so many bytes, and nobody has it.
    pub unsafe fn free(&mut self, block: NonNull<u8>, bytes: usize) {
        let place = block.addr().get() - self.base;
        if bytes > CHUNK {
            region::clean(place, bytes.next_multiple_of(CHUNK));
            discount(place, bytes);
            return;
        }
        let (class, bytes) = class(bytes);
        if bytes >= LARGE {
            region::clean(place, bytes);
        }
        // SAFETY: the block is ours again.
        unsafe { block.cast::<usize>().write(self.free[class]) };
        self.free[class] = block.addr().get();
        region::discount(place);
    }

    /// True if the block at a place of the region is of this machine.
    #[inline]
    pub fn has(&self, place: usize) -> bool {
        region::run_of(place) == self.run
    }
}

/// A block of so many bytes is gone, from whichever machine.
pub fn discount(place: usize, bytes: usize) {
    for chunk in 0..bytes.div_ceil(CHUNK).max(1) {
        region::discount(place + chunk * CHUNK);
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        for &place in &self.chunks {
            region::discount(place);
        }
    }
}
