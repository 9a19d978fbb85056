//! The drawn operations.

use crate::write_scene::PAGE;
use softfault_oracle::Random;

/// An operation on a file of both sides.
#[derive(Debug, Clone, Copy)]
pub struct Op {
    pub verb: Verb,
    pub at: usize,
    pub count: usize,
    /// Where something is copied to; or how long the file is to be.
    pub to: usize,
    /// Which of several things.
    pub which: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    // Through a map.
    Store,
    /// By a call that the map has for it.
    WriteAt,
    /// From another file, by read(2) into the map, or by way of a buffer.
    ReadFrom,
    /// The same, with the pages locked and nothing of ours in between.
    ReadLocked,
    CopyWithin,
    Look,
    ReadAt,
    WriteTo,
    // Calls of the map's methods.
    Flush,
    FlushRange,
    FlushSoon,
    PageOut,
    GiveAway,
    WillNeed,
    Populate,
    PunchPages,
    /// The budget becomes smaller for a while.
    Squeeze,
    // To the file, by descriptor, as the contract allows it beside a map.
    Read,
    Write,
    Punch,
    Zero,
    CopyFile,
    /// By the engine.
    SetLen,
    /// By ftruncate(2).
    SetLenByOther,
    /// Stores in the last page, past the end; then the file becomes longer.
    PastEnd,
    // Maps.
    MapPart,
    UnmapPart,
    MapRead,
    UnmapRead,
    MapAllAnew,
    /// Looks at the bytes that a read-only map of another engine shows.
    LookElsewhere,
    // At the same time.
    Threads,
    Fork,
}

/// How operations are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mix {
    /// All that there is.
    All,
    /// Those of fsx, with its way to draw where and how much.
    Fsx,
}

/// Each as often as it is there, of all of them together.
const ALL: [(Verb, usize); 33] = [
    (Verb::Store, 300),
    (Verb::WriteAt, 60),
    (Verb::ReadFrom, 40),
    (Verb::ReadLocked, 10),
    (Verb::CopyWithin, 60),
    (Verb::Look, 200),
    (Verb::ReadAt, 60),
    (Verb::WriteTo, 20),
    (Verb::Flush, 4),
    (Verb::FlushRange, 20),
    (Verb::FlushSoon, 6),
    (Verb::PageOut, 40),
    (Verb::GiveAway, 20),
    (Verb::WillNeed, 20),
    (Verb::Populate, 10),
    (Verb::PunchPages, 15),
    (Verb::Squeeze, 3),
    (Verb::Read, 40),
    (Verb::Write, 40),
    (Verb::Punch, 10),
    (Verb::Zero, 10),
    (Verb::CopyFile, 10),
    (Verb::SetLen, 10),
    (Verb::SetLenByOther, 4),
    (Verb::PastEnd, 4),
    (Verb::MapPart, 20),
    (Verb::UnmapPart, 20),
    (Verb::MapRead, 10),
    (Verb::UnmapRead, 10),
    (Verb::MapAllAnew, 3),
    (Verb::LookElsewhere, 10),
    (Verb::Threads, 8),
    (Verb::Fork, 4),
];

/// fsx's, which it draws alike.
const FSX: [Verb; 8] = [
    Verb::Read,
    Verb::Write,
    Verb::Look,
    Verb::Store,
    Verb::SetLen,
    Verb::Punch,
    Verb::Zero,
    Verb::CopyFile,
];

/// Of a file of `len` bytes, which may become `most` long.
pub fn draw(mix: Mix, random: &mut Random, len: usize, most: usize) -> Op {
    match mix {
        Mix::All => draw_all(random, len, most),
        Mix::Fsx => draw_fsx(random, len, most),
    }
}

fn draw_all(random: &mut Random, len: usize, most: usize) -> Op {
    let total: usize = ALL.iter().map(|(_, weight)| weight).sum();
    let mut left = random.below(total);
    let drawn = ALL.iter().find(|(_, weight)| {
        let is_it = left < *weight;
        left = left.saturating_sub(*weight);
        is_it
    });
    let verb = drawn.expect("less than all of them").0;
    let at = random.below(len.max(1));
    // Mostly few pages, now and then so many that others have to go.
    let largest = match random.below(16) {
        0 => 1 << 20,
        1..=4 => 64,
        _ => 3 * PAGE,
    };
    let count = (1 + random.below(largest)).min(len - at.min(len));
    let to = match verb {
        Verb::SetLen | Verb::SetLenByOther => match random.below(4) {
            0 => random.below(most),
            // Around the present length.
            _ => (len + 32 * PAGE - random.below(64 * PAGE).min(len)).min(most),
        },
        Verb::PastEnd => (len + 1 + random.below(3 * PAGE)).min(most),
        _ => random.below(len.saturating_sub(count).max(1)),
    };
    Op {
        verb,
        at,
        count,
        to,
        which: random.below(1 << 20),
    }
}

/// As much as it writes at a time.
const FSX_MOST: usize = 64 << 10;

fn draw_fsx(random: &mut Random, len: usize, most: usize) -> Op {
    let verb = match random.below(100) {
        // It closes the file and opens it again.
        0 => Verb::MapAllAnew,
        _ => FSX[random.below(FSX.len())],
    };
    let size = random.below(FSX_MOST + 1);
    let offset = random.below(1 << 31);
    // Operations that write may make the file longer.
    let end = match verb {
        Verb::Store | Verb::Write => most,
        _ => len,
    };
    let at = offset % end.max(1);
    let count = size.min(end - at.min(end));
    let to = match verb {
        Verb::SetLen => random.below(most),
        Verb::CopyFile => {
            let apart = |to: &usize| to + count <= most && (to + count <= at || at + count <= *to);
            let tries = (0..30).map(|_| random.below(most));
            tries.into_iter().find(apart).unwrap_or(at)
        }
        _ => 0,
    };
    Op {
        verb,
        at,
        count,
        to,
        which: random.below(1 << 20),
    }
}
