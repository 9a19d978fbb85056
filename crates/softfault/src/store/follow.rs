//! A budget that nobody asked for follows the limits of the memory cgroups.
//!
//! An engine that is not told its budget takes a part of the cgroup's limit. When such a limit is lowered later,
//! a budget as large as before could end the process: an engine's memory is anonymous memory, which the
//! kernel cannot take back. So once a second, and after every 16 MiB that were read, ten times a second at most, the limits are looked at
//! again, by the thread that watches memory; and the budget goes down, and up again to its first value. A
//! limit that goes below the process's use at that moment leaves no time for that.
//!
//! Private memory without swap, and pins, may stay where they are. Then the budget goes as low as they let it, and it is not tried again
//! soon: each time all pages of files are evicted.

use super::reads::ReadPolicy;
use super::room::now_ms;
use crate::machine;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use softfault_engine::PAGE_SIZE;
use softfault_engine::cache::node::MIN_BYTES;
use softfault_engine::cache::{Node, NodeError};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes read, and time, between two looks.
const STEP: u64 = 16 << 20;
const PAUSE_MS: u64 = 100;
/// Before a budget is tried again that could not be.
const AGAIN_MS: u64 = 60_000;

#[derive(Debug)]
pub(super) struct LimitFollower {
    /// `None` if the program said a budget. Held while the budget changes.
    now: Mutex<Option<Following>>,
    /// Immutable. False: the program said one from the beginning.
    ever: bool,
    /// Bytes read since the last look. Relaxed, as the next: any value is some moment's.
    since: AtomicU64,
    looked_ms: AtomicU64,
}

#[derive(Debug)]
struct Following {
    /// Pages of the first budget.
    first: u64,
    /// The last budget that was due and could not be, in bytes, and when that was.
    refused: Option<(usize, u64)>,
}

impl Following {
    fn from(first: u64) -> Self {
        Self {
            first,
            refused: None,
        }
    }
}

impl LimitFollower {
    pub(super) fn new(first: Option<u64>) -> Self {
        Self {
            ever: first.is_some(),
            now: Mutex::new(first.map(Following::from)),
            since: AtomicU64::new(0),
            looked_ms: AtomicU64::new(0),
        }
    }

    /// So many bytes were read. True if it is time to look.
    pub(super) fn read(&self, bytes: u64) -> bool {
        if !self.ever || self.since.fetch_add(bytes, Relaxed) + bytes < STEP {
            return false;
        }
        self.since.store(0, Relaxed);
        let (now, before) = (now_ms(), self.looked_ms.load(Relaxed));
        let is_time = now.saturating_sub(before) >= PAUSE_MS;
        if is_time {
            self.looked_ms.store(now, Relaxed);
        }
        is_time
    }

    fn now(&self) -> MutexGuard<'_, Option<Following>> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReadPolicy {
    /// True if the budget follows the limits.
    pub(crate) fn follows(&self) -> bool {
        self.room().is_some() && self.follower.ever && self.follower.now().is_some()
    }

    /// Sets the budget as the program says: it follows nobody from then on.
    pub(crate) fn set_by_program(
        &self,
        set: impl FnOnce() -> Result<(), NodeError>,
    ) -> Result<(), NodeError> {
        let mut now = self.follower.now();
        set()?;
        *now = None;
        Ok(())
    }

    /// It follows from now on, and is that at first.
    #[cfg(test)]
    fn begin_to_follow(&self, bytes: usize) {
        *self.follower.now() = Some(Following::from((bytes / PAGE_SIZE) as u64));
    }

    /// Sets the budget as the limits are now, or as near to that as it can be. `first` is called before that, with the bytes.
    pub(crate) fn follow(&self, node: &Node, first: impl FnOnce(usize)) {
        let mut now = self.follower.now();
        let (Some(following), Some(room)) = (&mut *now, self.room()) else {
            return;
        };
        let Ok(limit) = room.limit() else {
            return;
        };
        // A limit that was taken away limits nothing.
        let limit = limit.unwrap_or(u64::MAX);
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let due = machine::default_budget(limit.min(machine::memory_bytes()));
        let due = due.max(MIN_BYTES).min(following.first as usize * PAGE_SIZE);
        let is_set = || due / PAGE_SIZE == node.budget.limit() as usize;
        let was_refused = |(refused, when)| refused == due && now_ms() < when + AGAIN_MS;
        if is_set() || following.refused.is_some_and(was_refused) {
            return;
        }
        first(due);
        let _ = node.approach_memory(due);
        following.refused = (!is_set()).then(|| (due, now_ms()));
    }
}

#[cfg(test)]
mod tests {
    use crate::table::scratch::Scratch;
    use crate::{Engine, Reads, signal};
    use softfault_engine::PAGE_SIZE;

    /// Failed before: each look evicted all pages of files, for a second at least, and the budget stayed as high as it was.
    #[test]
    fn a_budget_goes_as_low_as_memory_that_stays() {
        let engine = Engine::builder().memory(64 << 20).reads(Reads::Auto);
        let engine = engine.allow_kernel_maps(false).build().unwrap();
        let managed = engine.inner.managed().unwrap();
        if managed.reads.room().is_none() {
            return softfault_skip::skipped("kernel", "there is no table of descriptors");
        }
        managed.reads.begin_to_follow(64 << 20);
        let mut private = engine.map_anon(40 << 20).unwrap();
        private.fill(1);
        let scratch = Scratch::new(&vec![2; 16 << 20]);
        // SAFETY: nobody writes to it.
        let map = unsafe { engine.map(&scratch.to_read()) }.unwrap();
        drop(scratch);
        let read = || {
            (0..map.len())
                .step_by(PAGE_SIZE)
                .for_each(|at| assert_eq!(map[at], 2))
        };
        let follow = |limit| {
            let _masked = signal::masked();
            managed.reads.room().unwrap().set_limit(limit);
            managed.reads.follow(&managed.node, |_| ());
            engine.stats().budget_bytes
        };
        read();
        assert_eq!(follow(256 << 20), 64 << 20);
        let lower = follow(64 << 20);
        assert!((40 << 20..56 << 20).contains(&lower), "{lower}");
        read();
        let evicted = engine.stats().evicted;
        (0..3).for_each(|_| assert_eq!(follow(64 << 20), lower));
        assert_eq!(engine.stats().evicted, evicted);
        assert!(private.iter().all(|&byte| byte == 1));
        // Another limit is tried at once.
        drop(private);
        assert_eq!(follow(128 << 20), 32 << 20);
        assert_eq!(follow(256 << 20), 64 << 20);
        read();
    }
}
