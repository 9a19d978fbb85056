//! Operations on anonymous memory.

use core::ops::Range;
use proptest::prelude::*;
use softfault_engine::PAGE_SIZE;
use softfault_engine::mm::Protection;

/// Pages of the part of each space that operations are about: four page tables
/// and a half, which no map begins or ends with.
pub const ARENA_PAGES: usize = 2304;

/// One operation. Spaces are taken modulo those there are; addresses are bytes
/// or pages of the arena, taken modulo its size, and ranges end with it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // The fields are named after what they are.
pub enum AnonOp {
    /// Map anonymous memory, unless something is there.
    Map { space: u8, pages: Range<usize> },
    /// Unmap what is there.
    Unmap { space: u8, pages: Range<usize> },
    /// Change what may be done.
    Protect {
        space: u8,
        pages: Range<usize>,
        protection: Protection,
    },
    /// Move what is there to another place.
    Remap {
        space: u8,
        pages: Range<usize>,
        to: usize,
    },
    /// Make another space that begins as this one.
    Fork { space: u8 },
    /// End a space.
    Exit { space: u8 },
    /// Write bytes that depend on the seed.
    Write {
        space: u8,
        bytes: Range<usize>,
        seed: u8,
    },
    /// Read bytes.
    Read { space: u8, bytes: Range<usize> },
    /// Read and write here and there, by several threads at a time.
    Threads { space: u8, threads: u8, seed: u32 },
}

fn any_range(most: usize, unit: usize) -> impl Strategy<Value = Range<usize>> {
    let all = ARENA_PAGES * PAGE_SIZE / unit;
    let len = prop_oneof![1..=most.div_ceil(40), 1..=most];
    (0..all, len).prop_map(move |(start, len)| start..(start + len).min(all))
}

fn any_pages() -> impl Strategy<Value = Range<usize>> {
    any_range(1200, PAGE_SIZE)
}

fn any_bytes() -> impl Strategy<Value = Range<usize>> {
    any_range(200_000, 1)
}

/// Any operation; accesses are the most.
pub fn any_anon_op() -> impl Strategy<Value = AnonOp> {
    let protection = prop_oneof![
        Just(Protection::None),
        Just(Protection::Read),
        Just(Protection::ReadWrite),
        Just(Protection::ReadWrite),
    ];
    let space = any::<u8>;
    prop_oneof![
        6 => (space(), any_pages()).prop_map(|(space, pages)| AnonOp::Map { space, pages }),
        2 => (space(), any_pages()).prop_map(|(space, pages)| AnonOp::Unmap { space, pages }),
        3 => (space(), any_pages(), protection)
            .prop_map(|(space, pages, protection)| AnonOp::Protect { space, pages, protection }),
        4 => (space(), any_range(300, PAGE_SIZE), 0..ARENA_PAGES)
            .prop_map(|(space, pages, to)| AnonOp::Remap { space, pages, to }),
        3 => space().prop_map(|space| AnonOp::Fork { space }),
        2 => space().prop_map(|space| AnonOp::Exit { space }),
        10 => (space(), any_bytes(), any::<u8>())
            .prop_map(|(space, bytes, seed)| AnonOp::Write { space, bytes, seed }),
        7 => (space(), any_bytes()).prop_map(|(space, bytes)| AnonOp::Read { space, bytes }),
        3 => (space(), 2..5u8, any::<u32>())
            .prop_map(|(space, threads, seed)| AnonOp::Threads { space, threads, seed }),
    ]
}
