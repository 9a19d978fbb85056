//! Whether files are read through the kernel's page cache: the policy of an engine, and its counts.

use super::follow::LimitFollower;
use super::room::Room;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use softfault_engine::budget::Budget;
use softfault_engine::lock::Bell;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Whether files are read through the kernel's page cache. In each case the budget bounds the engine's own
/// memory. Pages in the page cache belong to the kernel, which reclaims them when memory is short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reads {
    /// Direct reads (`O_DIRECT`), past the page cache. Where a file system has no direct reads, the engine drops
    /// the page cache's pages after each read.
    Direct,
    /// Reads through the page cache. The pages stay there, for the next process and for the next map.
    Cached,
    /// The engine decides for each file by the free memory (`docs/reads.md` has the rules). Pages that the page cache
    /// has are copied from there. A file that fits in free memory, within the limits of the memory cgroups, is read
    /// through the page cache and left there. A larger file is read past it.
    #[default]
    Auto,
}

/// The policies by name.
const NAMES: [(&str, Reads); 3] = [
    ("direct", Reads::Direct),
    ("cached", Reads::Cached),
    ("auto", Reads::Auto),
];

impl FromStr for Reads {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = NAMES.iter().find(|(name, _)| *name == text);
        found.map_or(
            Err("the value must be direct, cached or auto"),
            |(_, reads)| Ok(*reads),
        )
    }
}

impl fmt::Display for Reads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES.iter().find(|(_, reads)| reads == self);
        f.pad(name.map_or("", |(name, _)| name))
    }
}

/// As in `bytes_of_process`.
static OF_PROCESS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
/// As in `device_bytes`.
static DEVICE_BYTES: AtomicU64 = AtomicU64::new(0);

/// The policy of one engine.
#[derive(Debug)]
pub(crate) struct ReadPolicy {
    /// Immutable. [`Reads::Auto`] only where there is a room to ask.
    reads: Reads,
    /// Immutable. The kernel may serve files: it is [`Reads::Auto`] and nobody forbade it.
    kernel_may_serve: bool,
    /// Immutable.
    room: Option<Room>,
    /// Bytes that were asked of the page cache.
    cached: AtomicU64,
    /// Bytes that were read past it, or dropped behind the read.
    direct: AtomicU64,
    /// Rings when a file has been read far through the page cache, or limits are to be looked at again.
    pub(crate) bell: Arc<Bell>,
    /// The budget that was nobody's wish: `follow.rs`.
    pub(super) follower: LimitFollower,
}

impl ReadPolicy {
    /// The policy of an engine with this budget, which may be the one that it has without being told.
    pub(crate) fn new(
        reads: Reads,
        budget: &Arc<Budget>,
        is_default: bool,
        allow_kernel_maps: bool,
    ) -> Self {
        let room = match reads {
            Reads::Auto => Room::new(budget.clone()),
            Reads::Direct | Reads::Cached => None,
        };
        let reads = match (reads, &room) {
            // A file whose state cannot be asked is not filled.
            (Reads::Auto, None) => Reads::Direct,
            (reads, _) => reads,
        };
        Self {
            reads,
            kernel_may_serve: allow_kernel_maps && reads == Reads::Auto,
            room,
            cached: AtomicU64::new(0),
            direct: AtomicU64::new(0),
            bell: Arc::default(),
            follower: LimitFollower::new(is_default.then(|| budget.limit())),
        }
    }

    /// Of a store that is no engine's.
    pub(crate) fn alone(reads: Reads) -> Self {
        debug_assert_ne!(reads, Reads::Auto, "there is no budget");
        Self {
            reads,
            kernel_may_serve: false,
            room: None,
            cached: AtomicU64::new(0),
            direct: AtomicU64::new(0),
            bell: Arc::default(),
            follower: LimitFollower::new(None),
        }
    }

    pub(super) fn reads(&self) -> Reads {
        self.reads
    }

    /// Of [`Reads::Auto`]: the room in the page cache.
    pub(super) fn room(&self) -> Option<&Room> {
        self.room.as_ref()
    }

    /// True if the way of reading depends on the contents of the page cache.
    pub(crate) fn looks_at_the_page_cache(&self) -> bool {
        self.reads == Reads::Auto
    }

    /// True if the kernel may serve files, in the place of their windows.
    pub(crate) fn kernel_may_serve(&self) -> bool {
        self.kernel_may_serve
    }

    /// From now on there is so much room in the page cache.
    #[cfg(test)]
    pub(crate) fn set_room(&self, left: i64) {
        self.room.as_ref().expect("of `Auto`").set_left(left);
    }

    /// Of [`Reads::Auto`]: whether there is room in the page cache for any more. Not for a handler.
    pub(crate) fn has_room(&self) -> bool {
        self.room.as_ref().is_some_and(|room| {
            room.find_groups();
            room.fits(1)
        })
    }

    pub(super) fn count(&self, through_cache: bool, bytes: usize) {
        let counter = match through_cache {
            true => &self.cached,
            false => &self.direct,
        };
        counter.fetch_add(bytes as u64, Relaxed);
        if self.follower.read(bytes as u64) {
            self.bell.ring();
        }
        OF_PROCESS[usize::from(through_cache)].fetch_add(bytes as u64, Relaxed);
    }

    /// Bytes that all engines of the process have read past the page cache, and asked of it.
    pub(crate) fn bytes_of_process() -> [u64; 2] {
        OF_PROCESS.each_ref().map(|bytes| bytes.load(Relaxed))
    }

    /// So many bytes came from a device, or will.
    pub(super) fn count_device_bytes(&self, bytes: usize) {
        DEVICE_BYTES.fetch_add(bytes as u64, Relaxed);
    }

    /// Bytes that all engines of the process have let come from devices, as far as is known.
    pub(super) fn device_bytes() -> u64 {
        DEVICE_BYTES.load(Relaxed)
    }

    /// Bytes that were asked of the page cache.
    pub(crate) fn cached_bytes(&self) -> u64 {
        self.cached.load(Relaxed)
    }

    /// Bytes that were read past it.
    pub(crate) fn direct_bytes(&self) -> u64 {
        self.direct.load(Relaxed)
    }
}
