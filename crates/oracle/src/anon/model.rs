//! The expected bytes of anonymous memory, and how many pages are paid for.

use super::op::ARENA_PAGES;
use crate::op::MemoryVerb;
use crate::store::byte_at;
use core::ops::Range;
use softfault_engine::PAGE_SIZE;
use softfault_engine::mm::{MmError, Protection};
use std::collections::BTreeMap;

/// The expected result of an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// It is served.
    Done,
    /// An error: nothing is mapped there.
    Unmapped,
    /// An error: the mapping does not allow it.
    Forbidden,
    /// An error: swap fails, or is full. Only where a world says that this may
    /// be.
    Failed,
}

type Bytes = [u8; PAGE_SIZE];

#[derive(Debug, Clone)]
struct Page {
    protection: Protection,
    /// The pages of the map that it is of.
    map: Range<usize>,
    /// The page of the file that it is a copy of; None: it began as zeros.
    origin: Option<u64>,
    /// The bytes; `None` if the page was never touched.
    bytes: Option<Box<Bytes>>,
    is_written: bool,
    /// It may have become zeros, or become so later.
    is_free: bool,
    is_locked: bool,
}

impl Page {
    fn new(map: Range<usize>, origin: Option<u64>) -> Self {
        Self {
            protection: Protection::ReadWrite,
            map,
            origin,
            bytes: None,
            is_written: false,
            is_free: false,
            is_locked: false,
        }
    }

    /// Its first contents.
    fn first(&self) -> Box<Bytes> {
        let start = self.origin.map(|page| page * PAGE_SIZE as u64);
        let byte = |at| start.map_or(0, |start| byte_at(0, start + at as u64));
        Box::new(core::array::from_fn(byte))
    }
}

/// Pages of a space that are paid for, at least and at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Paid {
    /// Where nothing is evicted.
    pub least: usize,
    /// Where nobody maps more than is touched.
    pub most: usize,
}

/// One space: the mapping at each page of the arena.
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

    fn page(&self, space: usize, page: usize) -> Option<&Page> {
        self.spaces[&space].pages[page].as_ref()
    }

    /// Maps zeros; or, if there is a page of the file to begin with, copies of
    /// it and of the pages that follow.
    pub fn map(
        &mut self,
        space: usize,
        pages: &Range<usize>,
        from: Option<usize>,
    ) -> Result<(), MmError> {
        let places = &mut self.space(space).pages[pages.clone()];
        if places.iter().any(Option::is_some) {
            return Err(MmError::Overlap);
        }
        for (nth, place) in places.iter_mut().enumerate() {
            let from = from.map(|from| (from + nth) as u64);
            *place = Some(Page::new(pages.clone(), from));
        }
        Ok(())
    }

    /// Unmaps the mappings there.
    pub fn unmap(&mut self, space: usize, pages: &Range<usize>) {
        self.space(space).pages[pages.clone()].fill(None);
    }

    /// Changes the protection.
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

    /// Moves the pages, if there is no hole among them and nothing at the new
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

    /// The first map in `pages`, for worlds by map: all of its pages, of which none has
    /// been unmapped.
    pub fn whole_map(&self, space: usize, pages: &Range<usize>) -> Option<Range<usize>> {
        let page = |page| self.page(space, page);
        let maps = pages.clone().filter_map(page).map(|page| &page.map);
        let is_whole = |map: &&Range<usize>| {
            let mut all = Range::clone(map).map(page);
            all.all(|page| page.is_some_and(|page| page.map == **map))
        };
        let mut looked_at = None;
        // Each map once.
        let mut maps = maps.filter(|map| looked_at.replace(*map) != Some(*map));
        maps.find(is_whole).cloned()
    }

    /// How many pages a map can have, of a file of `most` pages if it is of one.
    pub fn room_for(&self, space: usize, map: &Range<usize>, most: usize) -> usize {
        let places = &self.spaces[&space].pages;
        let free = (places[map.end..].iter()).take_while(|page| page.is_none());
        let room = map.len() + free.count();
        match places[map.start].as_ref().and_then(|page| page.origin) {
            Some(first) => room.min(most - first as usize),
            None => room,
        }
    }

    /// Lets a map have so many pages, for which there is room. New pages are as the rest.
    pub fn resize(&mut self, space: usize, map: &Range<usize>, pages: usize) {
        let places = &mut self.space(space).pages;
        let first = places[map.start].clone().expect("a map that is there");
        let new = map.start..map.start + pages;
        for (nth, page) in (map.start..map.end.max(new.end)).enumerate() {
            match &mut places[page] {
                place if !new.contains(&page) => *place = None,
                Some(page) => page.map = new.clone(),
                place => {
                    let origin = first.origin.map(|origin| origin + nth as u64);
                    let mut page = Page::new(new.clone(), origin);
                    page.protection = first.protection;
                    page.is_locked = first.is_locked;
                    page.bytes = first.is_locked.then(|| page.first());
                    *place = Some(page);
                }
            }
        }
    }

    /// Copies a space; returns the copy's number. Locked pages are not locked in the copy.
    pub fn fork(&mut self, space: usize) -> usize {
        let mut copy = self.space(space).clone();
        for page in copy.pages.iter_mut().flatten() {
            page.is_locked = false;
        }
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

    /// The part of `pages`, from the front, that the verb is for: all of it is
    /// mapped and allows it, and the system has a rule for it that all worlds
    /// share.
    pub fn subject(&self, space: usize, pages: &Range<usize>, verb: MemoryVerb) -> Range<usize> {
        let is_for = |page: &usize| {
            self.page(space, *page).is_some_and(|page| match verb {
                MemoryVerb::DontNeed | MemoryVerb::Cold | MemoryVerb::PageOut => !page.is_locked,
                MemoryVerb::Free => !page.is_locked && page.origin.is_none(),
                MemoryVerb::PopulateRead => page.protection != Protection::None,
                MemoryVerb::PopulateWrite | MemoryVerb::Lock => {
                    page.protection == Protection::ReadWrite
                }
                MemoryVerb::Unlock => true,
            })
        };
        let mut found = pages.clone().skip_while(|page| !is_for(page)).peekable();
        let start = found.peek().copied().unwrap_or(pages.start);
        start..start + found.take_while(is_for).count()
    }

    /// Applies the verb to the pages that it is for. `done`: to all. If
    /// not, it may have been applied to some of them.
    pub fn manage(&mut self, space: usize, pages: &Range<usize>, verb: MemoryVerb, done: bool) {
        for page in self.space(space).pages[pages.clone()].iter_mut().flatten() {
            match verb {
                MemoryVerb::DontNeed => {
                    *page = Page {
                        protection: page.protection,
                        ..Page::new(page.map.clone(), page.origin)
                    };
                }
                MemoryVerb::Free => page.is_free = page.bytes.is_some(),
                MemoryVerb::Cold | MemoryVerb::PageOut => {}
                MemoryVerb::PopulateRead | MemoryVerb::PopulateWrite | MemoryVerb::Lock => {
                    let first = page.first();
                    page.bytes.get_or_insert(first);
                    if verb == MemoryVerb::Lock {
                        page.is_locked = done;
                    }
                }
                MemoryVerb::Unlock => page.is_locked = false,
            }
        }
    }

    /// The expected result of an access to a page.
    pub fn expected(&self, space: usize, page: usize, write: bool) -> Expected {
        match self.page(space, page) {
            None => Expected::Unmapped,
            Some(page) => match (page.protection, write) {
                (Protection::ReadWrite, _) | (Protection::Read, false) => Expected::Done,
                (Protection::Read, true) | (Protection::None, _) => Expected::Forbidden,
            },
        }
    }

    /// The bytes of a page that is mapped, which are touched by this.
    pub fn touch(&mut self, space: usize, page: usize) -> &mut Bytes {
        let page = self.space(space).pages[page].as_mut();
        let page = page.expect("a page that is mapped");
        let first = page.bytes.is_none().then(|| page.first());
        page.bytes
            .get_or_insert_with(|| first.expect("it has none"))
    }

    /// The same of a page that is written to.
    pub fn write(&mut self, space: usize, page: usize) -> &mut Bytes {
        if let Some(page) = self.space(space).pages[page].as_mut() {
            page.is_written = true;
        }
        self.touch(space, page)
    }

    /// True if a page may have become zeros.
    pub fn is_free(&self, space: usize, page: usize) -> bool {
        self.page(space, page).is_some_and(|page| page.is_free)
    }

    /// Records whether a page that may have become zeros was found to be zeros. One that has
    /// stays so; one that has not still may, unless it was written to.
    pub fn settle(&mut self, space: usize, page: usize, zeros: bool, written: bool) {
        let page = self.space(space).pages[page].as_mut();
        let page = page.expect("a page that is mapped");
        if zeros {
            page.bytes = Some(Box::new([0; PAGE_SIZE]));
        }
        page.is_free &= !zeros && !written;
    }

    /// True if a page that is mapped was ever touched.
    pub fn is_touched(&self, space: usize, page: usize) -> bool {
        let page = self.page(space, page);
        page.is_some_and(|page| page.bytes.is_some())
    }

    /// Pages that are locked, and so stay.
    pub fn locked(&self, space: usize) -> impl Iterator<Item = usize> + '_ {
        let pages = self.spaces[&space].pages.iter().enumerate();
        pages.filter_map(|(number, page)| page.as_ref()?.is_locked.then_some(number))
    }

    /// How many there are in all spaces.
    pub fn count_locked(&self) -> usize {
        let spaces = self.spaces.keys();
        spaces.map(|&space| self.locked(space).count()).sum()
    }

    /// Pages of a space that are paid for.
    pub fn paid(&self, space: usize) -> Paid {
        let pages = || self.spaces[&space].pages.iter().flatten();
        let is_there = |page: &&Page| page.is_written && !page.is_free;
        // A touch of a copy maps the pages around it, also where it was unmapped.
        let most = match pages().any(|page| page.origin.is_some()) {
            true => usize::MAX,
            false => pages().filter(|page| page.bytes.is_some()).count(),
        };
        let least = pages().filter(is_there).count();
        Paid { least, most }
    }
}
