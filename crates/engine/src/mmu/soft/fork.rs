//! Sharing pages after a fork, and copying them when they are written to.

use super::entry::Entry;
use super::tables::{NoFrame, Tables};
use super::zap::Dead;
use crate::PAGE_SIZE;
use core::ops::Range;

impl<const N: usize> Tables<N> {
    /// Lets the pages from `child` on, where nothing is and nobody looks, show
    /// what those of `parent` show. From its return on nobody writes to what
    /// both show.
    ///
    /// Lock rule: a leaf of the child under one of the parent.
    pub fn fork(&self, parent: Range<usize>, child: usize) -> Result<(), NoFrame> {
        let mut done = Ok(());
        let distance = child.wrapping_sub(parent.start);
        self.for_each_leaf(parent, |mut leaf, part| {
            if leaf.used() == 0 || done.is_err() {
                return;
            }
            // Windows begin where leaves do, so one leaf serves one leaf.
            let mut copy = match self.make_leaf(part.start.wrapping_add(distance)) {
                Ok(copy) => copy,
                Err(error) => return done = Err(error),
            };
            for page in part.step_by(PAGE_SIZE) {
                let entry = leaf.entry(page);
                if entry.is_present() {
                    if let Some(frame) = entry.owned() {
                        self.frames.get(frame);
                    }
                    leaf.replace(page, entry.shared());
                    copy.set(page.wrapping_add(distance), entry.shared());
                }
            }
        });
        // Some may still write by what they have buffered.
        self.cores.shootdown();
        done
    }

    /// The page at `addr` becomes the window's own and writable, if it is
    /// there and shared, or a hole.
    pub fn unshare(&self, addr: usize) -> Result<(), NoFrame> {
        let Ok(mut leaf) = self.leaf(addr) else {
            return Ok(());
        };
        let old = leaf.entry(addr);
        if !old.is_shared() && old != Entry::HOLE {
            return Ok(());
        }
        if let Some(frame) = old.owned()
            && self.frames.is_only(frame)
        {
            // The others have copied theirs, or gone.
            leaf.replace(addr, Entry::writable(frame));
            return Ok(());
        }
        let own = self.frames.alloc_one().ok_or(NoFrame)?;
        // SAFETY: the frame is new, and in nobody's sight. The old one is
        // written to by nobody: holes never are, and what is shared is not
        // while we have a reference to it.
        unsafe {
            let source = self.frames.address(old.frame()).as_ptr();
            self.frames.copy_from(own, source);
        }
        // First for reading only: until the shootdown some read the old one,
        // which is the same as long as nobody writes to the new one.
        leaf.replace(addr, Entry::read_only(own));
        let mut dead = Dead::new();
        if let Some(frame) = old.owned() {
            dead.push(self, frame);
        }
        self.bury(dead);
        leaf.replace(addr, Entry::writable(own));
        Ok(())
    }
}
