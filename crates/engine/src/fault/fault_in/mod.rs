//! Bringing ranges in, many at once, by one thread: reads are kept in flight while pages are
//! mapped.
//!
//! ```text
//!   ranges, sorted ── cursor ──► look, under the VMA lock          look.rs
//!                                  ├─ present: done, for the price of the look
//!                                  └─ not: its read is started, the piece waits in line
//!                                       │  up to DEPTH pieces, and spare frames
//!                                       ▼
//!                                take the first in line: the ordinary fault   mod.rs
//!                                  waits for its read, maps it, and the frames are free
//! ```
//!
//! - A *piece* is the part of the ranges in one 64 KiB block. Ranges that touch or overlap are one:
//!   no page is looked at twice.
//! - Reads are in flight, and nothing is held for them but their folios: no lock, no reference.
//!   So an interrupted caller leaves, and comes back. Pages that were evicted meanwhile, that found no
//!   frame or that the store did not take are read by the fault, which asks for the piece alone.
//! - Frames: a piece that finds none spare waits until those in line before it are mapped. So a
//!   budget of any size is kept, and where nothing is in line the fault takes a frame of its own.
//! - An error is that of the first page that has it. The ranges that have this page go no
//!   further; the others do (`results.rs`).

mod cursor;
mod look;
mod pieces;
mod results;

pub use results::{FaultInError, FaultInMany};

use super::{FaultAddress, FaultError, FaultFlags, Interrupt, Outcome, once_for_call, serve};
use crate::PAGE_SIZE;
use crate::fault::Fault;
use crate::mm::AddressSpace;
use core::ops::Range;
use cursor::Cursor;
use pieces::Pieces;

/// How far it got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// All of it.
    Done,
    /// Something else wants the thread: go on when that is done.
    Interrupted,
    /// The page at this address did not come. The ranges that have it are over, the others
    /// can go on.
    Failed(usize, FaultInError),
}

/// Ranges on their way in. They are lent to every call, the same each time: sorted by where
/// they start.
#[derive(Debug)]
pub struct FaultIn {
    /// For writing.
    write: bool,
    /// Reads are started and waited for.
    waits: bool,
    /// A read that is the only one is left to the fault, which does it in this thread: that costs half
    /// as much, and cannot be left.
    reads_alone: bool,
    /// The ranges that were not looked at yet.
    cursor: Cursor,
    /// The pieces that were missing, in the order of addresses.
    pieces: Pieces,
}

impl FaultIn {
    /// Nothing is in yet. The pages come for reads, or for writes.
    pub fn new(write: bool) -> Self {
        Self {
            write,
            waits: true,
            reads_alone: true,
            cursor: Cursor::default(),
            pieces: Pieces::default(),
        }
    }

    /// Reads can always be left, for a deadline or a signal, if the store has a way.
    pub fn leave_reads(&mut self) {
        self.reads_alone = false;
    }

    /// From now on nothing is read and nothing waited for: missing pages have
    /// [`FaultInError::TimedOut`].
    pub fn stop_waiting(&mut self) {
        self.waits = false;
    }

    /// Brings pages in, up to the end or the next that cannot be had.
    pub fn run(
        &mut self,
        ranges: &[Range<usize>],
        space: &AddressSpace,
        interrupt: &dyn Interrupt,
    ) -> Progress {
        loop {
            if let Some(progress) = self.step(ranges, space, interrupt) {
                return progress;
            }
        }
    }

    /// Starts reads, and brings in the piece that is first in line. `None`: the next step goes on.
    fn step(
        &mut self,
        ranges: &[Range<usize>],
        space: &AddressSpace,
        interrupt: &dyn Interrupt,
    ) -> Option<Progress> {
        // One VMA after the other, before the first piece is waited for: the reads of all are in flight together.
        while self.pieces.has_room_for_batch() && self.cursor.take_over(ranges) {
            if self.waits && interrupt.pending() {
                return Some(Progress::Interrupted);
            }
            let rest = self.cursor.rest();
            self.look(space);
            if self.cursor.rest() == rest {
                // No frame is spare, until the pieces in the queue are mapped.
                break;
            }
        }
        match self.pieces.first() {
            Some(piece) => match self.take(piece, space, interrupt) {
                Progress::Done => self.pieces.pop(),
                Progress::Interrupted => return Some(Progress::Interrupted),
                Progress::Failed(addr, why) => {
                    self.give_up_at(ranges, addr);
                    return Some(Progress::Failed(addr, why));
                }
            },
            None if self.cursor.take_over(ranges) => {}
            None => return Some(Progress::Done),
        }
        None
    }

    /// All pages of the ranges below this address are in, or were. Known while something comes.
    pub(super) fn reached(&self) -> Option<usize> {
        let first = self.pieces.first().or_else(|| self.cursor.rest());
        Some(first?.start)
    }

    /// For a caller that brings the pages in, in order, and is at `addr`: keeps reads of the
    /// next pages in flight.
    pub(super) fn keep_ahead_of(
        &mut self,
        addr: usize,
        ranges: &[Range<usize>],
        space: &AddressSpace,
    ) {
        while self.pieces.first().is_some_and(|piece| piece.end <= addr) {
            self.pieces.pop();
        }
        if self.pieces.has_room_for_batch() && self.cursor.take_over(ranges) {
            self.look(space);
        }
    }

    /// The ranges that have the page at `addr` are over: the next to bring in is the first of
    /// a range behind it.
    fn give_up_at(&mut self, ranges: &[Range<usize>], addr: usize) {
        let next = cursor::start_behind(ranges, addr);
        self.pieces.skip_to(next);
        self.cursor.skip_to(next);
    }

    /// Brings a piece in, page by page where it is not mapped at once.
    fn take(
        &mut self,
        piece: Range<usize>,
        space: &AddressSpace,
        interrupt: &dyn Interrupt,
    ) -> Progress {
        let mut at = piece.start;
        // A read of several pages has failed: whose page it is shows one by one.
        let mut alone = false;
        while at < piece.end {
            let pages = match alone {
                true => 1,
                false => (piece.end - at) / PAGE_SIZE,
            };
            let before = at;
            let outcome = self.fault(&mut at, pages, piece.end, space, interrupt);
            match outcome {
                None => return Progress::Failed(at, FaultInError::TimedOut),
                Some(Outcome::Mapped) => {}
                Some(Outcome::Interrupted) => {
                    self.pieces.skip_to(at);
                    return Progress::Interrupted;
                }
                Some(Outcome::Error(FaultError::Io(_) | FaultError::Short)) if pages > 1 => {
                    alone = true;
                    continue;
                }
                Some(Outcome::Error(error)) => {
                    return Progress::Failed(at, FaultInError::Error(error));
                }
            }
            alone &= at == before;
        }
        Progress::Done
    }

    /// One fault at `at`, which reads `pages` of it if needed; moves on to
    /// where the pages end that are there now, before `end`. `None` if the page is not there and
    /// is not to be waited for.
    fn fault(
        &self,
        at: &mut usize,
        pages: usize,
        end: usize,
        space: &AddressSpace,
        interrupt: &dyn Interrupt,
    ) -> Option<Outcome> {
        let from = *at;
        let addr = FaultAddress::new(from);
        let flags = FaultFlags {
            write: self.write,
            asked: pages as u8,
            ..FaultFlags::default()
        };
        let mut is_given_up = false;
        let outcome = serve(space, addr, flags, interrupt, |vma, flags| {
            let mut present = look::present(vma, from..end, self.write);
            let mut fault = Fault::Mapped;
            if present == 0 && !self.waits {
                is_given_up = true;
            } else if present == 0 && !flags.tried && interrupt.pending() {
                // The fault may read in this thread, and such a read cannot be left. A page that was waited for is mapped.
                fault = Fault::Again;
            } else if present == 0 {
                fault = once_for_call(vma, addr, flags);
                if matches!(fault, Fault::Mapped) {
                    // A fault may end because something has changed: then nothing is there yet.
                    present = look::present(vma, from..end, self.write);
                }
            }
            *at = from + present;
            fault
        });
        (!is_given_up).then_some(outcome)
    }
}
