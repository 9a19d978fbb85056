//! Mapping: pages as copies, as zeroed memory, as holes.

use super::chain::Chain;
use super::entry::Pte;
use super::frames::ZEROS;
use super::tables::{NoFrame, Tables};
use crate::PAGE_SIZE;
use core::ops::Range;

/// The most pages that are prepared at a time; bounds the handler's stack.
const RUN: usize = 16;

impl<const N: usize> Tables<N> {
    /// Maps copies of the pages at `source` over `range`, where nothing is.
    ///
    /// # Safety
    /// `source` is readable for as many bytes as the range has.
    pub unsafe fn copy(
        &self,
        range: Range<usize>,
        source: *const u8,
        writable: bool,
    ) -> Result<(), NoFrame> {
        let start = range.start;
        self.map(range, writable, |frame, addr| {
            // SAFETY: the frame is new, and in nobody's sight; the source has
            // a page for each of the range, says the caller.
            unsafe { self.frames.copy_from(frame, source.add(addr - start)) };
        })
    }

    /// Maps zeroed memory over `range`, where nothing is.
    pub fn fill(&self, range: Range<usize>) -> Result<(), NoFrame> {
        self.map(range, true, |frame, _| {
            // SAFETY: the frame is new, and in nobody's sight.
            unsafe { self.frames.clear(frame) };
        })
    }

    /// Maps new frames over `range`, each filled by `prepare`, which is told
    /// the address. The frames are prepared under no lock.
    fn map(
        &self,
        range: Range<usize>,
        writable: bool,
        prepare: impl Fn(u32, usize),
    ) -> Result<(), NoFrame> {
        let mut addr = range.start;
        while addr < range.end {
            let table_end = (addr & !(Self::SPAN - 1)) + Self::SPAN;
            let end = range.end.min(table_end).min(addr + RUN * PAGE_SIZE);
            let mut frames = [ZEROS; RUN];
            let frames = &mut frames[..(end - addr).div_ceil(PAGE_SIZE)];
            if !self.frames.alloc(frames) {
                return Err(NoFrame);
            }
            for (&frame, page) in frames.iter().zip((addr..).step_by(PAGE_SIZE)) {
                prepare(frame, page);
            }
            self.install(addr, frames, writable)?;
            addr = end;
        }
        Ok(())
    }

    /// Lets the pages from `addr` on, which are of one leaf, show the frames.
    /// Frames for which there is something else are freed.
    fn install(&self, addr: usize, frames: &[u32], writable: bool) -> Result<(), NoFrame> {
        let entry = match writable {
            true => Pte::writable,
            false => Pte::read_only,
        };
        let mut unused = Chain::default();
        let leaf = self.make_leaf(addr);
        let done = leaf.as_ref().map(|_| ()).map_err(|error| *error);
        let mut leaf = leaf.ok();
        for (&frame, page) in frames.iter().zip((addr..).step_by(PAGE_SIZE)) {
            match &mut leaf {
                Some(leaf) if !leaf.entry(page).is_present() => leaf.set(page, entry(frame)),
                _ => unused.push(&self.frames, frame),
            }
        }
        drop(leaf);
        if !unused.is_empty() {
            self.frames.free(unused);
        }
        done
    }

    /// Maps zeros without memory over `range`, where nothing is.
    pub fn hole(&self, range: Range<usize>) -> Result<(), NoFrame> {
        let mut addr = range.start;
        while addr < range.end {
            let mut leaf = self.make_leaf(addr)?;
            let end = range.end.min((addr & !(Self::SPAN - 1)) + Self::SPAN);
            while addr < end {
                if !leaf.entry(addr).is_present() {
                    leaf.set(addr, Pte::HOLE);
                }
                addr += PAGE_SIZE;
            }
        }
        Ok(())
    }
}
