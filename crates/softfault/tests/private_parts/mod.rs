//! Private memory of which parts come and go: each page has a word of its own in its middle.

use std::ops::Range;

pub const PAGE: usize = 4096;
pub const MEMORY: usize = 8 << 20;
/// Pages of the maps: three times what the budget has room for.
pub const PAGES: usize = 3 * MEMORY / PAGE;

pub fn addresses(start: usize, pages: &Range<usize>) -> Range<usize> {
    start + pages.start * PAGE..start + pages.end * PAGE
}

pub fn word(page: usize, version: usize) -> u64 {
    ((page + PAGES * version) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
}

/// The word in the middle of a page, wherever it is served from.
pub fn place(start: usize, page: usize) -> *mut u64 {
    (start + page * PAGE + PAGE / 2) as *mut u64
}

pub fn write(start: usize, pages: Range<usize>, version: usize) {
    for page in pages {
        // SAFETY: mapped, and nobody has a reference to it.
        unsafe { place(start, page).write_volatile(word(page, version)) };
    }
}

/// Each page has the word that `is` says.
#[track_caller]
pub fn check(start: usize, pages: Range<usize>, is: impl Fn(usize) -> u64) {
    for page in pages {
        // SAFETY: as above.
        let found = unsafe { place(start, page).read_volatile() };
        assert_eq!(found, is(page), "page {page}");
    }
}
