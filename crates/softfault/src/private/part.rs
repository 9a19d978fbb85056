//! The state for another map that is to begin as a part of this one.

use super::{FilePart, Private};
use core::ops::Range;
use softfault_engine::PAGE_SIZE;

impl Private {
    /// The file from a page on, if it begins as one.
    pub(crate) fn file_from(&self, page: usize) -> Option<FilePart> {
        let private_file = self.anon.private_file()?;
        Some(FilePart {
            store: self.file.clone()?,
            offset: private_file.offset + (page - self.anon.addresses().start) as u64,
            on_truncate: self.anon.on_truncate(),
        })
    }

    /// Of some pages those that may differ from untouched ones, in order: resident, or in swap. Exact while nobody writes to them.
    pub(crate) fn touched(&self, pages: &Range<usize>) -> Vec<Range<usize>> {
        let is_zeros = self.is_zero_filled();
        let is_touched = |page: usize| {
            let state = self.anon.page_state(page);
            !(state.is_absent() || is_zeros && state.is_zero())
        };
        let mut touched: Vec<Range<usize>> = Vec::new();
        for page in pages
            .clone()
            .step_by(PAGE_SIZE)
            .filter(|&page| is_touched(page))
        {
            match touched.last_mut() {
                Some(last) if last.end == page => last.end += PAGE_SIZE,
                _ => touched.push(page..page + PAGE_SIZE),
            }
        }
        touched
    }
}
