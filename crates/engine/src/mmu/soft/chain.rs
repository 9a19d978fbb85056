//! Lists of free frames, linked through their notes.
//!
//! ```text
//!   Chain   current   f ── f ── f              as many as a batch, or fewer
//!           others    f ── f ── f ── f         a batch: BATCH frames at most
//!                     ║
//!                     f ── f ── f ── f         the next one
//! ```
//!
//! Frames go between a shard and the depot a batch at a time, and the note of its first frame has the link to the next
//! batch. So under the depot's lock one note is read and none is walked over. (When the depot was one list, 32 notes that
//! other processors had written were read for each batch, and 256 processors that evicted waited for its lock.)

use super::frames::{Frames, ZEROS};
use sync::atomic::Ordering::Relaxed;

/// Frames of a batch. Few where the world has few processors, so that models see several batches.
pub const BATCH: u32 = if sync::PROCESSORS < 8 { 2 } else { 32 };
/// As many frames are moved one by one: a batch of fewer would not be worth a visit to the depot.
const FEW: u32 = BATCH / 4;
/// Of the word of a note: the frame is free, and the rest is a link.
pub(super) const FREE: u32 = 1 << 31;

/// Free frames.
#[derive(Debug, Default)]
pub struct Chain {
    /// The first of the current batch, or [`ZEROS`] if there is none.
    first: u32,
    /// Frames of the current batch, at most.
    count: u32,
    others: FreeBatches,
}

/// Batches of free frames.
#[derive(Debug, Default)]
pub(super) struct FreeBatches {
    /// The first frame of the first one, or [`ZEROS`] if there is none.
    first: u32,
    /// The first frame of the last one, if there is one.
    last: u32,
    /// How many there are.
    count: u32,
}

// All orderings are relaxed: the holder of the only reference to a frame, or of its list, reads and writes its note. The locks
// of the shard and of the depot hand it over.
impl Chain {
    /// Adds a frame to which the caller had the only reference.
    pub fn push(&mut self, frames: &Frames, frame: u32) {
        if self.count == BATCH {
            self.others.push(frames, self.first);
            (self.first, self.count) = (ZEROS, 0);
        }
        // No read-modify-write.
        let word = &frames.note(frame).word;
        let last = word.load(Relaxed);
        assert!(last == 1, "frame {frame} is in use: {last:#x}");
        word.store(FREE | self.first, Relaxed);
        self.first = frame;
        self.count += 1;
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.first == ZEROS && self.others.count == 0
    }

    /// How many there are, at most.
    pub(super) fn frames(&self) -> u32 {
        self.count + self.others.count * BATCH
    }

    /// The frame that is taken next, if it is of the current batch.
    pub(super) fn next(&self) -> Option<u32> {
        (self.first != ZEROS).then_some(self.first)
    }

    /// Takes a frame off: the caller has the only reference.
    pub(super) fn pop(&mut self, frames: &Frames) -> Option<u32> {
        if self.first == ZEROS {
            self.first = self.others.pop(frames)?;
            self.count = BATCH;
        }
        let frame = self.first;
        let word = &frames.note(frame).word;
        let link = word.load(Relaxed);
        assert!(link & FREE != 0, "free frame {frame} is in use");
        word.store(1, Relaxed);
        self.first = link & !FREE;
        self.count = match self.first {
            ZEROS => 0,
            _ => self.count - 1,
        };
        Some(frame)
    }

    /// Puts all of `other` in front.
    pub(super) fn splice(&mut self, frames: &Frames, mut other: Chain) {
        (self.others).splice(frames, core::mem::take(&mut other.others));
        if self.first == ZEROS {
            (self.first, self.count) = (other.first, other.count);
            return;
        }
        if other.count > FEW {
            return self.others.push(frames, other.first);
        }
        while let Some(frame) = other.pop(frames) {
            self.push(frames, frame);
        }
    }

    /// Puts a batch, by its first frame, where there is no frame.
    pub(super) fn fill(&mut self, batch: u32) {
        debug_assert!(self.is_empty());
        (self.first, self.count) = (batch, BATCH);
    }

    /// Takes all batches, but for the current one.
    pub(super) fn take_others(&mut self) -> FreeBatches {
        core::mem::take(&mut self.others)
    }
}

impl FreeBatches {
    /// True if there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds a batch, by its first frame.
    fn push(&mut self, frames: &Frames, batch: u32) {
        frames.note(batch).next_batch.store(self.first, Relaxed);
        if self.count == 0 {
            self.last = batch;
        }
        self.first = batch;
        self.count += 1;
    }

    /// Takes a batch off: its first frame.
    pub(super) fn pop(&mut self, frames: &Frames) -> Option<u32> {
        self.count = self.count.checked_sub(1)?;
        let batch = self.first;
        self.first = frames.note(batch).next_batch.load(Relaxed);
        Some(batch)
    }

    /// Puts all of `other` in front.
    pub(super) fn splice(&mut self, frames: &Frames, other: FreeBatches) {
        if other.count == 0 {
            return;
        }
        let link = &frames.note(other.last).next_batch;
        link.store(self.first, Relaxed);
        if self.count == 0 {
            self.last = other.last;
        }
        self.first = other.first;
        self.count += other.count;
    }
}
