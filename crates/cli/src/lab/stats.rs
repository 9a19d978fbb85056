//! An engine's own counters as the lab carries them: one flat array of words in memory shared between
//! child and parent, so that what a killed child had counted is not lost.

use super::swap_counts::SwapCounts;
use crate::results::row::{self, Lock};
use std::collections::BTreeMap;

/// Locks whose waits are told, in `EngineStats::locks`' order.
pub const LOCKS: usize = 3;
/// Ranges of document 002's wait histogram: below 1 µs, 10 µs, ... 1 s, and the rest.
pub const RANGES: usize = row::RANGES.len();
const LOCK_WORDS: usize = 3 + RANGES;
/// Words that `EngineStats` takes.
pub const WORDS: usize = HEAD + SwapCounts::WORDS + LOCKS * LOCK_WORDS;
const HEAD: usize = 5;

/// Waits for one lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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

/// What an engine has counted since it was built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
        let mut words = [0; WORDS];
        let (head, rest) = words.split_at_mut(HEAD);
        let (swap, locks) = rest.split_at_mut(SwapCounts::WORDS);
        swap.copy_from_slice(&self.swap.to_words());
        head.copy_from_slice(&[
            self.major_faults,
            self.retry_mmap_drop,
            self.retry_io_miss,
            self.readahead_pages,
            self.readahead_used,
        ]);
        for (words, lock) in locks.chunks_exact_mut(LOCK_WORDS).zip(&self.locks) {
            words[..3].copy_from_slice(&[lock.count, lock.total_ns, lock.max_ns]);
            words[3..].copy_from_slice(&lock.ranges);
        }
        words
    }

    /// What was counted from `before` to `self`; the longest waits are those since the engine was built.
    pub fn since(mut self, before: &Self) -> Self {
        let maxima = self.locks.map(|lock| lock.max_ns);
        let mut words = self.to_words();
        for (word, before) in words.iter_mut().zip(before.to_words()) {
            *word = word.saturating_sub(before);
        }
        self = Self::from_words(&words);
        for (lock, max_ns) in self.locks.iter_mut().zip(maxima) {
            lock.max_ns = max_ns;
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

    /// The counters that `words` hold.
    pub fn from_words(words: &[u64; WORDS]) -> Self {
        let swap = &words[HEAD..][..SwapCounts::WORDS];
        let mut stats = Self {
            major_faults: words[0],
            retry_mmap_drop: words[1],
            retry_io_miss: words[2],
            readahead_pages: words[3],
            readahead_used: words[4],
            swap: SwapCounts::from_words(swap.try_into().expect("as many words")),
            ..Self::default()
        };
        let locks = words[WORDS - LOCKS * LOCK_WORDS..].chunks_exact(LOCK_WORDS);
        for (lock, words) in stats.locks.iter_mut().zip(locks) {
            lock.count = words[0];
            lock.total_ns = words[1];
            lock.max_ns = words[2];
            lock.ranges.copy_from_slice(&words[3..]);
        }
        stats
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_carry_every_counter() {
        let words: [u64; WORDS] = std::array::from_fn(|i| i as u64 + 1);
        let stats = EngineStats::from_words(&words);
        assert_eq!(stats.to_words(), words);
        assert_eq!(stats.locks[2].ranges[7], WORDS as u64);
    }

    #[test]
    fn differences_keep_the_longest_wait() {
        let later = EngineStats::from_words(&[9; WORDS]);
        let mut rest = later.since(&EngineStats::from_words(&[4; WORDS]));
        assert!(rest.locks.iter().all(|lock| lock.max_ns == 9));
        for lock in &mut rest.locks {
            lock.max_ns = 5;
        }
        assert_eq!(rest.to_words(), [5; WORDS]);
    }
}
