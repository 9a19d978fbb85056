//! Touching anonymous memory for the first time: one byte of a page is written, another must be zero.

use super::super::engine::Anonymous;
use super::super::fill::PAGE;
use std::io;
use std::ptr::NonNull;

/// Places in a page that rounds write to in turn.
const PLACES: u64 = PAGE / 8;

/// One round's way to touch the pages of a mapping. It writes where the round before did not, and looks
/// where that one wrote: a page that was not made anew shows.
pub struct Toucher<'a> {
    memory: &'a dyn Anonymous,
    /// The memory, where stores reach it.
    start: Option<NonNull<u8>>,
    writes: u64,
    looks: u64,
}

impl<'a> Toucher<'a> {
    /// Of round number `round`.
    pub fn new(memory: &'a dyn Anonymous, round: u64) -> Self {
        Self {
            memory,
            start: memory.start(),
            writes: round % PLACES * 8,
            looks: (round + PLACES - 1) % PLACES * 8,
        }
    }

    /// Writes a byte of `page`, which the mapping must have.
    pub fn touch(&self, page: u64) -> Result<(), String> {
        let offset = (page * PAGE + self.writes) as usize;
        match self.start {
            Some(start) => {
                // SAFETY: the page is one of the mapping, which lives as long as `memory` is borrowed; no
                // two threads touch the same page.
                unsafe { start.add(offset).write_volatile(1) };
                Ok(())
            }
            None => {
                let written = self.memory.write_byte(offset, 1);
                written.map_err(|e| format!("cannot write page {page}: {e}"))
            }
        }
    }

    /// Looks at a page that was touched: it has what was written, and nothing else.
    pub fn check(&self, page: u64) -> Result<(), String> {
        self.look(page, self.writes, 1)?;
        self.look(page, self.looks, 0)
    }

    /// Looks whether a page that nobody touched is zero.
    pub fn check_untouched(&self, page: u64) -> Result<(), String> {
        self.look(page, self.looks, 0)
    }

    fn look(&self, page: u64, place: u64, wanted: u8) -> Result<(), String> {
        let offset = (page * PAGE + place) as usize;
        let byte = match self.start {
            // SAFETY: as in `touch`.
            Some(start) => Ok(unsafe { start.add(offset).read_volatile() }),
            None => self.memory.read_byte(offset),
        };
        let byte = byte.map_err(|e: io::Error| format!("cannot read page {page}: {e}"))?;
        match byte == wanted {
            true => Ok(()),
            false => Err(format!(
                "wrong data at offset {offset} of anonymous memory: read {byte} instead of {wanted}"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::engine::build::build;
    use super::*;

    #[test]
    fn a_write_that_is_lost_or_in_the_wrong_place_shows() {
        let engine = build("kernel".parse().unwrap(), 0, None).unwrap().unwrap();
        let memory = engine.map_anonymous(2 * PAGE as usize).unwrap();
        let toucher = Toucher::new(&*memory, 7);
        assert!(toucher.check_untouched(0).is_ok());
        assert!(toucher.check(0).is_err());
        toucher.touch(0).unwrap();
        assert!(toucher.check(0).is_ok() && toucher.check(1).is_err());
        let next = Toucher::new(&*memory, 8);
        next.touch(0).unwrap();
        assert!(next.check(0).is_err() && next.check_untouched(0).is_err());
    }
}
