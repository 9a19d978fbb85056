//! softfault's private memory.

use crate::memory::Memory;
use crate::places::{PAGE, Places};
use softfault::{Advice, Engine, MIN_MEMORY, Mmap, MmapMut, MmapOptions};
use softfault::{RemapOptions, UncheckedAdvice};
use softfault_engine::mm::MmError;
use softfault_oracle::{Expected, MemoryVerb, Paid};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A map that may be written to, or not.
enum Map {
    Mut(MmapMut),
    ReadOnly(Mmap),
    /// While it becomes one or the other.
    Neither,
}

macro_rules! of_map {
    ($map:expr, $it:ident => $what:expr) => {
        match $map {
            Map::Mut($it) => $what,
            Map::ReadOnly($it) => $what,
            Map::Neither => unreachable!("a map is one or the other"),
        }
    };
}

impl Map {
    fn start(&self) -> usize {
        of_map!(self, map => map.as_ptr() as usize)
    }

    fn set_writable(&mut self, is_writable: bool) {
        *self = match (core::mem::replace(self, Map::Neither), is_writable) {
            (Map::Mut(map), false) => Map::ReadOnly(map.make_read_only().unwrap()),
            (Map::ReadOnly(map), true) => Map::Mut(map.make_mut().unwrap()),
            (map, _) => map,
        };
    }

    fn resident_bytes(&self) -> usize {
        match self {
            Map::Mut(map) => map.resident_bytes(),
            Map::ReadOnly(map) => map.residency(..).unwrap().mapped * PAGE,
            Map::Neither => 0,
        }
    }

    fn manage(&self, range: Range<usize>, verb: MemoryVerb) -> io::Result<()> {
        let (offset, len) = (range.start, range.len());
        let advise = |advice| of_map!(self, map => map.advise_range(advice, offset, len));
        let unchecked = |advice| {
            // SAFETY: the model knows the bytes that are there then.
            of_map!(self, map => unsafe { map.unchecked_advise_range(advice, offset, len) })
        };
        match verb {
            MemoryVerb::DontNeed => unchecked(UncheckedAdvice::DontNeed),
            MemoryVerb::Free => unchecked(UncheckedAdvice::Free),
            MemoryVerb::Cold => advise(Advice::Cold),
            MemoryVerb::PageOut => advise(Advice::PageOut),
            MemoryVerb::PopulateRead => advise(Advice::PopulateRead),
            MemoryVerb::PopulateWrite => advise(Advice::PopulateWrite),
            MemoryVerb::Lock => of_map!(self, map => map.lock()),
            MemoryVerb::Unlock => of_map!(self, map => map.unlock()),
        }
    }
}

pub struct Softfault {
    engine: Engine,
    /// The file that private copies are made of.
    file: File,
    /// Part of it is in swap.
    pub swaps: bool,
    /// Charged before anything was mapped; None in a child.
    before: Option<u64>,
    /// Pages that were filled ahead, by its parents before it was forked.
    ahead_of_parents: usize,
    /// By all of them, at the last look.
    ahead: AtomicUsize,
    /// Locked, so that there is less memory than the least.
    ballast: Option<MmapMut>,
    /// The maps, and the pages that each was made for, or has grown to.
    maps: Vec<(Range<usize>, Map)>,
    places: Places,
}

/// Pages of the ballast.
const BALLAST: usize = 760;

impl Softfault {
    pub fn new(engine: Engine, file: File) -> Self {
        let swaps = engine.stats().swap.is_some();
        let ballast = swaps.then(|| {
            let mut map = engine.map_anon(BALLAST * PAGE).unwrap();
            map.fill(7);
            map.lock().unwrap();
            map
        });
        Self {
            before: Some(engine.stats().resident_bytes),
            ahead_of_parents: 0,
            ahead: AtomicUsize::new(0),
            engine,
            file,
            swaps,
            ballast,
            maps: Vec::new(),
            places: Places::new(),
        }
    }

    /// In a child of fork, before it obeys.
    pub fn begin_in_child(&mut self) {
        self.before = None;
        self.ahead_of_parents = self.ahead.load(Relaxed);
        if let Some(ballast) = &self.ballast {
            ballast.lock().unwrap();
        }
    }

    /// Unmaps everything. `is_last`: no children live, nor theirs.
    pub fn finish(&mut self, is_last: bool) {
        self.clear();
        let mut ballast = self.ballast.iter().flat_map(|map| map.iter());
        assert!(ballast.all(|&byte| byte == 7));
        self.ballast = None;
        let swap = self.engine.stats().swap;
        let used = swap.map_or(0, |swap| swap.slots_used);
        assert!(!is_last || used == 0, "{swap:?}");
    }

    /// The map that shows a page.
    fn map_of(&mut self, page: usize) -> &mut (Range<usize>, Map) {
        let places = &self.places;
        let shows = |(all, map): &&mut (Range<usize>, Map)| {
            all.contains(&page) && places.is_at(page, map.start() + (page - all.start) * PAGE)
        };
        self.maps
            .iter_mut()
            .find(shows)
            .expect("a map that is there")
    }

    /// The parts of `pages` that a map shows which was made for `all`, at `start`.
    /// Where it was unmapped in the middle, others are by now.
    fn shown(&self, pages: &Range<usize>, all: &Range<usize>, start: usize) -> Vec<Range<usize>> {
        let part = pages.start.max(all.start)..pages.end.min(all.end);
        let is_shown = |page: &usize| {
            let start = start + (page - all.start) * PAGE;
            self.places.is_at(*page, start)
        };
        let mut parts: Vec<Range<usize>> = Vec::new();
        for page in part.filter(is_shown) {
            match parts.last_mut() {
                Some(last) if last.end == page => last.end += 1,
                _ => parts.push(page..page + 1),
            }
        }
        parts
    }

    fn each_part(
        &self,
        pages: &Range<usize>,
        mut act: impl FnMut(&Map, Range<usize>) -> io::Result<()>,
    ) -> io::Result<()> {
        for (all, map) in &self.maps {
            for part in self.shown(pages, all, map.start()) {
                act(
                    map,
                    (part.start - all.start) * PAGE..(part.end - all.start) * PAGE,
                )?;
            }
        }
        Ok(())
    }
}

impl Memory for Softfault {
    fn places(&self) -> &Places {
        &self.places
    }

    fn map(&mut self, pages: Range<usize>, from: Option<usize>) -> Result<(), MmError> {
        if !self.places.is_free(&pages) {
            return Err(MmError::Overlap);
        }
        let bytes = pages.len() * PAGE;
        let map = match from {
            None => self.engine.map_anon(bytes),
            Some(from) => {
                let mut options = MmapOptions::new();
                let options = options.offset((from * PAGE) as u64).len(bytes);
                // SAFETY: nobody changes the file.
                unsafe { options.map_copy_in(&self.engine, &self.file) }
            }
        };
        let map = Map::Mut(map.unwrap());
        self.places.set(&pages, Some(map.start()));
        self.maps.push((pages, map));
        Ok(())
    }

    fn unmap(&mut self, pages: Range<usize>) {
        let mut maps = core::mem::take(&mut self.maps);
        maps.retain_mut(|(all, map)| {
            let start = map.start();
            let parts = self.shown(&pages, all, start);
            let left = self
                .shown(all, all, start)
                .iter()
                .map(ExactSizeIterator::len)
                .sum::<usize>();
            if parts.iter().map(ExactSizeIterator::len).sum::<usize>() == left {
                return false;
            }
            for part in parts {
                let bytes = (part.start - all.start) * PAGE..(part.end - all.start) * PAGE;
                // SAFETY: nobody touches pages that are not in `places`.
                of_map!(map, map => unsafe { map.give_up_part(bytes) }).unwrap();
            }
            true
        });
        self.maps = maps;
        self.places.set(&pages, None);
    }

    fn set_writable(&mut self, pages: Range<usize>, is_writable: bool) {
        let (all, map) = self.map_of(pages.start);
        assert_eq!(*all, pages);
        map.set_writable(is_writable);
        self.places.set_writable(&pages, is_writable);
    }

    fn resize(&mut self, pages: Range<usize>, len: usize) {
        let is_writable = self.places.is_writable(pages.start);
        let (all, map) = self.map_of(pages.start);
        assert_eq!(*all, pages);
        *all = pages.start..pages.start + len;
        let options = RemapOptions::new().may_move(true);
        // SAFETY: nobody has a reference to it.
        of_map!(map, map => unsafe { map.remap(len * PAGE, options) }).unwrap();
        let (new, start) = (all.clone(), map.start());
        self.places.set(&pages, None);
        self.places.set(&new, Some(start));
        self.places.set_writable(&new, is_writable);
    }

    fn manage(&mut self, pages: Range<usize>, verb: MemoryVerb) -> Expected {
        let managed = self.each_part(&pages, |map, part| map.manage(part, verb));
        managed.unwrap_or_else(|error| panic!("{verb:?} of {pages:?}: {error}"));
        Expected::Done
    }

    fn clear(&mut self) {
        self.maps.clear();
        self.places = Places::new();
    }

    fn check(&self, paid: Paid) {
        let stats = self.engine.stats();
        assert!(
            stats.peak_bytes <= stats.budget_bytes.max(MAX_MEMORY as u64),
            "{stats:?}"
        );
        if self.swaps {
            return;
        }
        let held: usize = self.maps.iter().map(|(_, map)| map.resident_bytes()).sum();
        // Where writes run on, some were filled that nobody wrote to.
        let ahead = self.ahead_of_parents + stats.filled_ahead as usize;
        self.ahead.store(ahead, Relaxed);
        let most = paid.most.saturating_add(ahead);
        let pages = paid.least..=most;
        assert!(pages.contains(&(held / PAGE)), "{held} bytes, not {paid:?}");
        // Zeros are resident and cost nothing.
        let least = self.before.unwrap_or(0) + (paid.least * PAGE) as u64;
        assert!(stats.resident_bytes >= least, "{stats:?}, not {paid:?}");
        if self.maps.is_empty() {
            let before = self.before.unwrap_or(stats.resident_bytes);
            assert_eq!(stats.resident_bytes, before);
        }
    }

    fn absent(&self, pages: &[usize]) -> Option<usize> {
        let is_absent = |page: &&usize| {
            let mut mapped = 0;
            let looked = self.each_part(&(**page..*page + 1), |map, part| {
                mapped += of_map!(map, map => map.residency(part))?.mapped;
                Ok(())
            });
            looked.unwrap();
            mapped == 0
        };
        pages.iter().find(is_absent).copied()
    }

    fn evict(&mut self) {
        for pages in self.places.mapped() {
            // Locked pages do not go.
            let _ = self.each_part(&pages, |map, part| {
                let _ = map.manage(part, MemoryVerb::PageOut);
                Ok(())
            });
        }
    }

    fn set_memory(&mut self, more: u8) {
        if self.swaps {
            let more = (MAX_MEMORY - MIN_MEMORY) / 256 * usize::from(more);
            self.engine.set_memory(MIN_MEMORY + more).unwrap();
        }
    }
}

/// The largest budget of an engine with swap.
pub const MAX_MEMORY: usize = MIN_MEMORY + (2 << 20);
