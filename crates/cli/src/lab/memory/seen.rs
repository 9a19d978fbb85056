//! The versions of all pages before and after a fork, in memory that parent and child share: the parent notes
//! the writes that had begun when the child is already there.

use super::pages::Pages;
use super::versions::Seen;
use crate::lab::files;
use memmap2::MmapRaw;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::Duration;

/// A word, then two for each page.
pub struct Range {
    map: MmapRaw,
    pages: u64,
}

impl Range {
    /// For so many pages, nothing noted yet.
    pub fn new(pages: u64) -> io::Result<Self> {
        let file = files::in_memory(libc::MFD_CLOEXEC)?;
        file.set_len((1 + 2 * pages) * 4)?;
        let map = MmapRaw::map_raw(&file)?;
        Ok(Self { map, pages })
    }

    fn words(&self) -> &[AtomicU32] {
        let count = 1 + 2 * self.pages as usize;
        // SAFETY: the map has room for so many words, is page-aligned, lives as long as `self`, and holds
        // atomics, for which any bits are valid.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().cast::<AtomicU32>(), count) }
    }

    /// Notes the writes before the fork.
    pub fn note_done(&self, pages: &Pages) {
        for page in 0..self.pages {
            // Relaxed: the fork orders it before all that the child does.
            self.words()[1 + 2 * page as usize].store(pages.seen(page).done, Ordering::Relaxed);
        }
    }

    /// Notes the writes that may have come before the fork returned.
    pub fn note_begun(&self, pages: &Pages) {
        for page in 0..self.pages {
            self.words()[2 + 2 * page as usize].store(pages.seen(page).begun, Ordering::Relaxed);
        }
        // Release, with the Acquire in `wait`.
        self.words()[0].store(1, Ordering::Release);
    }

    /// The child: waits for the parent's notes after the fork.
    pub fn wait(&self) {
        // Acquire, with the Release in `note_begun`.
        while self.words()[0].load(Ordering::Acquire) == 0 {
            sleep(Duration::from_millis(1));
        }
    }

    /// The contents that a page may have in the child.
    pub fn seen(&self, page: u64) -> Seen {
        let word = |at: u64| self.words()[(at + 2 * page) as usize].load(Ordering::Relaxed);
        Seen {
            done: word(1),
            begun: word(2),
        }
    }
}
