//! A page cache that does nothing but obey `ReadAhead`: it knows which pages
//! are cached and which are mapped, and counts. Reads complete at once.

#![allow(dead_code)] // Each test file uses its part.

use std::collections::VecDeque;
use std::ops::Range;

use softfault_engine::page::Advice;
use softfault_engine::readahead::{Cursor, FOLIO, Limits, Mapped, Plan, ReadAhead, Reads, Touch};
use softfault_oracle::mix;

/// The page state that a reader met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Met {
    /// Mapped: no fault.
    Mapped,
    /// It had to wait for a read.
    Miss,
    /// Read ahead, this many touches ago.
    Ahead(u64),
}

/// Which pages go when memory is full.
#[derive(Debug, Clone, Copy)]
pub enum Reclaim {
    /// Pages never touched, once they have been there for a while, or all of memory was mapped since
    /// where their use was all but certain; then the longest mapped.
    Aged,
    /// Pages never touched, however new.
    UnusedFirst,
}

struct Folio {
    pages: Range<u64>,
    planned_at: u64,
    read_at: u64,
    /// Pages mapped until then.
    mapped_at: u64,
    is_sure: bool,
}

const ABSENT: u32 = 0;
const MAPPED: u32 = 1;
const AHEAD: u32 = 2;

/// The model. Panics if a plan leaves the file, misses the touched page, or
/// has more outstanding than allowed.
pub struct Model {
    pub policy: ReadAhead,
    pub limits: Limits,
    pub advice: Advice,
    /// Pages of memory.
    pub memory: u64,
    reclaim: Reclaim,
    resident: u64,
    outstanding: u64,
    /// ABSENT, MAPPED, or AHEAD plus the folio's index.
    state: Vec<u32>,
    folios: Vec<Folio>,
    mapped: VecDeque<Range<u64>>,
    /// Pages mapped so far.
    mapped_pages: u64,
    unused: VecDeque<u32>,
    touched: Vec<bool>,
    /// All touches.
    pub touches: u64,
    /// Pages touched at least once.
    pub distinct: u64,
    /// Pages read, again after an eviction.
    pub read: u64,
    pub misses: u64,
    pub first_uses: u64,
    /// Pages planned ahead while they were cached and unused already.
    pub replanned: u64,
    /// Plans with something ahead.
    pub windows: u64,
}

pub fn limits(file_pages: u64) -> Limits {
    Limits {
        max_window: 2048,
        max_ahead: 1 << 16,
        max_sure: 1 << 16,
        memory: u64::MAX,
        file_pages,
        queue_depth: 32,
    }
}

impl Model {
    pub fn new(file_pages: u64) -> Model {
        Model {
            policy: ReadAhead::new(file_pages),
            limits: limits(file_pages),
            advice: Advice::Normal,
            memory: u64::MAX,
            reclaim: Reclaim::Aged,
            resident: 0,
            outstanding: 0,
            state: vec![ABSENT; file_pages as usize],
            folios: Vec::new(),
            mapped: VecDeque::new(),
            mapped_pages: 0,
            unused: VecDeque::new(),
            touched: vec![false; file_pages as usize],
            touches: 0,
            distinct: 0,
            read: 0,
            misses: 0,
            first_uses: 0,
            replanned: 0,
            windows: 0,
        }
    }

    pub fn memory(mut self, pages: u64) -> Model {
        self.memory = pages;
        self.limits.memory = pages;
        self
    }

    pub fn reclaim(mut self, reclaim: Reclaim) -> Model {
        self.reclaim = reclaim;
        self
    }

    /// Pages read by page touched.
    pub fn ratio(&self) -> f64 {
        self.read as f64 / self.distinct as f64
    }

    pub fn touch(&mut self, page: u64) -> Met {
        self.touches += 1;
        if !std::mem::replace(&mut self.touched[page as usize], true) {
            self.distinct += 1;
        }
        match self.state[page as usize] {
            MAPPED => Met::Mapped,
            ABSENT => {
                self.misses += 1;
                let start = page - page % FOLIO;
                let end = (start + FOLIO).min(self.limits.file_pages);
                let hole = self.absent_around(page, start..end);
                let plan = self.ask(page, hole.clone(), Touch::Miss);
                let pages = plan.demand.clone();
                assert!(pages.start >= hole.start && pages.end <= hole.end);
                self.read += pages.end - pages.start;
                self.resident += pages.end - pages.start;
                self.map(pages);
                self.read_ahead(&plan.ahead);
                self.make_room();
                Met::Miss
            }
            index => {
                self.first_uses += 1;
                let folio = &self.folios[(index - AHEAD) as usize];
                let (pages, planned_at) = (folio.pages.clone(), folio.planned_at);
                self.outstanding -= pages.end - pages.start;
                let plan = self.ask(page, pages.clone(), Touch::FirstUse);
                self.map(pages);
                assert_eq!(plan.demand, page..page + 1);
                self.read_ahead(&plan.ahead);
                self.make_room();
                Met::Ahead(self.touches - planned_at)
            }
        }
    }

    fn ask(&mut self, page: u64, folio: Range<u64>, touch: Touch) -> Plan {
        let mut mapped = Mapped::default();
        let block = page - page % FOLIO;
        (block..(block + FOLIO).min(self.limits.file_pages))
            .filter(|&page| self.state[page as usize] == MAPPED)
            .for_each(|page| mapped.add(page));
        let plan = self
            .policy
            .touch(page, folio, touch, mapped, self.advice, &self.limits);
        assert!(plan.demand.contains(&page));
        assert!(plan.demand.end <= self.limits.file_pages);
        let extra = plan.demand.end - plan.demand.start - 1 + plan.ahead.len();
        assert!(
            extra == 0
                || self.outstanding + extra
                    <= u64::from(self.limits.max_ahead.max(self.limits.max_sure)),
            "{extra} more than {}: {plan:?}",
            self.outstanding
        );
        plan
    }

    fn map(&mut self, pages: Range<u64>) {
        self.state[pages.start as usize..pages.end as usize].fill(MAPPED);
        self.mapped_pages += pages.end - pages.start;
        self.mapped.push_back(pages);
    }

    fn absent_around(&self, page: u64, pages: Range<u64>) -> Range<u64> {
        let absent = |page: &u64| self.state[*page as usize] == ABSENT;
        let end = (page..pages.end).take_while(absent).count() as u64 + page;
        let start = page - (pages.start..page).rev().take_while(absent).count() as u64;
        start..end
    }

    fn read_ahead(&mut self, ahead: &Reads) {
        if ahead.is_empty() {
            return;
        }
        let before = self.read;
        let mut planned = 0;
        let mut cursor = Cursor::default();
        while let Some(range) = ahead.next(&mut cursor) {
            assert!(range.start < range.end && range.end <= self.limits.file_pages);
            planned += range.end - range.start;
            let mut start = range.start;
            while start < range.end {
                let end = (start - start % FOLIO + FOLIO).min(range.end);
                self.cache(start..end, ahead.is_sure());
                start = end;
            }
        }
        assert_eq!(planned, ahead.len());
        self.windows += 1;
        let read = self.read - before;
        self.outstanding += read;
        self.policy.submitted(ahead, read as u32, None);
        assert_eq!(u64::from(self.policy.outstanding()), self.outstanding);
    }

    /// Reads the absent pages of `pages` as folios of their own.
    fn cache(&mut self, pages: Range<u64>, is_sure: bool) {
        let mut start = pages.start;
        while start < pages.end {
            let state = self.state[start as usize];
            if state != ABSENT {
                self.replanned += u64::from(state >= AHEAD);
                start += 1;
                continue;
            }
            let absent = |page: &u64| self.state[*page as usize] == ABSENT;
            let end = start + (start..pages.end).take_while(absent).count() as u64;
            let index = self.folios.len() as u32;
            self.state[start as usize..end as usize].fill(AHEAD + index);
            self.folios.push(Folio {
                pages: start..end,
                planned_at: self.touches,
                read_at: self.read,
                mapped_at: self.mapped_pages,
                is_sure,
            });
            self.unused.push_back(index);
            self.read += end - start;
            self.resident += end - start;
            start = end;
        }
    }

    /// Makes room.
    fn make_room(&mut self) {
        while self.resident > self.memory {
            while let Some(&index) = self.unused.front()
                && self.state[self.folios[index as usize].pages.start as usize] != AHEAD + index
            {
                self.unused.pop_front(); // Touched meanwhile.
            }
            let oldest = self.unused.front().filter(|&&index| {
                let folio = &self.folios[index as usize];
                let is_stale = match folio.is_sure {
                    true => self.mapped_pages - folio.mapped_at > self.memory,
                    false => self.read - folio.read_at > self.memory / 2,
                };
                match self.reclaim {
                    Reclaim::Aged => is_stale || self.mapped.is_empty(),
                    Reclaim::UnusedFirst => true,
                }
            });
            let pages = match oldest.copied() {
                Some(index) => {
                    self.unused.pop_front();
                    let pages = self.folios[index as usize].pages.clone();
                    let dropped = pages.end - pages.start;
                    self.outstanding -= dropped;
                    self.policy.unused(dropped as u32);
                    pages
                }
                None => self.mapped.pop_front().expect("something is resident"),
            };
            self.resident -= pages.end - pages.start;
            self.state[pages.start as usize..pages.end as usize].fill(ABSENT);
        }
    }
}

/// Numbers that are the same in each run.
pub struct Rng(pub u64);

impl Rng {
    pub fn below(&mut self, end: u64) -> u64 {
        let drawn = mix(self.0);
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        drawn % end
    }
}

/// One reader: the page it touches next.
#[derive(Debug, Clone)]
pub struct Reader {
    pub page: u64,
    pub stride: i64,
}

impl Reader {
    pub fn next(&mut self, file_pages: u64) -> u64 {
        let page = self.page;
        self.page = (page as i64 + self.stride).rem_euclid(file_pages as i64) as u64;
        page
    }
}
