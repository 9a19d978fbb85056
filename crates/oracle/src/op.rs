//! Operations: one enum for plain runs, property tests and schedules.
//!
//! | on | addressed by | obeyed by |
//! |---|---|---|
//! | maps of one file | the number of a map, bytes of it | [`play`](crate::play) |
//! | anonymous memory in spaces that fork | space and page | [`play_anon`](crate::play_anon) |
//! | both, by several threads at a time | space and page | [`play_spaces`](crate::play_spaces) |
//!
//! A player of a list leaves out operations that are addressed in another way.

use core::ops::Range;
use proptest::prelude::*;
use softfault_engine::mm::Protection;
use softfault_engine::policy::Policies;

/// How a map is going to be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MapAdvice {
    /// Nothing is known.
    Normal,
    /// Single pages.
    Random,
    /// From the front to the end.
    Sequential,
    /// All of it, soon.
    WillNeed,
}

/// An operation on pages of anonymous memory and of private copies of a file, and one also on pages of files (`PopulateRead`),
/// that leaves their maps as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryVerb {
    /// They begin anew: as zeros, or as the file has them.
    DontNeed,
    /// Nobody misses their bytes: until they are written, each may become zeros.
    Free,
    /// They go first.
    Cold,
    /// They go now.
    PageOut,
    /// They come now.
    PopulateRead,
    /// They come now, ready to be written.
    PopulateWrite,
    /// They come now, and stay.
    Lock,
    /// They need not stay.
    Unlock,
}

impl MemoryVerb {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::DontNeed,
        Self::Free,
        Self::Cold,
        Self::PageOut,
        Self::PopulateRead,
        Self::PopulateWrite,
        Self::Lock,
        Self::Unlock,
    ];
}

/// The file and the budget that a run begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Its holes, in pages.
    pub holes: Vec<Range<u64>>,
    /// Distinguishes the bytes of one file from those of another.
    pub seed: u64,
    /// Bytes of the budget.
    pub memory: u64,
}

/// One operation. Numbers are taken modulo the number of things there are (maps, bytes of a
/// map), so that every sequence of operations is a valid one.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // The fields are named after what they are.
pub enum Op {
    /// Map a part of the file.
    Map { offset: u32, len: u32 },
    /// Drop a map.
    Unmap { map: u8 },
    /// Unmap some pages of a map.
    UnmapPart { map: u8, at: u32, len: u32 },
    /// Forbid or allow the reading of some pages.
    Protect {
        map: u8,
        at: u32,
        len: u32,
        readable: bool,
    },
    /// Say how a part of a map will be used.
    Advise {
        map: u8,
        at: u32,
        len: u32,
        advice: MapAdvice,
    },
    /// Read a byte.
    Touch { map: u8, at: u32 },
    /// Read some bytes in a row.
    Read { map: u8, at: u32, len: u32 },
    /// Read a byte every `step` bytes.
    Stride {
        map: u8,
        at: u32,
        step: u32,
        count: u8,
    },
    /// Read bytes here and there, by several threads at a time.
    Threads { map: u8, threads: u8, seed: u32 },
    /// Pin some bytes, at most once a map.
    Pin { map: u8, at: u32, len: u32 },
    /// Unpin pinned pages.
    Unpin { map: u8 },
    /// Begin to read some bytes.
    Prefetch { map: u8, at: u32, len: u32 },
    /// Forget some pages.
    Invalidate { map: u8, at: u32, len: u32 },
    /// Change the budget: so many 256ths of it more.
    Memory { more: u8 },
    /// Change the length of the file, up to its first length.
    Truncate { len: u32 },
    /// Evict everything.
    Evict,

    /// Map anonymous memory, unless something is there.
    MapZeros { space: u8, pages: Range<usize> },
    /// Map pages of the file, from page `from` on, unless something is there.
    MapFile {
        space: u8,
        pages: Range<usize>,
        from: usize,
    },
    /// Map a private copy of pages of the file, from page `from` on, unless
    /// something is there.
    MapCopy {
        space: u8,
        pages: Range<usize>,
        from: usize,
    },
    /// Evict or lock pages, or advise about them.
    ManagePages {
        space: u8,
        pages: Range<usize>,
        verb: MemoryVerb,
    },
    /// Let the next so many reads from swap fail.
    FailSwapReads { reads: u8 },
    /// Let the next so many writes to swap fail.
    FailSwapWrites { writes: u8 },
    /// Unmap the mappings there.
    UnmapPages { space: u8, pages: Range<usize> },
    /// Change the protection.
    ProtectPages {
        space: u8,
        pages: Range<usize>,
        protection: Protection,
    },
    /// Say how pages will be used.
    AdvisePages {
        space: u8,
        pages: Range<usize>,
        advice: MapAdvice,
    },
    /// Move the mappings to another place.
    RemapPages {
        space: u8,
        pages: Range<usize>,
        to: usize,
    },
    /// Make another space that begins as this one.
    Fork { space: u8 },
    /// End a space.
    Exit { space: u8 },
    /// Write bytes that depend on the seed.
    WriteBytes {
        space: u8,
        bytes: Range<usize>,
        seed: u8,
    },
    /// Read bytes.
    ReadBytes { space: u8, bytes: Range<usize> },
    /// Read and write here and there, by several threads at a time.
    SpaceThreads { space: u8, threads: u8, seed: u32 },
    /// Begin to read pages of the file.
    PrefetchFile { pages: Range<usize> },
    /// Forget pages of the file.
    InvalidateFile { pages: Range<usize> },
    /// Pin pages of the file, read them, and let them go.
    PinFile { pages: Range<usize> },
    /// Let so many reads end that are held back.
    Release { reads: u8 },
}

fn any_advice() -> impl Strategy<Value = MapAdvice> {
    prop_oneof![
        Just(MapAdvice::Normal),
        Just(MapAdvice::Random),
        Just(MapAdvice::Sequential),
        Just(MapAdvice::WillNeed),
    ]
}

/// Any operation; touches are the most.
pub fn any_op() -> impl Strategy<Value = Op> {
    let len = prop_oneof![1..20_000u32, 1..1_500_000u32];
    let part = (any::<u8>(), any::<u32>(), len);
    prop_oneof![
        3 => (any::<u32>(), any::<u32>()).prop_map(|(offset, len)| Op::Map { offset, len }),
        1 => any::<u8>().prop_map(|map| Op::Unmap { map }),
        2 => part.clone().prop_map(|(map, at, len)| Op::UnmapPart { map, at, len }),
        2 => (part.clone(), any::<bool>())
            .prop_map(|((map, at, len), readable)| Op::Protect { map, at, len, readable }),
        3 => (part.clone(), any_advice())
            .prop_map(|((map, at, len), advice)| Op::Advise { map, at, len, advice }),
        6 => (any::<u8>(), any::<u32>()).prop_map(|(map, at)| Op::Touch { map, at }),
        8 => part.clone().prop_map(|(map, at, len)| Op::Read { map, at, len }),
        5 => (any::<u8>(), any::<u32>(), 1..3_000_000u32, 2..60u8)
            .prop_map(|(map, at, step, count)| Op::Stride { map, at, step, count }),
        4 => (any::<u8>(), 2..6u8, any::<u32>())
            .prop_map(|(map, threads, seed)| Op::Threads { map, threads, seed }),
        3 => part.clone().prop_map(|(map, at, len)| Op::Pin { map, at, len }),
        2 => any::<u8>().prop_map(|map| Op::Unpin { map }),
        3 => part.clone().prop_map(|(map, at, len)| Op::Prefetch { map, at, len }),
        3 => part.prop_map(|(map, at, len)| Op::Invalidate { map, at, len }),
        2 => any::<u8>().prop_map(|more| Op::Memory { more }),
        2 => any::<u32>().prop_map(|len| Op::Truncate { len }),
        2 => Just(Op::Evict),
    ]
}

/// Policies of faults on files: each value of `retry`, `pin` and `miss` is in one of them.
pub fn any_policies() -> impl Strategy<Value = Policies> {
    let all = [
        "retry=mmap-lock+pin=no+miss=baseline",
        "retry=held+miss=p1",
        "pin=no+miss=p2",
        "retry=mmap-lock+miss=both",
        "retry=held+pin=no",
    ];
    prop::sample::select(all.map(|text| text.parse().expect("policies")).to_vec())
}
