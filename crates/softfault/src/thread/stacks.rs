//! Address space for the stacks of threads that begin when the program is long under way.
//!
//! The kernel maps a new stack in the highest gap where it fits. That may be a hole that the program has left in a range of its own, as
//! mremap(2) of a part of it does; and a program with one thread may unmap such a range later as a whole, the hole with it, because
//! nobody else maps anything there. So the addresses are taken together, before the first of these threads begins.

use core::ffi::c_void;
use core::ops::Range;
use core::ptr::NonNull;
use softfault_engine::PAGE_SIZE;
use sync::pages;

/// Room for some stacks, each with a page below it that is never there.
#[derive(Debug)]
pub(crate) struct Stacks {
    /// Never unmapped.
    start: usize,
    /// Bytes of each, with that page.
    each: usize,
    count: usize,
}

impl Stacks {
    /// Room for `count` stacks of so many bytes beside the C library's own. `None` where the system has no address space for it.
    pub(crate) fn reserve(count: usize, stack: usize) -> Option<Self> {
        let each = PAGE_SIZE + super::with_least_stack(stack).next_multiple_of(PAGE_SIZE);
        let start = pages::reserve(count * each).ok()?;
        Some(Self {
            start: start.as_ptr() as usize,
            each,
            count,
        })
    }

    /// The stack of that number, which may be written to from now on. `None` where the system refuses that. No thread that lives has
    /// it.
    pub(super) fn stack(&self, number: usize) -> Option<(*mut c_void, usize)> {
        let range = self.range(number);
        let start = NonNull::new(range.start as *mut u8)?;
        // SAFETY: a part of the range that was reserved, which nobody uses.
        let opened = unsafe { pages::open(start, range.len()) };
        let start = start.as_ptr().cast();
        // SAFETY: as above. Reserved space is in no core dump, and a stack belongs there.
        unsafe { sync::kernel_calls::madvise(start, range.len(), libc::MADV_DODUMP) };
        opened.then_some((start, range.len()))
    }

    fn range(&self, number: usize) -> Range<usize> {
        assert!(number < self.count, "there are fewer stacks");
        let start = self.start + number * self.each;
        start + PAGE_SIZE..start + self.each
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thread::start_on;
    use std::sync::mpsc;

    #[test]
    fn threads_run_on_their_stacks_one_after_the_other() {
        let stacks = Stacks::reserve(3, 64 << 10).unwrap();
        for number in [0, 2, 1, 2] {
            let (send, on) = mpsc::channel();
            let work = move || {
                let local = 0_u8;
                send.send((&raw const local).addr()).unwrap();
            };
            let thread = start_on(Some((&stacks, number)), c"stack", 64 << 10, work).unwrap();
            assert!(stacks.range(number).contains(&on.recv().unwrap()));
            thread.join();
        }
    }
}
