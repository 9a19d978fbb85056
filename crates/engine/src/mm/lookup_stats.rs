//! Counts of lookups without a lock, kept by processor: every fault counts,
//! and must not make all processors share a line for it.

use sync::stat::Counter;

use super::tree::Walk;

/// Processors that share no counter.
const SHARDS: usize = 128;

/// The results of lookups.
pub(super) struct LookupStats {
    shards: Box<[Shard]>,
}

#[derive(Default)]
#[repr(align(64))]
struct Shard {
    hits: Counter,
    fallbacks: Counter,
    visits: Counter,
    restarts: Counter,
}

impl LookupStats {
    pub(super) fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
        }
    }

    /// Counts one call of `lock_vma`, that locked a VMA or did not.
    #[inline]
    pub(super) fn count(&self, walk: Walk, hit: bool) {
        let shard = &self.shards[sync::cpu() % SHARDS];
        let outcome = if hit { &shard.hits } else { &shard.fallbacks };
        outcome.add(1);
        shard.visits.add(walk.visits);
        if walk.restarts > 0 {
            shard.restarts.add(walk.restarts);
        }
    }

    pub(super) fn snapshot(&self) -> LookupSnapshot {
        let sum = |counter: fn(&Shard) -> &Counter| {
            let all = self.shards.iter().map(|shard| counter(shard).get());
            all.sum()
        };
        LookupSnapshot {
            hits: sum(|shard| &shard.hits),
            fallbacks: sum(|shard| &shard.fallbacks),
            visits: sum(|shard| &shard.visits),
            restarts: sum(|shard| &shard.restarts),
        }
    }
}

/// Counts of lookups without a lock, up to some moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LookupSnapshot {
    /// They locked a VMA.
    pub hits: u64,
    /// They did not: the caller needs `mmap_lock`. Also where nothing is
    /// mapped.
    pub fallbacks: u64,
    /// Tree nodes looked at, by both.
    pub visits: u64,
    /// Times they met a change of the tree and began again.
    pub restarts: u64,
}
