//! Some mutexes of which a thread wants any one.
//!
//! ```text
//!   holder   release the mutex ─► look for waiters ─► count the release ─► wake one
//!   waiter   be counted ─► look at the count of releases ─► try each mutex ─► sleep while the count is the same
//! ```
//!
//! A release wakes one waiter, which tries all mutexes: none sleeps while one is free that it may have, and no release
//! wakes all of them. As with a [`Mutex`], any thread that comes while one is free takes it.

use super::{Mutex, MutexGuard, order};
use core::ops::{Deref, DerefMut};
use sync::atomic::{AtomicU32, Ordering};
use sync::wait::WaitWord;

/// Values behind a mutex each.
#[derive(Debug)]
pub struct MutexPool<T, const RANK: u8> {
    /// Immutable, but for their values.
    mutexes: Box<[Mutex<T, RANK>]>,
    /// Threads that found none free.
    waiters: AtomicU32,
    /// Counts the releases that a thread may wait for.
    released: WaitWord,
}

impl<T, const RANK: u8> MutexPool<T, RANK> {
    /// A free mutex for each value.
    pub fn new(values: impl IntoIterator<Item = T>) -> Self {
        Self {
            mutexes: values.into_iter().map(Mutex::ranked).collect(),
            waiters: AtomicU32::new(0),
            released: WaitWord::new(0),
        }
    }

    /// The number of mutexes.
    pub fn count(&self) -> usize {
        self.mutexes.len()
    }

    /// Takes the first of these mutexes that is free.
    #[track_caller]
    pub fn try_lock(
        &self,
        which: impl IntoIterator<Item = usize>,
    ) -> Option<PoolGuard<'_, T, RANK>> {
        let taken = (which.into_iter()).find_map(|place| self.mutexes[place].try_lock());
        taken.map(|guard| self.pool_guard(guard))
    }

    /// Waits for one of them, this one.
    #[track_caller]
    pub fn lock(&self, place: usize) -> PoolGuard<'_, T, RANK> {
        self.pool_guard(self.mutexes[place].lock())
    }

    /// Waits until `take` has taken one, by [`try_lock`](Self::try_lock). It is asked again after each release.
    #[track_caller]
    pub fn lock_any<'a>(
        &'a self,
        mut take: impl FnMut() -> Option<PoolGuard<'a, T, RANK>>,
    ) -> PoolGuard<'a, T, RANK> {
        order::check(RANK);
        take().unwrap_or_else(|| self.lock_contended(take))
    }

    #[cold]
    #[track_caller]
    fn lock_contended<'a>(
        &'a self,
        mut take: impl FnMut() -> Option<PoolGuard<'a, T, RANK>>,
    ) -> PoolGuard<'a, T, RANK> {
        // AcqRel pairs with the fetch_add in `Release::drop`: either that thread sees a waiter, or its mutex is free to `take`.
        self.waiters.fetch_add(1, Ordering::AcqRel);
        let taken = loop {
            // Acquire pairs with the Release in `Release::drop`: mutexes whose release is counted are free to `take`, or were taken since.
            let seen = self.released.load(Ordering::Acquire);
            if let Some(taken) = take() {
                break taken;
            }
            self.released.wait(seen, None);
        };
        // Relaxed: a thread that still sees it wakes others for nothing.
        self.waiters.fetch_sub(1, Ordering::Relaxed);
        taken
    }

    fn pool_guard<'a>(&'a self, guard: MutexGuard<'a, T, RANK>) -> PoolGuard<'a, T, RANK> {
        let release = Release {
            waiters: &self.waiters,
            released: &self.released,
        };
        PoolGuard {
            guard,
            _release: release,
        }
    }
}

/// A held mutex of [`MutexPool`]; dropping it gives the mutex up.
#[derive(Debug)]
pub struct PoolGuard<'a, T, const RANK: u8> {
    /// Dropped before the other field: the mutex is free when a waiter is woken.
    guard: MutexGuard<'a, T, RANK>,
    _release: Release<'a>,
}

impl<T, const RANK: u8> Deref for PoolGuard<'_, T, RANK> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T, const RANK: u8> DerefMut for PoolGuard<'_, T, RANK> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

/// Tells a waiter, when it is dropped, that a mutex is free.
#[derive(Debug)]
struct Release<'a> {
    waiters: &'a AtomicU32,
    released: &'a WaitWord,
}

impl Drop for Release<'_> {
    #[inline]
    fn drop(&mut self) {
        // AcqRel: see `lock_contended`.
        if self.waiters.fetch_add(0, Ordering::AcqRel) > 0 {
            // Release pairs with the Acquire there.
            self.released.fetch_add(1, Ordering::Release);
            self.released.wake(1);
        }
    }
}
