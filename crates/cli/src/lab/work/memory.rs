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

    /// Looks whether the rest of `page` is still zero.
    pub fn check(&self, page: u64) -> Result<(), String> {
        let offset = (page * PAGE + self.looks) as usize;
        let byte = match self.start {
            // SAFETY: as in `touch`.
            Some(start) => Ok(unsafe { start.add(offset).read_volatile() }),
            None => self.memory.read_byte(offset),
        };
        match byte.map_err(|e: io::Error| format!("cannot read page {page}: {e}"))? {
            0 => Ok(()),
            byte => Err(format!(
                "wrong data at offset {offset} of anonymous memory: read {byte}, and nobody wrote there"
            )),
        }
    }
}
