//! What every byte of anonymous memory must be, and how many pages are paid for.

use super::op::ARENA_PAGES;
use core::ops::Range;
use softfault_engine::PAGE_SIZE;
use softfault_engine::mm::{MmError, Protection};
use std::collections::BTreeMap;

/// What an access must get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// It is served.
    Done,
    /// An error: nothing is mapped there.
    Unmapped,
    /// An error: the mapping does not allow it.
    Forbidden,
}

#[derive(Debug, Clone)]
struct Page {
    protection: Protection,
    /// The bytes; `None` if the page was never touched.
    bytes: Option<Box<[u8; PAGE_SIZE]>>,
}

/// One space: what is mapped at each page of the arena.
#[derive(Debug, Clone)]
struct Space {
    pages: Vec<Option<Page>>,
}

/// All spaces, by number. There is always one at least.
#[derive(Debug)]
pub struct AnonModel {
    spaces: BTreeMap<usize, Space>,
    next: usize,
}

impl Default for AnonModel {
    fn default() -> Self {
        Self::new()
    }
}

impl AnonModel {
    /// One space, in which nothing is mapped.
    pub fn new() -> Self {
        let space = Space {
            pages: vec![None; ARENA_PAGES],
        };
        Self {
            spaces: BTreeMap::from([(0, space)]),
            next: 1,
        }
    }

    /// The number of the space that `number` means.
    pub fn pick(&self, number: u8) -> usize {
        let mut spaces = self.spaces.keys();
        let nth = usize::from(number) % self.spaces.len();
        *spaces.nth(nth).expect("there is always a space")
    }

    /// The numbers of all spaces.
    pub fn spaces(&self) -> Vec<usize> {
        self.spaces.keys().copied().collect()
    }

    fn space(&mut self, space: usize) -> &mut Space {
        self.spaces.get_mut(&space).expect("a space that is there")
    }

    /// Maps zeros.
    pub fn map(&mut self, space: usize, pages: &Range<usize>) -> Result<(), MmError> {
        let places = &mut self.space(space).pages[pages.clone()];
        if places.iter().any(Option::is_some) {
            return Err(MmError::Overlap);
        }
        places.fill(Some(Page {
            protection: Protection::ReadWrite,
            bytes: None,
        }));
        Ok(())
    }

    /// Unmaps what is there.
    pub fn unmap(&mut self, space: usize, pages: &Range<usize>) {
        self.space(space).pages[pages.clone()].fill(None);
    }

    /// Changes what may be done.
    pub fn protect(
        &mut self,
        space: usize,
        pages: &Range<usize>,
        protection: Protection,
    ) -> Result<(), MmError> {
        let places = &mut self.space(space).pages[pages.clone()];
        for page in places.iter_mut().flatten() {
            page.protection = protection;
        }
        match places.iter().all(Option::is_some) {
            true => Ok(()),
            false => Err(MmError::Unmapped),
        }
    }

    /// Moves what is there, if there is no hole in it and nothing at the new
    /// place.
    pub fn remap(&mut self, space: usize, from: &Range<usize>, to: usize) -> Result<(), MmError> {
        let places = &mut self.space(space).pages;
        let target = to..to + from.len();
        let itself = target.start < from.end && from.start < target.end;
        if itself || places[target.clone()].iter().any(Option::is_some) {
            return Err(MmError::Overlap);
        }
        if places[from.clone()].iter().any(Option::is_none) {
            return Err(MmError::Unmapped);
        }
        for (from, to) in from.clone().zip(target) {
            places[to] = places[from].take();
        }
        Ok(())
    }

    /// Copies a space; returns the copy's number.
    pub fn fork(&mut self, space: usize) -> usize {
        let copy = self.space(space).clone();
        let number = self.next;
        self.next += 1;
        self.spaces.insert(number, copy);
        number
    }

    /// Ends a space.
    pub fn exit(&mut self, space: usize) {
        self.spaces.remove(&space);
        assert!(!self.spaces.is_empty(), "there is always a space");
    }

    /// What an access to a page must get.
    pub fn expected(&self, space: usize, page: usize, write: bool) -> Expected {
        match &self.spaces[&space].pages[page] {
            None => Expected::Unmapped,
            Some(page) => match (page.protection, write) {
                (Protection::ReadWrite, _) | (Protection::Read, false) => Expected::Done,
                (Protection::Read, true) | (Protection::None, _) => Expected::Forbidden,
            },
        }
    }

    /// The bytes of a page that is mapped, which are touched by this.
    pub fn touch(&mut self, space: usize, page: usize) -> &mut [u8; PAGE_SIZE] {
        let page = self.space(space).pages[page].as_mut();
        let bytes = &mut page.expect("a page that is mapped").bytes;
        bytes.get_or_insert_with(|| Box::new([0; PAGE_SIZE]))
    }

    /// True if a page that is mapped was ever touched.
    pub fn is_touched(&self, space: usize, page: usize) -> bool {
        let page = self.spaces[&space].pages[page].as_ref();
        page.is_some_and(|page| page.bytes.is_some())
    }

    /// Pages of a space that were touched: each is paid for.
    pub fn resident(&self, space: usize) -> usize {
        let pages = self.spaces[&space].pages.iter().flatten();
        pages.filter(|page| page.bytes.is_some()).count()
    }
}
