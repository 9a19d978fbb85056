//! The possible bytes of every page of every space, while threads change it.
//!
//! The pages of a space are changed by one thread each, so that the order of
//! their states is known; everybody touches all of them. Bytes of anonymous
//! memory are written by everybody.

use super::history::{History, Moment};
use super::play::Stage;
use crate::store::byte_at;
use core::ops::Range;
use softfault_engine::PAGE_SIZE;
use softfault_engine::mm::Protection;
use std::collections::BTreeMap;

/// Words of a page that are read and written: those at these bytes.
pub(super) const LANES: [usize; 3] = [0, 1024, PAGE_SIZE - 8];

/// The result of a touch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Got {
    /// This word.
    Word(u64),
    Written,
    NotMapped,
    Forbidden,
    BeyondEnd,
}

/// The contents of a page of a space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shows {
    Nothing,
    /// A page of the file.
    File(u64, Protection),
    /// A page of anonymous memory, by its number.
    Zeros(u32, Protection),
}

impl Shows {
    fn protection(self) -> Protection {
        match self {
            Self::Nothing => Protection::None,
            Self::File(_, protection) | Self::Zeros(_, protection) => protection,
        }
    }

    /// The number of a page of anonymous memory.
    pub(super) fn number(&self) -> Option<u32> {
        match self {
            Self::Zeros(number, _) => Some(*number),
            _ => None,
        }
    }

    pub(super) fn protected(self, now: Protection) -> Self {
        match self {
            Self::Nothing => Self::Nothing,
            Self::File(page, _) => Self::File(page, now),
            Self::Zeros(page, _) => Self::Zeros(page, now),
        }
    }
}

/// The file: its length, and where it is zeros because it was cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Length {
    pub(super) len: u64,
    pub(super) data_end: u64,
}

/// The words of a page of anonymous memory.
type Words = [History<u64>; LANES.len()];

#[derive(Debug)]
struct Space {
    pages: Vec<History<Shows>>,
    words: BTreeMap<u32, Words>,
    /// The page of the file that a page of anonymous memory is a copy of.
    origins: BTreeMap<u32, u64>,
}

/// A write that has not ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Writing {
    pub(super) space: usize,
    pub(super) page: usize,
    pub(super) lane: usize,
    pub(super) value: u64,
    pub(super) begin: Moment,
}

/// All of it.
#[derive(Debug)]
pub(super) struct Shadow {
    now: Moment,
    file: History<Length>,
    spaces: Vec<Space>,
    writing: Vec<Writing>,
    numbers: u32,
    pages: usize,
    /// Pages of the file that were never written.
    hole: Range<u64>,
}

impl Shadow {
    pub(super) fn new(stage: &Stage) -> Self {
        let len = stage.file_pages * PAGE_SIZE as u64;
        let length = Length { len, data_end: len };
        let mut shadow = Self {
            now: 1,
            file: History::new(vec![length]),
            spaces: Vec::new(),
            writing: Vec::new(),
            numbers: 0,
            pages: stage.pages,
            hole: stage.hole.clone(),
        };
        for _ in 0..stage.spaces {
            shadow.add_space(vec![vec![Shows::Nothing]; stage.pages]);
        }
        shadow
    }

    fn add_space(&mut self, shows: Vec<Vec<Shows>>) -> usize {
        self.spaces.push(Space {
            pages: shows.into_iter().map(History::new).collect(),
            words: BTreeMap::new(),
            origins: BTreeMap::new(),
        });
        self.spaces.len() - 1
    }

    /// A moment: later than all before.
    pub(super) fn tick(&mut self) -> Moment {
        self.now += 1;
        self.now
    }

    pub(super) fn spaces(&self) -> usize {
        self.spaces.len()
    }

    /// The present or possible contents of each of `pages`, if no thread changes it.
    pub(super) fn last(&self, space: usize, pages: &Range<usize>) -> Vec<Vec<Shows>> {
        let pages = &self.spaces[space].pages[pages.clone()];
        pages.iter().map(|page| page.last().to_vec()).collect()
    }

    /// The number of a new page of anonymous memory: a copy of this page of the
    /// file, or zeros.
    pub(super) fn new_page(&mut self, space: usize, origin: Option<u64>) -> u32 {
        let number = self.numbers;
        self.numbers += 1;
        let [length] = self.file.last() else {
            unreachable!("one thread truncates");
        };
        let first = |lane: usize| match origin {
            Some(page) => self.file_word(page, LANES[lane], *length),
            None => 0,
        };
        let words = core::array::from_fn(|lane| History::new(vec![first(lane)]));
        let space = &mut self.spaces[space];
        space.words.insert(number, words);
        if let Some(page) = origin {
            space.origins.insert(number, page);
        }
        number
    }

    /// True if the page of anonymous memory is a copy.
    pub(super) fn origin(&self, space: usize, number: u32) -> Option<u64> {
        self.spaces[space].origins.get(&number).copied()
    }

    /// From now on, and until it is written to, a page of anonymous memory may be
    /// zeros; `from` is now.
    pub(super) fn begin_free(&mut self, space: usize, number: u32, from: Moment) {
        let words = self.spaces[space].words.get_mut(&number);
        for word in words.expect("pages of a space have words") {
            word.begin_perhaps(from, 0);
        }
    }

    /// The operation that began at `from` has ended.
    pub(super) fn end_free(&mut self, space: usize, number: u32, from: Moment) {
        let to = self.tick();
        let words = self.spaces[space].words.get_mut(&number);
        for word in words.expect("pages of a space have words") {
            word.end_perhaps(from, to);
        }
    }

    /// True if a page may have shown more than one thing since `from`.
    pub(super) fn was_changed(&mut self, space: usize, pages: &Range<usize>, from: Moment) -> bool {
        let to = self.tick();
        let mut pages = self.spaces[space].pages[pages.clone()].iter();
        pages.any(|page| page.seen(from, to).len() > 1)
    }

    /// True if the file may have ended, since `from`, before a page of it that was perhaps shown.
    pub(super) fn was_short(&mut self, space: usize, pages: &Range<usize>, from: Moment) -> bool {
        let to = self.tick();
        let pages = self.spaces[space].pages[pages.clone()].iter();
        let mut shows = pages.flat_map(|page| page.seen(from, to));
        shows.any(|shows| matches!(shows, Shows::File(page, _) if self.ends_before(page, from, to)))
    }

    /// True if one of these pages has been past the end of the file all the time since `from`.
    pub(super) fn was_cut_off(&mut self, space: usize, pages: &Range<usize>, from: Moment) -> bool {
        let to = self.tick();
        let lengths = self.file.seen(from, to);
        let is_past = |shows: &Shows| match shows {
            Shows::File(page, _) => {
                let start = page * PAGE_SIZE as u64;
                lengths.iter().all(|length| start >= length.len)
            }
            _ => false,
        };
        let mut pages = self.spaces[space].pages[pages.clone()].iter();
        pages.any(|page| page.seen(from, to).iter().all(is_past))
    }

    /// An operation begins that lets pages show something else.
    pub(super) fn begin(&mut self, space: usize, first: usize, shows: Vec<Vec<Shows>>) {
        let now = self.tick();
        for (page, values) in shows.into_iter().enumerate() {
            self.spaces[space].pages[first + page].begin(now, values);
        }
    }

    /// It has ended.
    pub(super) fn end(&mut self, space: usize, pages: &Range<usize>) {
        let now = self.tick();
        for page in &mut self.spaces[space].pages[pages.clone()] {
            page.end(now);
        }
    }

    pub(super) fn begin_truncate(&mut self, len: u64) {
        let now = self.tick();
        let [before] = self.file.last() else {
            unreachable!("one thread truncates");
        };
        let data_end = before.data_end.min(len);
        self.file.begin(now, vec![Length { len, data_end }]);
    }

    pub(super) fn end_truncate(&mut self) {
        let now = self.tick();
        self.file.end(now);
    }

    /// A fork of `space` that began at `from` has ended: the number of the
    /// copy. Each page of it has possible contents of the first's.
    pub(super) fn forked(&mut self, space: usize, from: Moment) -> usize {
        let to = self.tick();
        let pages = self.spaces[space].pages.iter();
        let shows = pages.map(|page| page.seen(from, to)).collect();
        let numbers: Vec<u32> = self.spaces[space].words.keys().copied().collect();
        let words: Vec<_> = numbers
            .into_iter()
            .map(|number| {
                let lane = |lane| History::new(self.words_seen(space, number, lane, from, to));
                (number, core::array::from_fn(lane))
            })
            .collect();
        let child = self.add_space(shows);
        self.spaces[child].words.extend(words);
        self.spaces[child].origins = self.spaces[space].origins.clone();
        child
    }

    /// A write begins.
    pub(super) fn begin_write(&mut self, space: usize, page: usize, lane: usize, value: u64) {
        let begin = self.tick();
        self.writing.push(Writing {
            space,
            page,
            lane,
            value,
            begin,
        });
    }

    /// The write of `value` has ended, with this (None: it failed, as anything
    /// may). Panics if it cannot have.
    pub(super) fn end_write(&mut self, value: u64, got: Option<Got>) {
        let place = self.writing.iter().position(|write| write.value == value);
        let write = self.writing.remove(place.expect("a write that began"));
        let Some(got) = got else {
            return;
        };
        let end = self.tick();
        let shows = self.spaces[write.space].pages[write.page].seen(write.begin, end);
        let may = |shows: &Shows| match (shows, got) {
            (Shows::Nothing, Got::NotMapped) => true,
            (Shows::Zeros(_, Protection::ReadWrite), Got::Written) => true,
            (Shows::File(..), Got::Forbidden) => true,
            (Shows::Zeros(_, protection), Got::Forbidden) => *protection != Protection::ReadWrite,
            _ => false,
        };
        assert!(
            shows.iter().any(may),
            "a write to page {} of space {} got {got:?}, which shows {shows:x?}",
            write.page,
            write.space
        );
        if got != Got::Written {
            return;
        }
        let written = shows.iter().filter(|shows| may(shows));
        let numbers: Vec<_> = written
            .filter_map(|shows| match shows {
                Shows::Zeros(number, _) => Some(*number),
                _ => None,
            })
            .collect();
        for number in &numbers {
            let words = self.spaces[write.space].words.get_mut(number);
            let words = words.expect("pages of a space have words");
            words[write.lane].add(write.begin, end, value, numbers.len() == 1);
        }
    }

    fn ends_before(&self, page: u64, from: Moment, to: Moment) -> bool {
        let start = page * PAGE_SIZE as u64;
        let mut lengths = self.file.seen(from, to).into_iter();
        lengths.any(|length| start >= length.len)
    }

    fn words_seen(
        &self,
        space: usize,
        number: u32,
        lane: usize,
        from: Moment,
        to: Moment,
    ) -> Vec<u64> {
        let mut seen = self.spaces[space].words[&number][lane].seen(from, to);
        // And the bytes that are just being written to a page that may be this one.
        for write in &self.writing {
            let page = &self.spaces[write.space].pages[write.page];
            let may = |shows: &Shows| matches!(shows, Shows::Zeros(n, _) if *n == number);
            if (write.space, write.lane) == (space, lane)
                && page.seen(write.begin, to).iter().any(may)
            {
                seen.push(write.value);
            }
        }
        seen
    }

    /// The word that a page of the file holds at byte `at` of it.
    fn file_word(&self, page: u64, at: usize, length: Length) -> u64 {
        let first = page * PAGE_SIZE as u64 + at as u64;
        let byte = |place: usize| match first + place as u64 {
            offset if offset < length.data_end && !self.hole.contains(&page) => byte_at(0, offset),
            _ => 0,
        };
        u64::from_ne_bytes(core::array::from_fn(byte))
    }

    /// A read of a word, which began at `from`, has ended with this. Panics if
    /// it cannot have.
    pub(super) fn check_read(
        &mut self,
        space: usize,
        page: usize,
        lane: usize,
        from: Moment,
        got: Got,
    ) {
        let to = self.tick();
        let shows = self.spaces[space].pages[page].seen(from, to);
        let may = shows.iter().any(|&shows| match (shows, got) {
            (Shows::Nothing, _) => got == Got::NotMapped,
            (shows, _) if shows.protection() == Protection::None => got == Got::Forbidden,
            (Shows::File(page, _), Got::BeyondEnd) => self.ends_before(page, from, to),
            (Shows::File(page, _), Got::Word(_)) => {
                let lengths = self.file.seen(from, to).into_iter();
                let mut there = lengths.filter(|length| page * (PAGE_SIZE as u64) < length.len);
                there.any(|length| got == Got::Word(self.file_word(page, LANES[lane], length)))
            }
            (Shows::Zeros(number, _), Got::Word(word)) => self
                .words_seen(space, number, lane, from, to)
                .contains(&word),
            _ => false,
        });
        assert!(
            may,
            "a read of word {lane} of page {page} of space {space} got {got:x?}, which shows \
             {shows:x?} of a file {:x?}; words may be {:x?}",
            self.file.seen(from, to),
            shows
                .iter()
                .filter_map(|shows| match shows {
                    Shows::Zeros(number, _) =>
                        Some(self.words_seen(space, *number, lane, from, to)),
                    _ => None,
                })
                .collect::<Vec<_>>(),
        );
    }

    /// Pages of a space.
    pub(super) fn pages(&self) -> usize {
        self.pages
    }

    /// True if the file has always been as long as it is.
    pub(super) fn is_untruncated(&self) -> bool {
        self.file.changes() == 0
    }
}
