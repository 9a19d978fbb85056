//! Policies: the change of each document, as a value, with its baseline.
//!
//! A policy changes the same as its document, so that before and after run in one
//! binary. `miss` changes more: its values but `adaptive` also let frames take three quarters of the
//! budget, evict in the order of arrival and remember all that is evicted, as Linux's page cache
//! does; without, they would lose by our reclaim. The defaults are the best that we have measured. As
//! text, for command lines and results, policies are `name=value` joined by `+`; a policy that is
//! not named has its default.
//!
//! | policy | name | values | document |
//! |---|---|---|---|
//! | [`VmaLockKind`] | `lock` | `rwsem`, `refcount`, `biased` | 004, and beyond |
//! | [`VmaReuse`] | `reuse` | `rcu`, `typesafe` | 004 |
//! | [`MmapQueue`] | `mmap` | `phase-fair`, `steal`, `linux` | 000: its kernel's; `steal` is ours |
//! | [`MmapVerbs`] | `verbs` | `alone`, `shared` | none: ours |
//! | [`RetryLock`] | `retry` | `mmap-lock`, `vma-lock`, `held` | 000, 002 |
//! | [`RetryPin`] | `pin` | `no`, `yes` | 000 |
//! | [`MissAccounting`] | `miss` | `baseline`, `p1`, `p2`, `both`, `adaptive` | 003 |
//! | [`ShareSync`] | `share` | `i-mmap-rwsem`, `document`, `vma-lock` | 001, and beyond |
//! | [`HugeAround`] | `around` | `no`, `yes` | none: ours, of 001's faults |
//! | [`HugeJoin`] | `join` | `fault-mutex`, `leaf` | none: ours, of 001's faults |
//! | [`LeftLeaf`] | `left` | `freed`, `kept` | none: ours, of 001's tables |
//! | [`FirstTouch`] | `fill` | `page`, `run` | none: ours |
//! | [`MapBy`] | `map` | `copy`, `move` | none: ours |

use crate::page::Order;
use core::fmt;
use core::str::FromStr;

/// The kind of lock of a VMA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum VmaLockKind {
    /// A reader-writer semaphore in an allocation of its own, and a flag that
    /// says whether the VMA is detached: Linux before document 004.
    Rwsem,
    /// One count in the VMA that is lock, flag and lifetime (document 004).
    #[default]
    Refcount,
    /// The count, and a bias for reading where it is contended: readers of such a
    /// VMA write a word of their own processor, and its write lock looks
    /// at all of these. Ours, after BRAVO (Dice and Kogan, USENIX ATC 2019).
    Biased,
}

/// The order in which waiting readers and writers get `mmap_lock`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum MmapQueue {
    /// Readers and writers take turns: a reader waits for one writer at most, and writers go in
    /// the order of their coming.
    PhaseFair,
    /// The same for readers, but a writer that runs may take the free lock before one that
    /// sleeps, a few times.
    #[default]
    Steal,
    /// A reader waits for all writers that came before it, or before another
    /// waiting reader: Linux's queue.
    Linux,
}

/// Whether verbs that change one VMA alone do so beside one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum MmapVerbs {
    /// Each verb holds `mmap_lock` for write: Linux.
    #[default]
    Alone,
    /// A map into a gap and an unmap of a whole mapping, of memory that nothing else shows, where its window is, share
    /// `mmap_lock`, with `lock=refcount` and `reuse=typesafe`.
    Shared,
}

/// When the slot of a VMA that was unmapped may be another VMA's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum VmaReuse {
    /// After a grace period, when all lookups that were under way have ended: Linux before
    /// document 004.
    Rcu,
    /// At once: a lookup looks again when it has its reference (document 004).
    #[default]
    TypeSafe,
}

/// The locks of an address space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SpaceLocks {
    /// Of its VMAs.
    pub vma: VmaLockKind,
    /// Of the space itself.
    pub mmap: MmapQueue,
    /// Of its VMAs, when they are gone.
    pub reuse: VmaReuse,
    /// Of the space itself.
    pub verbs: MmapVerbs,
}

impl SpaceLocks {
    /// These as a space has them: verbs are not shared with each of the other kinds.
    #[must_use]
    pub fn effective(self) -> Self {
        let can_share = self.vma == VmaLockKind::Refcount && self.reuse == VmaReuse::TypeSafe;
        Self {
            verbs: if can_share {
                self.verbs
            } else {
                MmapVerbs::Alone
            },
            ..self
        }
    }
}

impl From<VmaLockKind> for SpaceLocks {
    fn from(vma: VmaLockKind) -> Self {
        Self {
            vma,
            ..Self::default()
        }
    }
}

impl fmt::Display for SpaceLocks {
    /// As policies have them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (vma, mmap) = (name(VMA_LOCK, self.vma), name(MMAP_QUEUE, self.mmap));
        write!(f, "lock={vma}+mmap={mmap}")?;
        if self.verbs == MmapVerbs::Shared {
            f.write_str("+verbs=shared")?;
        }
        match self.reuse {
            VmaReuse::Rcu => f.write_str("+reuse=rcu"),
            VmaReuse::TypeSafe => Ok(()),
        }
    }
}

/// Under which lock a fault comes back that had to wait for I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum RetryLock {
    /// The first wait drops the VMA lock; the retry takes `mmap_lock` and does
    /// not drop it again in any wait: Linux before document 002.
    MmapLock,
    /// The VMA lock again, and dropped again for each wait (document 002).
    #[default]
    VmaLock,
    /// The VMA lock is kept over the wait: the proposal of reviewers of
    /// document 002. Unmap and fork wait for the I/O.
    Held,
}

/// Whether a fault that comes back still holds the folio that it waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum RetryPin {
    /// Reclaim may take the folio before the retry has looked, as in Linux and
    /// in both documents; `retry_io_miss` counts how often it did.
    No,
    /// The waiting fault keeps a reference until it has looked.
    #[default]
    Yes,
}

/// The accesses that count as hits of read-ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum MissAccounting {
    /// Linux's `mmap_miss` before document 003: every page that a fault maps
    /// is a hit.
    Baseline,
    /// Only the faulting address counts (document 003, first patch).
    FaultingAddress,
    /// A fault that waited for I/O counts nothing (its second patch).
    IgnoreTried,
    /// Both patches.
    Both,
    /// Runs and strides are followed, and reads in vain are measured:
    /// ours.
    #[default]
    Adaptive,
}

/// The lock that keeps page tables of huge pages from being unshared under a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ShareSync {
    /// The file's `i_mmap` lock, held for reading by every fault on the file: Linux
    /// before document 001.
    IMmapRwsem,
    /// A lock of the mapping's own, and `i_mmap` for reading while a fault begins to
    /// share a page table (document 001).
    Document,
    /// A lock of the mapping's own, and nothing of the file's but the lock of the one
    /// page table. Ours.
    #[default]
    VmaLock,
}

/// The pages that a fault on a huge page maps of those that the file has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum HugeAround {
    /// The one that was touched: Linux.
    No,
    /// Its neighbours too, as Linux does for pages of ordinary files.
    #[default]
    Yes,
}

/// The locks of a fault on a huge page that finds its page in a page table of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum HugeJoin {
    /// The page's fault mutex, as every fault does: Linux.
    FaultMutex,
    /// Only the locks that sharing the page table needs.
    #[default]
    Leaf,
}

/// The fate of a page table of huge pages whose last mapping unmaps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum LeftLeaf {
    /// It is freed: Linux.
    Freed,
    /// It stays with the file, as it is.
    #[default]
    Kept,
}

/// Those of a pool of huge pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct HugePolicies {
    /// Of its files.
    pub sync: ShareSync,
    /// Of its faults.
    pub around: HugeAround,
    /// Of its faults.
    pub join: HugeJoin,
    /// Of its tables.
    pub left: LeftLeaf,
}

impl From<ShareSync> for HugePolicies {
    fn from(sync: ShareSync) -> Self {
        Self {
            sync,
            ..Self::default()
        }
    }
}

/// The pages that the first write to a page of anonymous memory fills.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum FirstTouch {
    /// That page: Linux without transparent huge pages.
    Page,
    /// Those behind it too, where first touches run on.
    #[default]
    Run,
}

/// How a window of a file that is only read gets pages that were read ahead in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum MapBy {
    /// Copies of them.
    #[default]
    Copy,
    /// The memory itself, a page table's span at a time, where the page tables can.
    Move,
}

impl MissAccounting {
    /// How many quarters of the budget frames may take, so that prefetched
    /// pages stay. Linux has it in its page cache until memory is full, and
    /// the baselines come by their hits that way.
    pub const fn frame_quarters(self) -> usize {
        match self {
            Self::Adaptive => 1,
            _ => 3,
        }
    }

    /// In which order folios are evicted.
    pub const fn eviction_order(self) -> Order {
        match self {
            Self::Adaptive => Order::StaleFirst,
            _ => Order::Arrival,
        }
    }

    /// Whether a page that was read ahead and evicted untouched is remembered
    /// too, and counts in the refault distance: Linux leaves a shadow entry of
    /// every page that it evicts.
    pub const fn remembers_unused(self) -> bool {
        !matches!(self, Self::Adaptive)
    }
}

/// All policies of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Policies {
    /// Of the address space.
    pub locks: SpaceLocks,
    /// Of the faults on this engine's maps.
    pub retry_lock: RetryLock,
    /// Of the faults on this engine's maps.
    pub retry_pin: RetryPin,
    /// Of this engine's read-ahead.
    pub miss_accounting: MissAccounting,
    /// Of its pools of huge pages.
    pub huge: HugePolicies,
    /// Of its anonymous memory.
    pub first_touch: FirstTouch,
    /// Of its files.
    pub map_by: MapBy,
}

impl Policies {
    /// The name of each, and of its value.
    fn values(&self) -> [(&'static str, &'static str); 13] {
        [
            ("lock", name(VMA_LOCK, self.locks.vma)),
            ("reuse", name(VMA_REUSE, self.locks.reuse)),
            ("mmap", name(MMAP_QUEUE, self.locks.mmap)),
            ("verbs", name(MMAP_VERBS, self.locks.verbs)),
            ("retry", name(RETRY_LOCK, self.retry_lock)),
            ("pin", name(RETRY_PIN, self.retry_pin)),
            ("miss", name(MISS_ACCOUNTING, self.miss_accounting)),
            ("share", name(SHARE_SYNC, self.huge.sync)),
            ("around", name(HUGE_AROUND, self.huge.around)),
            ("join", name(HUGE_JOIN, self.huge.join)),
            ("left", name(LEFT_LEAF, self.huge.left)),
            ("fill", name(FIRST_TOUCH, self.first_touch)),
            ("map", name(MAP_BY, self.map_by)),
        ]
    }
}

/// The values of a policy and their names.
type Names<T> = &'static [(&'static str, T)];

const VMA_LOCK: Names<VmaLockKind> = &[
    ("rwsem", VmaLockKind::Rwsem),
    ("refcount", VmaLockKind::Refcount),
    ("biased", VmaLockKind::Biased),
];
const VMA_REUSE: Names<VmaReuse> = &[("rcu", VmaReuse::Rcu), ("typesafe", VmaReuse::TypeSafe)];
const MMAP_QUEUE: Names<MmapQueue> = &[
    ("phase-fair", MmapQueue::PhaseFair),
    ("steal", MmapQueue::Steal),
    ("linux", MmapQueue::Linux),
];
const MMAP_VERBS: Names<MmapVerbs> = &[("alone", MmapVerbs::Alone), ("shared", MmapVerbs::Shared)];
const RETRY_LOCK: Names<RetryLock> = &[
    ("mmap-lock", RetryLock::MmapLock),
    ("vma-lock", RetryLock::VmaLock),
    ("held", RetryLock::Held),
];
const RETRY_PIN: Names<RetryPin> = &[("no", RetryPin::No), ("yes", RetryPin::Yes)];
const MISS_ACCOUNTING: Names<MissAccounting> = &[
    ("baseline", MissAccounting::Baseline),
    ("p1", MissAccounting::FaultingAddress),
    ("p2", MissAccounting::IgnoreTried),
    ("both", MissAccounting::Both),
    ("adaptive", MissAccounting::Adaptive),
];
const SHARE_SYNC: Names<ShareSync> = &[
    ("i-mmap-rwsem", ShareSync::IMmapRwsem),
    ("document", ShareSync::Document),
    ("vma-lock", ShareSync::VmaLock),
];
const HUGE_AROUND: Names<HugeAround> = &[("no", HugeAround::No), ("yes", HugeAround::Yes)];
const HUGE_JOIN: Names<HugeJoin> = &[
    ("fault-mutex", HugeJoin::FaultMutex),
    ("leaf", HugeJoin::Leaf),
];
const LEFT_LEAF: Names<LeftLeaf> = &[("freed", LeftLeaf::Freed), ("kept", LeftLeaf::Kept)];

const FIRST_TOUCH: Names<FirstTouch> = &[("page", FirstTouch::Page), ("run", FirstTouch::Run)];
const MAP_BY: Names<MapBy> = &[("copy", MapBy::Copy), ("move", MapBy::Move)];

/// The names of all of them.
const KNOWN: &str =
    "lock, reuse, mmap, verbs, retry, pin, miss, share, around, join, left, fill and map";

/// The value that is called `name`, or an error with the valid names.
fn value<T: Copy>(policy: &str, names: Names<T>, name: &str) -> Result<T, UnknownPolicy> {
    let found = names.iter().find(|(known, _)| *known == name);
    found.map(|&(_, value)| value).ok_or_else(|| {
        let known: Vec<_> = names.iter().map(|(name, _)| *name).collect();
        let known = known.join(", ");
        UnknownPolicy(format!("`{policy}` is one of {known}, not `{name}`"))
    })
}

fn name<T: Copy + PartialEq>(names: Names<T>, value: T) -> &'static str {
    let found = names.iter().find(|(_, known)| *known == value);
    found.expect("every value has a name").0
}

/// Text that names no policy, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownPolicy(String);

impl fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UnknownPolicy {}

impl FromStr for Policies {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, UnknownPolicy> {
        let mut policies = Self::default();
        for part in text.split('+').filter(|_| !text.is_empty()) {
            let (policy, chosen) = part
                .split_once('=')
                .ok_or_else(|| UnknownPolicy(format!("a policy is NAME=VALUE, not `{part}`")))?;
            match policy {
                "lock" => policies.locks.vma = value(policy, VMA_LOCK, chosen)?,
                "reuse" => policies.locks.reuse = value(policy, VMA_REUSE, chosen)?,
                "mmap" => policies.locks.mmap = value(policy, MMAP_QUEUE, chosen)?,
                "verbs" => policies.locks.verbs = value(policy, MMAP_VERBS, chosen)?,
                "retry" => policies.retry_lock = value(policy, RETRY_LOCK, chosen)?,
                "pin" => policies.retry_pin = value(policy, RETRY_PIN, chosen)?,
                "miss" => policies.miss_accounting = value(policy, MISS_ACCOUNTING, chosen)?,
                "share" => policies.huge.sync = value(policy, SHARE_SYNC, chosen)?,
                "around" => policies.huge.around = value(policy, HUGE_AROUND, chosen)?,
                "join" => policies.huge.join = value(policy, HUGE_JOIN, chosen)?,
                "left" => policies.huge.left = value(policy, LEFT_LEAF, chosen)?,
                "fill" => policies.first_touch = value(policy, FIRST_TOUCH, chosen)?,
                "map" => policies.map_by = value(policy, MAP_BY, chosen)?,
                _ => {
                    let text = format!("policies are {KNOWN}, not `{policy}`");
                    return Err(UnknownPolicy(text));
                }
            }
        }
        Ok(policies)
    }
}

impl fmt::Display for Policies {
    /// Those that are not the default.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (values, defaults) = (self.values(), Self::default().values());
        let mut joined = "";
        let both = values.into_iter().zip(defaults);
        for ((policy, value), _) in both.filter(|(value, default)| value != default) {
            write!(f, "{joined}{policy}={value}")?;
            joined = "+";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_policies_are_the_same_thing() {
        for text in [
            "",
            "retry=mmap-lock+pin=no",
            "lock=rwsem+miss=p1",
            "lock=biased",
            "lock=rwsem+reuse=rcu",
            "mmap=linux+retry=mmap-lock",
            "mmap=phase-fair",
            "retry=held",
            "miss=both",
            "share=i-mmap-rwsem",
            "share=document+around=no+join=fault-mutex+left=freed",
            "lock=rwsem+fill=page",
            "map=move",
        ] {
            let policies: Policies = text.parse().unwrap();
            assert_eq!(policies.to_string(), text);
        }
        let default: Policies = "lock=refcount+mmap=steal+pin=yes".parse().unwrap();
        assert_eq!(default, Policies::default());
    }

    #[test]
    fn an_unknown_policy_is_an_error_of_one_line() {
        let error = |text: &str| text.parse::<Policies>().unwrap_err().to_string();
        assert_eq!(error("pin=maybe"), "`pin` is one of no, yes, not `maybe`");
        assert_eq!(error("pin"), "a policy is NAME=VALUE, not `pin`");
        assert_eq!(error("miss=p1+"), "a policy is NAME=VALUE, not ``");
        assert_eq!(
            error("sync=x"),
            "policies are lock, reuse, mmap, verbs, retry, pin, miss, share, around, join, left, fill and map, not `sync`"
        );
    }
}
