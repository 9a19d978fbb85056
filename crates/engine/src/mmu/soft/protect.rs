//! Taking the leave to write away, and giving it back.

use super::entry::Pte;
use super::tables::{NoFrame, Tables};
use super::zap::Detached;
use crate::PAGE_SIZE;
use crate::mmu::PartialMove;
use core::ops::Range;
use core::slice;

impl<const N: usize> Tables<N> {
    /// Nobody writes to the pages of the ranges any more when it returns.
    pub fn protect(&self, ranges: &[Range<usize>]) {
        let mut any = false;
        for range in ranges {
            self.for_each_leaf(range.clone(), |mut leaf, part| {
                for page in part.step_by(PAGE_SIZE) {
                    let entry: Pte = leaf.entry(page);
                    if entry.is_writable() {
                        leaf.replace(page, entry.protected());
                    }
                    // Another may just have protected it, and not waited yet for the writers.
                    any |= entry.is_present();
                }
            });
        }
        // Some cores may still write by their buffered translations.
        if any {
            self.cores.shootdown();
        }
    }

    /// Where the bytes of the page at `addr` are, which is present and stays.
    pub fn bytes(&self, addr: usize) -> *const u8 {
        let entry = self.walk(addr);
        assert!(entry.is_present(), "bytes of a missing page, {addr:#x}");
        self.frames.address(entry.frame()).as_ptr()
    }

    /// Moves the pages of `from`, which nobody uses meanwhile, to the same
    /// distances from `to`, where nothing is. If there is no frame for a table,
    /// the pages before that have moved, and the others have not.
    pub fn move_pages(&self, from: Range<usize>, to: usize) -> Result<(), PartialMove> {
        let distance = to.wrapping_sub(from.start);
        let mut done = Ok(());
        let mut addr = from.start;
        while addr < from.end && done.is_ok() {
            addr = match self.leaf(addr).map(|leaf| leaf.entry(addr)) {
                Err(next) => next.min(from.end),
                Ok(entry) => {
                    if entry.is_present() {
                        done = self.move_page(addr, addr.wrapping_add(distance), entry);
                    }
                    addr + PAGE_SIZE
                }
            };
        }
        // At the old place only empty leaves and some buffered translations
        // are left.
        let end = match done {
            Ok(()) => from.end,
            Err(NoFrame) => addr - PAGE_SIZE,
        };
        self.zap(slice::from_ref(&(from.start..end)));
        done.map_err(|error| PartialMove {
            error: error.into(),
            moved: end - from.start,
        })
    }

    /// One page, of which `entry` is the entry. Both leaves may be one, so they
    /// are locked one after the other.
    fn move_page(&self, from: usize, to: usize, entry: Pte) -> Result<(), NoFrame> {
        self.make_leaf(to)?.set(to, entry);
        match self.leaf(from) {
            Ok(mut leaf) => leaf.clear(from),
            Err(_) => unreachable!("a page without its leaf, {from:#x}"),
        }
        Ok(())
    }

    /// The page at `addr`, if it is there, becomes the window's own and writable:
    /// copied if it is shared, or a hole.
    pub fn make_writable(&self, addr: usize) -> Result<(), NoFrame> {
        let Ok(mut leaf) = self.leaf(addr) else {
            return Ok(());
        };
        let old = leaf.entry(addr);
        if !old.is_present() || old.is_writable() {
            return Ok(());
        }
        if let Some(frame) = old.owned()
            && (!old.is_shared() || self.frames.is_only(frame))
        {
            // It was protected; or the others have copied theirs, or gone.
            leaf.replace(addr, Pte::writable(frame));
            return Ok(());
        }
        let own = self.frames.alloc_one().ok_or(NoFrame)?;
        // SAFETY: the frame is new, and in nobody's sight. The old one is
        // written to by no thread: holes never are, and shared frames are not
        // while we have a reference to it.
        unsafe {
            let source = self.frames.address(old.frame()).as_ptr();
            self.frames.copy_from(own, source);
        }
        // First for reading only: until the shootdown some read the old one,
        // which is the same as long as nobody writes to the new one.
        leaf.replace(addr, Pte::read_only(own));
        let mut detached = Detached::new();
        if let Some(frame) = old.owned() {
            detached.push(self, frame);
        }
        self.free_detached(detached);
        leaf.replace(addr, Pte::writable(own));
        Ok(())
    }
}
