//! The expected value of every byte of every map.

use crate::op::Setting;
use crate::store::byte_at;
use softfault_engine::PAGE_SIZE;
use std::collections::BTreeMap;
use std::ops::Range;

const PAGE: u64 = PAGE_SIZE as u64;

/// The expected result of a touch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// This byte.
    Byte(u8),
    /// An error: the file ends before the page.
    Beyond,
    /// An error: the page was unmapped.
    Unmapped,
    /// An error: the page may not be read.
    Forbidden,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Page {
    Readable,
    Forbidden,
    Unmapped,
}

/// One map.
#[derive(Debug)]
pub struct ModelMap {
    /// First byte of the file.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// By page of the file, from that of the first byte on.
    pages: Vec<Page>,
    /// Bytes of the map that are pinned.
    pub pinned: Option<Range<u64>>,
}

/// The file and its maps, byte by byte.
#[derive(Debug)]
pub struct Model {
    setting: Setting,
    len: u64,
    /// Past it the file is zeros: it was cut off once.
    data_end: u64,
    /// The maps, by number.
    pub maps: BTreeMap<usize, ModelMap>,
    next: usize,
}

impl Model {
    /// The file as it begins, and no map.
    pub fn new(setting: Setting) -> Self {
        Self {
            len: setting.file_bytes,
            data_end: setting.file_bytes,
            setting,
            maps: BTreeMap::new(),
            next: 0,
        }
    }

    /// Bytes of the file now.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True if the file is empty now.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its first contents.
    pub fn setting(&self) -> &Setting {
        &self.setting
    }

    /// The number of the map that `number` means.
    pub fn pick(&self, number: u8) -> Option<usize> {
        let count = self.maps.len();
        let mut maps = self.maps.keys();
        maps.nth(usize::from(number) % count.max(1)).copied()
    }

    /// Enters a map; returns its number.
    pub fn map(&mut self, offset: u64, len: u64) -> usize {
        assert!(offset + len <= self.len && len > 0);
        let number = self.next;
        self.next += 1;
        let pages = (offset + len).div_ceil(PAGE) - offset / PAGE;
        let map = ModelMap {
            offset,
            len,
            pages: vec![Page::Readable; pages as usize],
            pinned: None,
        };
        self.maps.insert(number, map);
        number
    }

    /// The file has another length.
    pub fn truncate(&mut self, len: u64) {
        self.len = len;
        self.data_end = self.data_end.min(len);
    }

    /// The byte that the file has at `offset`; zeros past its end.
    pub fn byte(&self, offset: u64) -> u8 {
        let hole = |hole: &Range<u64>| hole.contains(&(offset / PAGE));
        if offset >= self.data_end || self.setting.holes.iter().any(hole) {
            return 0;
        }
        byte_at(self.setting.seed, offset)
    }

    /// The expected byte `at` of a map.
    pub fn shown(&self, map: usize, at: u64) -> Shown {
        let map = &self.maps[&map];
        assert!(at < map.len);
        let offset = map.offset + at;
        match map.pages[(offset / PAGE - map.offset / PAGE) as usize] {
            Page::Unmapped => Shown::Unmapped,
            Page::Forbidden => Shown::Forbidden,
            Page::Readable if offset >= self.len.next_multiple_of(PAGE) => Shown::Beyond,
            Page::Readable => Shown::Byte(self.byte(offset)),
        }
    }

    /// Takes the pages of some bytes out of a map.
    pub fn unmap_part(&mut self, map: usize, bytes: &Range<u64>) {
        self.set(map, bytes, |_| Page::Unmapped);
    }

    /// Forbids or allows the reading of the pages of some bytes.
    pub fn protect(&mut self, map: usize, bytes: &Range<u64>, readable: bool) {
        self.set(map, bytes, |page| match (page, readable) {
            (Page::Unmapped, _) => Page::Unmapped,
            (_, true) => Page::Readable,
            (_, false) => Page::Forbidden,
        });
    }

    fn set(&mut self, map: usize, bytes: &Range<u64>, change: impl Fn(Page) -> Page) {
        let map = self.maps.get_mut(&map).expect("a map that is there");
        let first = map.offset / PAGE;
        let start = (map.offset + bytes.start) / PAGE - first;
        let end = (map.offset + bytes.end).div_ceil(PAGE) - first;
        for page in &mut map.pages[start as usize..end as usize] {
            *page = change(*page);
        }
    }
}
