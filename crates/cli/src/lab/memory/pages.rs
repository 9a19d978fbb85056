//! Memory whose pages hold `words`: every read is checked against the words written.

use super::super::block::Block;
use super::super::engine::Anonymous;
use super::super::fill::{PAGE, WORDS};
use super::versions::{Seen, Versions};
use super::words::Words;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// Pages written at once while populating.
const RUN: u64 = 64;
/// How far back a read looks for the word that it must find at the least.
const LOOK: u32 = 64;

/// Memory, its contents, and how often each page was written. All fields immutable but the versions.
pub struct Pages<'a> {
    memory: &'a dyn Anonymous,
    words: Words,
    versions: Versions,
}

impl<'a> Pages<'a> {
    /// Over so many pages of `memory`, which `populate` has to fill.
    pub fn new(memory: &'a dyn Anonymous, pages: u64, seed: u64) -> Self {
        Self {
            memory,
            words: Words::new(seed),
            versions: Versions::new(pages),
        }
    }

    /// So many.
    pub fn count(&self) -> u64 {
        self.versions.pages()
    }

    /// Writes version 0 of pages, whole; returns early if `stopped`.
    pub fn populate(&self, pages: Range<u64>, stopped: impl Fn() -> bool) -> Result<(), String> {
        let mut run = vec![Block::default(); RUN as usize];
        for first in pages.clone().step_by(RUN as usize) {
            if stopped() {
                break;
            }
            let count = RUN.min(pages.end - first) as usize;
            for (page, block) in (first..).zip(&mut run[..count]) {
                self.fill(page, 0, block);
            }
            let bytes = Block::bytes(&run[..count]);
            let written = self.memory.write_at((first * PAGE) as usize, bytes);
            written.map_err(|e| cannot("write", first, e))?;
        }
        Ok(())
    }

    /// Writes the next version of a page: a word of it, or all of it where memory takes whole pages only.
    pub fn write(&self, page: u64) -> Result<(), String> {
        self.versions.write(page, |version| {
            if self.memory.by_pages() {
                let mut block = Block::default();
                self.fill(page, version, &mut block);
                let bytes = Block::bytes(std::slice::from_ref(&block));
                let written = self.memory.write_at((page * PAGE) as usize, bytes);
                return written.map_err(|e| cannot("write", page, e));
            }
            let place = self.words.place(page, version);
            self.store(page, place, self.words.word(page, place, version))
        })
    }

    /// Reads a word of a page, the newest or one at random, and checks that it is one that was written there
    /// and not older than it must be.
    pub fn read(&self, page: u64, chance: u64) -> Result<(), String> {
        let before = self.versions.before(page);
        let place = match chance & 1 {
            1 if before.done > 0 => self.words.place(page, before.done),
            _ => (chance >> 1) % WORDS,
        };
        let least = match self.memory.by_pages() {
            true => before.done,
            false => {
                let newest = self.words.newest_at(page, place, before.done, LOOK);
                newest.unwrap_or(0)
            }
        };
        let word = self.load(page, place)?;
        let after = self.versions.after(page);
        let found = self.words.version(page, place, word);
        let written_there = |version: u32| {
            version == 0 || self.memory.by_pages() || self.words.place(page, version) == place
        };
        match found {
            Some(version) if (least..=after.begun).contains(&version) && written_there(version) => {
                Ok(())
            }
            _ => Err(wrong(page, place, word, self.words, least..=after.begun)),
        }
    }

    /// Checks every word of a page that nobody writes now.
    pub fn sweep(&self, page: u64) -> Result<(), String> {
        self.verify(page, self.versions.before(page)).map(drop)
    }

    /// The contents that a page may have now.
    pub fn seen(&self, page: u64) -> Seen {
        self.versions.before(page)
    }

    /// Checks every word of a page that nobody writes now: all are of one version of the page, which is none
    /// but those of `seen`. Returns that version.
    pub fn verify(&self, page: u64, seen: Seen) -> Result<u32, String> {
        let mut block = Block::default();
        let offset = (page * PAGE) as usize;
        let read = self
            .memory
            .read_at(offset, Block::bytes_mut(std::slice::from_mut(&mut block)));
        read.map_err(|e| cannot("read", page, e))?;
        let found = |place: u64| self.words.version(page, place, block.word(place));
        let newest = (0..WORDS).filter_map(found).max().unwrap_or(0);
        let newest = newest.max(seen.done);
        let image = match self.memory.by_pages() {
            true => [newest; WORDS as usize],
            false if newest <= seen.begun => self.words.image(page, newest),
            // Not computed from a value that may be any number.
            false => [seen.begun; WORDS as usize],
        };
        for (place, &version) in (0..).zip(&image) {
            if found(place) != Some(version) {
                let word = block.word(place);
                return Err(wrong(page, place, word, self.words, version..=version));
            }
        }
        Ok(newest)
    }

    fn fill(&self, page: u64, version: u32, block: &mut Block) {
        for place in 0..WORDS {
            block.set_word(place, self.words.word(page, place, version));
        }
    }

    fn load(&self, page: u64, place: u64) -> Result<u64, String> {
        if let Some(word) = self.at(page, place) {
            // SAFETY: the word is one of the mapping's, which lives as long as `self`; all threads reach
            // it by atomics while there are several.
            return Ok(unsafe { word.as_ref() }.load(Ordering::Relaxed));
        }
        let mut word = [0; 8];
        let read = self
            .memory
            .read_at((page * PAGE + place * 8) as usize, &mut word);
        read.map_err(|e| cannot("read", page, e))?;
        Ok(u64::from_ne_bytes(word))
    }

    fn store(&self, page: u64, place: u64, value: u64) -> Result<(), String> {
        if let Some(word) = self.at(page, place) {
            // SAFETY: as in `load`.
            unsafe { word.as_ref() }.store(value, Ordering::Relaxed);
            return Ok(());
        }
        let written = self
            .memory
            .write_at((page * PAGE + place * 8) as usize, &value.to_ne_bytes());
        written.map_err(|e| cannot("write", page, e))
    }

    /// A word of the memory, where loads and stores reach it.
    fn at(&self, page: u64, place: u64) -> Option<NonNull<AtomicU64>> {
        assert!(page < self.count() && place < WORDS);
        let start = self.memory.start()?;
        // SAFETY: the offset is within the memory, which has `count` pages.
        Some(unsafe { start.add((page * PAGE + place * 8) as usize) }.cast())
    }
}

fn cannot(what: &str, page: u64, error: io::Error) -> String {
    format!("cannot {what} page {page}: {error}")
}

fn wrong(
    page: u64,
    place: u64,
    found: u64,
    words: Words,
    versions: std::ops::RangeInclusive<u32>,
) -> String {
    let offset = page * PAGE + place * 8;
    let is = match words.version(page, place, found) {
        Some(version) => format!("version {version} of it"),
        None if found == 0 => "zero".into(),
        None => format!("{found:#018x}, never written there"),
    };
    let (least, most) = versions.into_inner();
    let must = match least == most {
        true => format!("{least}"),
        false => format!("{least} to {most}"),
    };
    format!("wrong data at page {page}, offset {offset}: read {is}, it must be version {must}")
}

#[cfg(test)]
mod tests {
    use super::super::super::engine::stored::Stored;
    use super::*;

    fn over<T>(test: impl FnOnce(&Pages, &Stored<memmap2::MmapMut>) -> T) -> T {
        let map = memmap2::MmapMut::map_anon(8 * PAGE as usize).unwrap();
        let stored = Stored::over(map);
        let pages = Pages::new(&stored, 8, 1);
        pages.populate(0..8, || false).unwrap();
        test(&pages, &stored)
    }

    #[test]
    fn written_bytes_are_read() {
        over(|pages, _| {
            for number in 0..2000 {
                pages.write(number % 5).unwrap();
                pages.read(number % 8, number).unwrap();
            }
            for page in 0..8 {
                pages.sweep(page).unwrap();
            }
            let seen = pages.seen(2);
            assert_eq!(
                (seen.done, seen.begun, pages.verify(2, seen)),
                (400, 400, Ok(400))
            );
        });
    }

    #[test]
    fn a_lost_write_a_zeroed_page_and_anothers_page_are_seen() {
        over(|pages, memory| {
            let page = |number: u64| {
                let mut bytes = [0; PAGE as usize];
                memory
                    .read_at((number * PAGE) as usize, &mut bytes)
                    .unwrap();
                bytes
            };
            let put = |number: u64, bytes: &[u8]| {
                memory.write_at((number * PAGE) as usize, bytes).unwrap();
            };
            let any_read_sees = || (0..4096).any(|chance| pages.read(3, chance).is_err());
            let old = page(3);
            pages.write(3).unwrap();
            let new = page(3);
            put(3, &old);
            let lost = pages.read(3, 1).unwrap_err();
            assert!(
                lost.contains("version 0 of it") && lost.contains("must be version 1"),
                "{lost}"
            );
            assert!(pages.sweep(3).is_err());
            put(3, &[0; PAGE as usize]);
            assert!(pages.read(3, 0).unwrap_err().contains("read zero"));
            assert!(pages.sweep(3).is_err());
            put(3, &page(4));
            assert!(
                pages
                    .read(3, 0)
                    .unwrap_err()
                    .contains("never written there")
            );
            assert!(pages.sweep(3).is_err());
            put(3, &new);
            pages.sweep(3).unwrap();
            assert!(!any_read_sees());
        });
    }

    #[test]
    fn every_flipped_bit_fails_the_sweep() {
        over(|pages, memory| {
            pages.write(1).unwrap();
            for bit in (0..PAGE * 8).step_by(97) {
                let at = (PAGE + bit / 8) as usize;
                let byte = memory.read_byte(at).unwrap();
                memory.write_byte(at, byte ^ 1 << (bit % 8)).unwrap();
                assert!(pages.sweep(1).is_err(), "bit {bit}");
                memory.write_byte(at, byte).unwrap();
            }
            pages.sweep(1).unwrap();
        });
    }

    #[test]
    fn a_snapshot_is_of_one_version_and_none_but_those_allowed() {
        over(|pages, _| {
            for _ in 0..3 {
                pages.write(0).unwrap();
            }
            let seen = |done, begun| Seen { done, begun };
            assert_eq!(pages.verify(0, seen(2, 4)), Ok(3));
            assert!(pages.verify(0, seen(4, 5)).is_err());
            assert!(pages.verify(0, seen(1, 2)).is_err());
        });
    }
}
