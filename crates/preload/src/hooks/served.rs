//! Pages that a hook may touch, where faults are signals: those that the engine serves. Other pages with the same mark may be nowhere,
//! or not be readable: the kernel answers EFAULT there, and a touch would end the process.

use super::again::PAGE;
use super::readable::is_page;
use crate::{inside, marked, table};
use core::ops::Range;

/// Answers of the table, of which the last is kept: the next page is mostly of the same part.
#[derive(Default)]
pub struct Served(Range<usize>);

impl Served {
    /// True if the engine serves a page.
    pub fn has(&mut self, page: usize) -> bool {
        if !marked::may_be_taken(page, 1) {
            return false;
        }
        if !self.0.contains(&page) {
            self.0 = ask(page).unwrap_or_default();
        }
        self.0.contains(&page)
    }

    /// True if a page can be read, by the engine's work or without.
    pub fn is_there(&mut self, page: usize) -> bool {
        self.has(page) || is_page(page & !(PAGE - 1))
    }

    /// Bytes from an address on up to a page that is not there.
    pub fn bytes_there(&mut self, start: usize, bytes: usize) -> usize {
        let end = start.saturating_add(bytes);
        let mut at = start;
        while at < end && self.is_there(at) {
            at = (at & !(PAGE - 1)).saturating_add(PAGE).min(end);
        }
        at - start
    }
}

/// The part that the engine serves, of a mapping with that address.
#[cold]
fn ask(page: usize) -> Option<Range<usize>> {
    let _inside = inside::enter()?;
    table::lock().served(page)
}
