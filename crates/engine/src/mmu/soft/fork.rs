//! Sharing pages after a fork.

use super::tables::{NoFrame, Tables};
use crate::PAGE_SIZE;
use core::ops::Range;

impl<const N: usize> Tables<N> {
    /// Lets the pages from `child` on, where nothing is mapped and no thread looks, show
    /// the frames of `parent`. From its return on no thread writes to frames that
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
        // Some cores may still write by their buffered translations.
        self.cores.shootdown();
        done
    }
}
