//! Operations on anonymous memory, drawn. Spaces are taken modulo those there
//! are; addresses are bytes or pages of the arena.

use crate::op::{MemoryVerb, Op};
use core::ops::Range;
use proptest::prelude::*;
use softfault_engine::PAGE_SIZE;
use softfault_engine::mm::Protection;

/// Pages of the part of each space that operations are about: four page tables
/// and a half, which no map begins or ends with.
pub const ARENA_PAGES: usize = 2304;

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
pub fn any_anon_op() -> impl Strategy<Value = Op> {
    let protection = prop_oneof![
        Just(Protection::None),
        Just(Protection::Read),
        Just(Protection::ReadWrite),
        Just(Protection::ReadWrite),
    ];
    let space = any::<u8>;
    prop_oneof![
        6 => (space(), any_pages()).prop_map(|(space, pages)| Op::MapZeros { space, pages }),
        2 => (space(), any_pages()).prop_map(|(space, pages)| Op::UnmapPages { space, pages }),
        3 => (space(), any_pages(), protection)
            .prop_map(|(space, pages, protection)| Op::ProtectPages { space, pages, protection }),
        4 => (space(), any_range(300, PAGE_SIZE), 0..ARENA_PAGES)
            .prop_map(|(space, pages, to)| Op::RemapPages { space, pages, to }),
        3 => space().prop_map(|space| Op::Fork { space }),
        2 => space().prop_map(|space| Op::Exit { space }),
        10 => (space(), any_bytes(), any::<u8>())
            .prop_map(|(space, bytes, seed)| Op::WriteBytes { space, bytes, seed }),
        7 => (space(), any_bytes()).prop_map(|(space, bytes)| Op::ReadBytes { space, bytes }),
        3 => (space(), 2..5u8, any::<u32>())
            .prop_map(|(space, threads, seed)| Op::SpaceThreads { space, threads, seed }),
    ]
}

fn any_verb() -> impl Strategy<Value = MemoryVerb> {
    proptest::sample::select(MemoryVerb::ALL.as_slice())
}

/// The same, and operations of memory and swap. `failing`: swap fails now
/// and then.
pub fn any_swap_op(failing: bool) -> impl Strategy<Value = Op> {
    let space = any::<u8>;
    let fails = any::<(bool, u8)>().prop_map(move |(reads, count)| match (failing, reads) {
        (true, true) => Op::FailSwapReads { reads: count % 4 },
        (true, false) => Op::FailSwapWrites { writes: count % 4 },
        (false, _) => Op::Evict,
    });
    prop_oneof![
        40 => any_anon_op(),
        4 => (space(), any_pages(), 0..2000usize)
            .prop_map(|(space, pages, from)| Op::MapCopy { space, pages, from }),
        14 => (space(), any_range(400, PAGE_SIZE), any_verb())
            .prop_map(|(space, pages, verb)| Op::ManagePages { space, pages, verb }),
        2 => any::<u8>().prop_map(|more| Op::Memory { more }),
        3 => Just(Op::Evict),
        3 => fails,
    ]
}
