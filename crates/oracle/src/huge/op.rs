//! Operations on huge mappings.

use core::ops::Range;
use proptest::prelude::*;
use softfault_engine::mm::Protection;
use softfault_engine::policy::{HugeAround, HugeJoin, HugePolicies, LeftLeaf, ShareSync};

/// Places of a huge page that each space has.
pub const SLOTS: usize = 64;
/// Spaces at a time, at most.
pub(super) const SPACES: usize = 6;

/// Where in a huge page an access goes. An access is of words of 8 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spot {
    /// The first word.
    First,
    /// One in the middle.
    Middle,
    /// The last word, and the first of the next page.
    Across,
}

/// A pool and its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HugeSetting {
    /// The synchronisation that keeps leaves from being unshared under a fault, and the treatment of leaves by faults and
    /// unmaps.
    pub policies: HugePolicies,
    /// Huge pages of a leaf.
    pub leaf_pages: usize,
    /// Fault mutexes.
    pub fault_mutexes: usize,
    /// Huge pages of the pool.
    pub pool_pages: u32,
    /// The most pages of each file.
    pub file_pages: u64,
    /// Files.
    pub files: usize,
    /// Spaces at the start.
    pub spaces: usize,
}

impl HugeSetting {
    /// The policies of a number: the synchronisation that keeps leaves from being unshared is another one with each; three
    /// times in four the rest is as by default.
    pub fn policies_of(number: u64) -> HugePolicies {
        let syncs = [
            ShareSync::VmaLock,
            ShareSync::IMmapRwsem,
            ShareSync::Document,
        ];
        let sync = syncs[(number % 3) as usize];
        let (others, which) = (number / 3 % 4 == 3, number / 12);
        let other = |bit: u64| others && which >> bit & 1 == 0;
        HugePolicies {
            sync,
            around: match other(0) {
                true => HugeAround::No,
                false => HugeAround::Yes,
            },
            join: match other(1) {
                true => HugeJoin::FaultMutex,
                false => HugeJoin::Leaf,
            },
            left: match other(2) {
                true => LeftLeaf::Freed,
                false => LeftLeaf::Kept,
            },
        }
    }
}

#[expect(missing_docs, reason = "verbs, and what they are about")]
/// An operation. Slots are a space's places of a huge page; indexes are a file's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HugeOp {
    /// A new mapping of `indexes`, of which `shown` is mapped from `slot` on.
    Map {
        space: u8,
        file: u8,
        indexes: Range<u64>,
        shown: Range<u64>,
        slot: usize,
        reserve: bool,
        protection: Protection,
    },
    /// Another part of the mapping that is shown at `of`.
    MapMore {
        space: u8,
        of: usize,
        shown: Range<u64>,
        slot: usize,
    },
    Unmap {
        space: u8,
        slots: Range<usize>,
    },
    Protect {
        space: u8,
        slots: Range<usize>,
        protection: Protection,
    },
    Remap {
        space: u8,
        slots: Range<usize>,
        to: usize,
    },
    Read {
        space: u8,
        slot: usize,
        spot: Spot,
    },
    Write {
        space: u8,
        slot: usize,
        spot: Spot,
    },
    /// A copy of a space, with this number.
    Fork {
        space: u8,
        child: u8,
    },
    Exit {
        space: u8,
    },
    Truncate {
        file: u8,
        pages: u64,
    },
    Punch {
        file: u8,
        indexes: Range<u64>,
    },
    /// The name is another file's; the old one lasts as long as its mappings.
    Replace {
        file: u8,
    },
}

fn any_slots() -> impl Strategy<Value = Range<usize>> {
    let len = prop_oneof![3 => 1..4usize, 1 => 1..24usize];
    (0..SLOTS, len).prop_map(|(start, len)| start..(start + len).min(SLOTS))
}

/// Ends and whole spans more often than chance would have it.
fn any_indexes(pages: u64) -> impl Strategy<Value = Range<u64>> {
    prop_oneof![
        1 => Just(0..pages),
        2 => (0..pages / 4, 1..4u64).prop_map(|(span, spans)| span * 4..(span + spans) * 4),
        3 => (0..pages, 1..pages + 2).prop_map(|(start, len)| start..start + len),
    ]
}

fn any_spot() -> impl Strategy<Value = Spot> {
    prop_oneof![Just(Spot::First), Just(Spot::Middle), Just(Spot::Across)]
}

fn any_protection() -> impl Strategy<Value = Protection> {
    prop_oneof![
        1 => Just(Protection::None),
        2 => Just(Protection::Read),
        6 => Just(Protection::ReadWrite),
    ]
}

/// Any operation on files of so many pages; accesses are the most. Spaces are taken
/// modulo those there are.
pub fn any_huge_op(pages: u64) -> impl Strategy<Value = HugeOp> {
    let (space, file) = (any::<u8>, any::<u8>);
    let map = (
        (space(), file(), any_indexes(pages), any_indexes(pages)),
        (
            0..SLOTS,
            proptest::bool::weighted(0.6),
            any_protection(),
            any::<u8>(),
        ),
    );
    prop_oneof![
        8 => map.prop_map(|((space, file, indexes, part), (slot, reserve, protection, whole))| {
            // Mostly all of it, and mostly where spans begin.
            let shown = match whole % 4 {
                0 => part,
                _ => indexes.clone(),
            };
            let slot = if whole & 4 == 0 { slot } else { slot / 8 * 8 };
            HugeOp::Map { space, file, indexes, shown, slot, reserve, protection }
        }),
        2 => (space(), 0..SLOTS, any_indexes(pages), 0..SLOTS)
            .prop_map(|(space, of, shown, slot)| HugeOp::MapMore { space, of, shown, slot }),
        4 => (space(), any_slots()).prop_map(|(space, slots)| HugeOp::Unmap { space, slots }),
        3 => (space(), any_slots(), any_protection())
            .prop_map(|(space, slots, protection)| HugeOp::Protect { space, slots, protection }),
        3 => (space(), any_slots(), 0..SLOTS)
            .prop_map(|(space, slots, to)| HugeOp::Remap { space, slots, to }),
        12 => (space(), 0..SLOTS, any_spot())
            .prop_map(|(space, slot, spot)| HugeOp::Read { space, slot, spot }),
        14 => (space(), 0..SLOTS, any_spot())
            .prop_map(|(space, slot, spot)| HugeOp::Write { space, slot, spot }),
        2 => (space(), any::<u8>()).prop_map(|(space, child)| HugeOp::Fork { space, child }),
        2 => space().prop_map(|space| HugeOp::Exit { space }),
        2 => (file(), 0..pages + 2).prop_map(|(file, pages)| HugeOp::Truncate { file, pages }),
        1 => file().prop_map(move |file| HugeOp::Truncate { file, pages }),
        3 => (file(), any_indexes(pages))
            .prop_map(|(file, indexes)| HugeOp::Punch { file, indexes }),
        1 => file().prop_map(|file| HugeOp::Replace { file }),
    ]
}
