//! An engine's own counters as the lab carries them: one flat array of words in memory shared between
//! child and parent, so that the counts of a killed child are not lost.

use crate::results::row::{self, Lock, Swap};
use std::collections::BTreeMap;

/// Locks whose waits are told, in `EngineStats::locks`' order.
pub const LOCKS: usize = 3;
/// Ranges of document 002's wait histogram: below 1 µs, 10 µs, ... 1 s, and the rest.
pub const RANGES: usize = row::RANGES.len();
/// Words that `EngineStats` takes.
pub const WORDS: usize = size_of::<EngineStats>() / size_of::<u64>();

/// Waits for one lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct LockWaits {
    /// Times it was taken.
    pub count: u64,
    /// Nanoseconds waited in all.
    pub total_ns: u64,
    /// The longest wait.
    pub max_ns: u64,
    /// Waits in each range.
    pub ranges: [u64; RANGES],
}

/// Pages that went to swap and came back since the engine was built, and their results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct SwapCounts {
    /// Pages written.
    pub pages_out: u64,
    /// Pages mapped from swap, by a touch or around one.
    pub pages_in: u64,
    /// Pages dropped without a write.
    pub clean_drops: u64,
    /// Pages that stayed, since somebody waited for them.
    pub rescued: u64,
    /// Writes that failed.
    pub write_errors: u64,
    /// Times no slot was free.
    pub full: u64,
    /// Swap-ins that let their lock go to wait for I/O.
    pub retry_mmap_drop: u64,
    /// Of those, the ones that came back and found the folio gone.
    pub retry_io_miss: u64,
}

/// The counts of an engine since it was built; all of it is words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct EngineStats {
    /// Faults that had to read.
    pub major_faults: u64,
    /// Faults that let their lock go to wait for I/O.
    pub retry_mmap_drop: u64,
    /// Of those, the ones that came back and found the folio gone.
    pub retry_io_miss: u64,
    /// Pages read ahead of need.
    pub readahead_pages: u64,
    /// Of those, the ones that were touched.
    pub readahead_used: u64,
    /// Swap, if it has any.
    pub swap: SwapCounts,
    /// mmap_lock for read, mmap_lock for write, VMA locks.
    pub locks: [LockWaits; LOCKS],
}

impl EngineStats {
    /// The counters as words.
    pub fn to_words(self) -> [u64; WORDS] {
        // SAFETY: it is made of nothing but words, one after the other.
        unsafe { std::mem::transmute(self) }
    }

    /// The counters that `words` hold.
    pub fn from_words(words: [u64; WORDS]) -> Self {
        // SAFETY: as above, and any words are counters.
        unsafe { std::mem::transmute(words) }
    }

    /// The counts from `before` to `self`; the longest waits are those since the engine was built, which nobody can tell from
    /// later ones, as far as there were such long waits: none is longer than all since `before` together.
    pub fn since(mut self, before: &Self) -> Self {
        let maxima = self.locks.map(|lock| lock.max_ns);
        let mut words = self.to_words();
        for (word, before) in words.iter_mut().zip(before.to_words()) {
            *word = word.saturating_sub(before);
        }
        self = Self::from_words(words);
        for (lock, max_ns) in self.locks.iter_mut().zip(maxima) {
            lock.max_ns = max_ns.min(lock.total_ns);
        }
        self
    }

    /// The locks as a row has them.
    pub fn locks_by_name(&self) -> BTreeMap<String, Lock> {
        let names = ["mmap_lock_read", "mmap_lock_write", "vma_lock"];
        let told = |lock: &LockWaits| Lock::of(lock.count, lock.total_ns, lock.max_ns, lock.ranges);
        let named = names.into_iter().zip(&self.locks);
        named
            .map(|(name, lock)| (name.to_owned(), told(lock)))
            .collect()
    }
}

impl SwapCounts {
    /// As a row has them.
    pub fn told(&self) -> Swap {
        Swap {
            pages_out: self.pages_out,
            pages_in: self.pages_in,
            clean_drops: self.clean_drops,
            rescued: self.rescued,
            full: self.full,
            write_errors: Some(self.write_errors),
            retry_mmap_drop: Some(self.retry_mmap_drop),
            retry_io_miss: Some(self.retry_io_miss),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_carry_every_counter() {
        let words: [u64; WORDS] = std::array::from_fn(|i| i as u64 + 1);
        let stats = EngineStats::from_words(words);
        assert_eq!(stats.to_words(), words);
        assert_eq!(stats.locks[2].ranges[7], WORDS as u64);
    }

    #[test]
    fn differences_keep_the_longest_wait_unless_it_is_longer_than_all() {
        let before = EngineStats::from_words([4; WORDS]);
        let mut later = EngineStats::from_words([9; WORDS]);
        assert_eq!(later.since(&before).to_words(), [5; WORDS]);
        for lock in &mut later.locks {
            lock.total_ns = 20;
        }
        let rest = later.since(&before);
        assert!(rest.locks.iter().all(|lock| lock.max_ns == 9));
    }
}
