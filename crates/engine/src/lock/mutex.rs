//! A mutex of one waitable word.

use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};

use super::order::{self, UNRANKED};
use sync::atomic::Ordering::{Acquire, Relaxed, Release};
use sync::cell::{MutPtr, UnsafeCell};
use sync::hint;
use sync::wait::WaitWord;
use sync::zeros::Zero;

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and somebody may sleep on the word.
const CONTENDED: u32 = 2;

/// Mutual exclusion. Any thread that comes while it is free takes it: waiters have no
/// claim, so keep sections short. Debug builds check that the order of locks is that of their `RANK`s ([`order`]).
#[derive(Debug)]
pub struct Mutex<T, const RANK: u8 = UNRANKED> {
    /// [`FREE`], [`HELD`] or [`CONTENDED`].
    word: WaitWord,
    /// Protected by `word`.
    value: UnsafeCell<T>,
}

// SAFETY: the value is handed to one thread at a time, so it only has to be Send.
unsafe impl<T: Send, const RANK: u8> Send for Mutex<T, RANK> {}
// SAFETY: as above; sharing the mutex gives out exclusive access only.
unsafe impl<T: Send, const RANK: u8> Sync for Mutex<T, RANK> {}

// SAFETY: a word of zeros is `FREE`, and the protected value of zeros is valid by its own `Zero`.
unsafe impl<T: Zero, const RANK: u8> Zero for Mutex<T, RANK> {
    fn zero() -> Self {
        Self::ranked(T::zero())
    }
}

const _: () = assert!(FREE == 0);

impl<T> Mutex<T> {
    sync::const_fn! {
        /// A free mutex that protects `value`, and whose order is not checked.
        pub fn new(value: T) -> Self {
            Self::ranked(value)
        }
    }
}

impl<T, const RANK: u8> Mutex<T, RANK> {
    sync::const_fn! {
        /// A free mutex that protects `value`.
        pub fn ranked(value: T) -> Self {
            Self {
                word: WaitWord::new(FREE),
                value: UnsafeCell::new(value),
            }
        }
    }

    /// Waits until the mutex is free and takes it.
    #[inline]
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T, RANK> {
        order::check(RANK);
        // Acquire pairs with the Release in the last holder's `drop`.
        if self
            .word
            .compare_exchange(FREE, HELD, Acquire, Relaxed)
            .is_err()
        {
            self.lock_contended();
        }
        self.guard()
    }

    /// Takes the mutex if it is free.
    #[inline]
    #[track_caller]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T, RANK>> {
        // Acquire pairs with the Release in the last holder's `drop`.
        self.word
            .compare_exchange(FREE, HELD, Acquire, Relaxed)
            .ok()
            .map(|_| self.guard())
    }

    #[cold]
    #[track_caller]
    fn lock_contended(&self) {
        // Acquire as in `lock`.
        let taken = hint::spin_until(|| {
            self.word.load(Relaxed) == FREE
                && self
                    .word
                    .compare_exchange(FREE, HELD, Acquire, Relaxed)
                    .is_ok()
        });
        if taken {
            return;
        }
        // A thread that slept takes it as contended: it cannot know whether others
        // still sleep. Acquire as in `lock`.
        while self.word.swap(CONTENDED, Acquire) != FREE {
            self.word.wait(CONTENDED, None);
        }
    }

    fn guard(&self) -> MutexGuard<'_, T, RANK> {
        order::taken(RANK);
        MutexGuard {
            mutex: self,
            value: Some(self.value.get_mut()),
            not_send: PhantomData,
        }
    }
}

/// A held [`Mutex`]; dropping it gives the mutex up.
#[derive(Debug)]
pub struct MutexGuard<'a, T, const RANK: u8 = UNRANKED> {
    mutex: &'a Mutex<T, RANK>,
    /// None only while dropping.
    value: Option<MutPtr<T>>,
    not_send: PhantomData<*const ()>,
}

// SAFETY: a shared guard gives out `&T` only.
unsafe impl<T: Sync, const RANK: u8> Sync for MutexGuard<'_, T, RANK> {}

impl<T, const RANK: u8> Deref for MutexGuard<'_, T, RANK> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        let value = self.value.as_ref().expect("held until dropped");
        // SAFETY: the mutex is held, and `&self` allows shared references only.
        unsafe { value.deref() }
    }
}

impl<T, const RANK: u8> DerefMut for MutexGuard<'_, T, RANK> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        let value = self.value.as_ref().expect("held until dropped");
        // SAFETY: the mutex is held, and `&mut self` is exclusive.
        unsafe { value.deref() }
    }
}

impl<T, const RANK: u8> Drop for MutexGuard<'_, T, RANK> {
    #[inline]
    fn drop(&mut self) {
        order::let_go(RANK);
        // Ends the access before somebody else may begin one.
        self.value = None;
        // Release pairs with the Acquire of the next holder.
        if self.mutex.word.swap(FREE, Release) == CONTENDED {
            self.mutex.word.wake(1);
        }
    }
}
