//! Making a file shorter, or a hole in it.
//!
//! First everything is taken out of all mappings at once; then page by page, each under
//! its fault mutex, is taken out of the file. A fault that came in between has mapped
//! its page again: it is taken out once more, and no other can come.

use super::HugeError;
use super::file::{FileSlot, HugeFile};
use crate::policy::ShareSync;
use core::ops::Range;

impl HugeFile {
    /// Gives the file another length, in pages, up to its capacity (`ftruncate(2)`). Pages
    /// beyond it are gone: touches there fail.
    pub fn truncate(&self, pages: u64) -> Result<(), HugeError> {
        if pages > self.capacity() {
            return Err(HugeError::Range);
        }
        let _resize = self.resize.lock();
        let before = self.len();
        if pages >= before {
            self.set_len(pages);
            return Ok(());
        }
        self.remove_pages(pages..before, false);
        Ok(())
    }

    /// Makes a hole of `indexes` (`fallocate(2)` with `FALLOC_FL_PUNCH_HOLE`): they are
    /// zeros again. Their pages go back to the pool, but those that are promised to a
    /// mapping stay promised.
    pub fn punch_hole(&self, indexes: Range<u64>) -> Result<(), HugeError> {
        if indexes.is_empty() || indexes.end > self.capacity() {
            return Err(HugeError::Range);
        }
        let _resize = self.resize.lock();
        self.remove_pages(indexes, true);
        Ok(())
    }

    fn remove_pages(&self, indexes: Range<u64>, is_hole: bool) {
        // The baseline has faults waiting for all of it.
        let baseline = self.pool.sync == ShareSync::IMmapRwsem;
        let i_mmap = baseline.then(|| self.i_mmap.lock.write());
        if !is_hole {
            // Faults that have their mutex after this see it.
            self.set_len(indexes.start);
        }
        self.unmap_pages(&indexes, i_mmap.as_ref());
        for index in indexes {
            if is_hole && self.at(index) == FileSlot::Hole {
                // A page that comes now came after the hole.
                continue;
            }
            let _mutex = self.pool.mutexes.of(self.id, index).lock.lock();
            if let FileSlot::Page(page) = self.at(index)
                && self.pool.mapped(page) > 0
            {
                self.unmap_pages(&(index..index + 1), i_mmap.as_ref());
            }
            self.remove(index, is_hole);
        }
    }
}
