//! The mappings taken and declined, by reason.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Why a mapping of a file is the kernel's. `docs/run.md` has a row for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decline {
    TooSmall,
    SmallMapping,
    NotRegular,
    WritableDescriptor,
    OpenForWriting,
    Fixed,
    Executable,
    Locked,
    SharedWritable,
    PrivateWritable,
    NoAccess,
    UnsupportedFlags,
    Excluded,
    FileMayChange,
    NoEngine,
    NoSwap,
    SwapFull,
    TablesFull,
    OtherMalloc,
    Error,
}

impl Decline {
    /// All of them, in the order of their numbers.
    pub const ALL: [(Self, &'static str, &'static str); COUNT] = [
        (
            Self::TooSmall,
            "too_small",
            "the file is smaller than --min-size, or not larger than 1 MiB",
        ),
        (
            Self::SmallMapping,
            "small_mapping",
            "the mapping is smaller than 128 KiB",
        ),
        (Self::NotRegular, "not_regular", "not a regular file"),
        (
            Self::WritableDescriptor,
            "o_rdwr",
            "the descriptor is open for writing",
        ),
        (
            Self::OpenForWriting,
            "open_for_writing",
            "a process has the file open for writing",
        ),
        (Self::Fixed, "map_fixed", "MAP_FIXED"),
        (Self::Executable, "prot_exec", "PROT_EXEC"),
        (Self::Locked, "map_locked", "MAP_LOCKED"),
        (
            Self::SharedWritable,
            "shared_writable",
            "shared and writable",
        ),
        (
            Self::PrivateWritable,
            "private_writable",
            "private and writable, without --swap",
        ),
        (Self::NoAccess, "no_access", "PROT_NONE, or not readable"),
        (
            Self::UnsupportedFlags,
            "unsupported_flags",
            "flags that only the kernel supports",
        ),
        (Self::Excluded, "excluded", "--include or --exclude"),
        (
            Self::FileMayChange,
            "file_may_change",
            "another user or another machine may write to the file",
        ),
        (Self::NoEngine, "no_engine", "no engine can be made"),
        (Self::NoSwap, "no_swap", "anonymous memory, without --swap"),
        (
            Self::SwapFull,
            "swap_full",
            "--swap has no room for all of it",
        ),
        (
            Self::TablesFull,
            "tables_full",
            "the tables of all that is taken could be more than half of the budget",
        ),
        (
            Self::OtherMalloc,
            "other_malloc",
            "malloc is not the C library's",
        ),
        (Self::Error, "error", "the engine could not map it"),
    ];

    /// The name of the reason, and its text.
    pub fn shown(self) -> (&'static str, &'static str) {
        let (_, name, why) = Self::ALL[self as usize];
        (name, why)
    }
}

const COUNT: usize = Decline::Error as usize + 1;

const _: () = {
    let mut at = 0;
    while at < COUNT {
        assert!(Decline::ALL[at].0 as usize == at);
        at += 1;
    }
};

/// Mappings, and their bytes. Relaxed, both: they are only printed.
pub struct Mappings {
    count: AtomicU64,
    bytes: AtomicU64,
}

impl Mappings {
    const fn new() -> Self {
        Self {
            count: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    /// Counts one.
    pub fn add(&self, bytes: usize) {
        self.count.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes as u64, Relaxed);
    }

    /// How many, and their bytes.
    pub fn get(&self) -> (u64, u64) {
        (self.count.load(Relaxed), self.bytes.load(Relaxed))
    }

    fn clear(&self) {
        self.count.store(0, Relaxed);
        self.bytes.store(0, Relaxed);
    }
}

static DECLINED: [Mappings; COUNT] = [const { Mappings::new() }; COUNT];
/// Mappings that the engine serves, or has served.
pub static TAKEN: Mappings = Mappings::new();
/// Those of them that are blocks of malloc(3).
pub static BLOCKS: Mappings = Mappings::new();
/// Those that the kernel serves by now.
pub static HANDED_BACK: Mappings = Mappings::new();

/// Counts a mapping that is the kernel's.
pub fn declined(why: Decline, bytes: usize) {
    DECLINED[why as usize].add(bytes);
}

/// The reasons for which any was declined.
pub fn all_declined() -> impl Iterator<Item = (&'static str, &'static str, (u64, u64))> {
    let all = Decline::ALL.iter().zip(&DECLINED);
    let all = all.map(|(&(_, name, why), mappings)| (name, why, mappings.get()));
    all.filter(|&(_, _, (count, _))| count > 0)
}

/// In a child of fork: the counts so far are the parent's.
pub fn forked() {
    DECLINED.iter().for_each(Mappings::clear);
    TAKEN.clear();
    BLOCKS.clear();
    HANDED_BACK.clear();
}
