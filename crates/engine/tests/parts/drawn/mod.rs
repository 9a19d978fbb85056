//! Address spaces drawn as rows of letters, a letter a page.
//!
//! `-` is a hole; equal letters side by side are one VMA; a capital letter has
//! the plain attributes, a small one those that the verb under test gives
//! (`A` becomes `a`). `|` separates two VMAs of the same letter that do not
//! show the same part of their backing, and takes no page.

use softfault_engine::PAGE_SIZE;
use softfault_engine::mm::{AddressSpace, Advice, Attributes, Protection, VmaSlabs};
use softfault_oracle::{Numbered, Still};
use std::ops::Range;
use sync::Arc;

/// Page number of a row's first page.
const FIRST: usize = 16;
/// Pages that a backing goes on behind a `|`.
const JUMP: u64 = 100;

/// The property of a small letter in place of a capital one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// `mprotect`: small letters are not readable.
    Protect,
    /// `madvise`: small letters are read at random.
    Advise,
}

/// Both.
pub const VERBS: [Verb; 2] = [Verb::Protect, Verb::Advise];

/// A space, and the machine that has only this one.
pub struct Drawn {
    pub space: AddressSpace,
    pub slabs: Arc<VmaSlabs>,
    pub verb: Verb,
}

/// Addresses of the pages `from..to` of a row.
pub fn range(pages: Range<usize>) -> Range<usize> {
    (FIRST + pages.start) * PAGE_SIZE..(FIRST + pages.end) * PAGE_SIZE
}

/// Pages of a mask such as `"  xx "`.
pub fn masked(mask: &str) -> Range<usize> {
    let from = mask.find('x').expect("a mask with an x");
    range(from..mask.trim_end().len())
}

/// The mapping of a letter at this place of the row.
pub fn attributes(letter: char, page: usize, jumps: u64, verb: Verb) -> Attributes {
    let small = letter.is_ascii_lowercase();
    Attributes {
        backing: Numbered(letter.to_ascii_uppercase() as u64).into(),
        pgoff: page as u64 + jumps * JUMP,
        protection: if small && verb == Verb::Protect {
            Protection::None
        } else {
            Protection::Read
        },
        advice: if small && verb == Verb::Advise {
            Advice::Random
        } else {
            Advice::Normal
        },
    }
}

/// The letter of a VMA that shows this.
fn letter_of(attributes: &Attributes) -> char {
    let numbered = attributes.backing.of::<Numbered>();
    let letter = numbered.expect("a backing of a letter").0 as u8 as char;
    if attributes.protection == Protection::None || attributes.advice == Advice::Random {
        letter.to_ascii_lowercase()
    } else {
        letter
    }
}

impl Drawn {
    /// The space that `row` draws.
    pub fn new(row: &str, verb: Verb) -> Self {
        Self::on(VmaSlabs::new(1000), row, verb)
    }

    /// The same, on a machine that may be short of something.
    pub fn on(slabs: Arc<VmaSlabs>, row: &str, verb: Verb) -> Self {
        let space = AddressSpace::new(slabs.clone(), Arc::new(Still)).unwrap();
        let drawn = Self { space, slabs, verb };
        drawn.map(row);
        drawn.assert_row(row);
        drawn
    }

    /// Maps the mappings of `row`, run by run.
    pub fn map(&self, row: &str) {
        let (mut page, mut jumps) = (0, 0);
        let mut rest = row;
        while let Some(letter) = rest.chars().next() {
            let count = rest.len() - rest.trim_start_matches(letter).len();
            rest = &rest[count..];
            if letter == '|' {
                jumps += 1;
                continue;
            }
            if letter != '-' && letter != ' ' {
                let attributes = attributes(letter, page, jumps, self.verb);
                let mapped = self.space.mmap(range(page..page + count), attributes);
                mapped.unwrap();
            }
            page += count;
        }
    }

    /// Draws the space.
    pub fn row(&self, pages: usize) -> String {
        let mut row = String::new();
        let (mut drawn, mut last_jumps) = (0, 0);
        let mmap = self.space.mmap_lock().read();
        self.space.for_each_vma(&mmap, 0..usize::MAX, |vma| {
            let attributes = vma.attributes(&mmap);
            let letter = letter_of(&attributes);
            let first = vma.start() / PAGE_SIZE - FIRST;
            row.extend(std::iter::repeat_n('-', first - drawn));
            let jumps = attributes.pgoff / JUMP;
            if row
                .chars()
                .next_back()
                .is_some_and(|last| last.eq_ignore_ascii_case(&letter))
            {
                if jumps != last_jumps {
                    row.push('|');
                } else if row.ends_with(letter) {
                    row.push_str("(not merged)");
                }
            }
            last_jumps = jumps;
            drawn = vma.end() / PAGE_SIZE - FIRST;
            row.extend(std::iter::repeat_n(letter, drawn - first));
            // Each page shows the part of the backing that it always did.
            assert_eq!((attributes.pgoff % JUMP) as usize, first);
        });
        row.extend(std::iter::repeat_n('-', pages - drawn));
        row
    }

    /// Asserts that the space looks like `row` and that all is well with it:
    /// VMAs attached, not overlapping, not to be merged, none lost, and their
    /// slots and those of the tree are all that is in use.
    #[track_caller]
    pub fn assert_row(&self, row: &str) {
        let row = row.replace(' ', "-");
        assert_eq!(self.row(row.replace('|', "").len()), row);
        let mmap = self.space.mmap_lock().read();
        self.space.validate(&mmap);
        assert_eq!(self.slabs.vmas_in_use() as usize, self.space.map_count());
    }

    /// Applies the verb to the pages of the mask.
    pub fn change(&self, mask: &str) -> Result<(), softfault_engine::mm::MmError> {
        match self.verb {
            Verb::Protect => self.space.mprotect(masked(mask), Protection::None),
            Verb::Advise => self.space.madvise(masked(mask), Advice::Random),
        }
    }

    /// Unmaps the pages of the mask; returns the pieces as letter and pages.
    pub fn unmap(&self, mask: &str) -> Result<Vec<String>, softfault_engine::mm::MmError> {
        let mut pieces = Vec::new();
        self.space.munmap(masked(mask), |range, attributes| {
            let pages = range.start / PAGE_SIZE - FIRST..range.end / PAGE_SIZE - FIRST;
            assert_eq!((attributes.pgoff % JUMP) as usize, pages.start);
            let letter = letter_of(&attributes).to_ascii_uppercase();
            pieces.push(format!("{letter}{pages:?}"));
        })?;
        Ok(pieces)
    }
}

impl Drop for Drawn {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The space would panic too, and hide the first one.
            self.space.exit(|_, _| {});
            return;
        }
        let before = self.space.map_count();
        let mut pieces = 0;
        self.space.exit(|_, _| pieces += 1);
        assert_eq!(pieces, before);
        assert_eq!(self.slabs.vmas_in_use(), 0);
        // Only the root of the tree is left.
        assert_eq!(self.slabs.nodes_in_use(), 1);
    }
}
