//! A lock of two groups: any number of either may be inside, and none while one of the other is.
//!
//! `mmap_lock` has it with `verbs=shared`. A *verb* changes one leaf of the tree, beside other verbs. An *other* holds
//! `mmap_lock` for reading or for writing; the semaphore of `mmap_lock` decides the order of others. Others go before verbs: an
//! other waits for the verbs inside, and no verb enters meanwhile. A verb waits for others a limited time. Then it takes
//! `mmap_lock` for write, which is fair.
//!
//! ```text
//!   verb                                         other
//!   v1  others 0? verbs += 1     (RMW, Acquire)  o1  others += 1           (RMW, Acquire)
//!   v2  changes leaves                           o2  waits until verbs are 0    (Acquire)
//!   v3  verbs -= 1               (RMW, Release)  o3  mmap_lock, the space as a whole
//!                                                o4  others -= 1           (RMW, Release)
//! ```
//!
//! v1 and o1 change one word, so one comes first. If it is v1, o2 waits for v3, and its Acquire pairs with the Release of
//! v3. If it is o1, v1 finds an other until o4, whose Release pairs with the Acquire of v1.

use sync::atomic::Ordering::{Acquire, Relaxed, Release};
use sync::hint;
use sync::wait::WaitWord;

/// One of the verbs inside.
const VERB: u32 = 1;
/// The bits that count them.
const VERBS: u32 = OTHER - 1;
/// One of the others, inside or waiting.
const OTHER: u32 = 1 << 15;
/// The bits that count them.
const OTHERS: u32 = SLEEPS - OTHER;
/// A verb sleeps until there are no others.
const SLEEPS: u32 = 1 << 31;
/// How often a verb waits for others to go before it goes their way. With few attempts, verbs that have gone their way
/// keep others from being none, so that all verbs go it.
const ATTEMPTS: usize = 64;
/// How long it sleeps at most.
const SLEEP_NS: u64 = 1_000_000;

/// The lock.
#[derive(Debug)]
#[repr(align(64))]
pub struct GroupLock {
    word: WaitWord,
}

/// A verb inside.
#[derive(Debug)]
#[must_use]
pub struct Verb<'a>(&'a GroupLock);

/// One of the others inside.
#[derive(Debug)]
#[must_use]
pub struct Other<'a>(&'a GroupLock);

impl Default for GroupLock {
    fn default() -> Self {
        Self::new()
    }
}

impl GroupLock {
    /// With nobody inside.
    pub fn new() -> Self {
        Self {
            word: WaitWord::new(0),
        }
    }

    /// Enters as a verb. `None`, after a while, if there are always others, or as many verbs as can be counted.
    pub fn verb(&self) -> Option<Verb<'_>> {
        for _ in 0..ATTEMPTS {
            if let Some(verb) = self.try_verb() {
                return Some(verb);
            }
            // Relaxed: a guess; `try_verb` decides.
            if hint::spin_until(|| self.word.load(Relaxed) & OTHERS == 0) {
                continue;
            }
            // Relaxed: the one who sees the bit changes the word, and a change ends the wait.
            let seen = self.word.fetch_or(SLEEPS, Relaxed) | SLEEPS;
            if seen & OTHERS != 0 {
                self.word.wait(seen, Some(SLEEP_NS));
            }
        }
        None
    }

    /// The same if there are no others now.
    pub fn try_verb(&self) -> Option<Verb<'_>> {
        let mut now = self.word.load(Relaxed);
        while now & OTHERS == 0 && now & VERBS != VERBS {
            // v1. Acquire pairs with the Release of o4.
            match (self.word).compare_exchange_weak(now, now + VERB, Acquire, Relaxed) {
                Ok(_) => return Some(Verb(self)),
                Err(changed) => now = changed,
            }
        }
        None
    }

    /// Enters as another.
    ///
    /// # Panics
    /// Where 65,535 threads hold or want `mmap_lock` of one space.
    pub fn other(&self) -> Other<'_> {
        // o1. Acquire pairs with the Release of v3, where no verb is inside any more.
        let old = self.word.fetch_add(OTHER, Acquire);
        assert!(old & OTHERS != OTHERS, "too many threads at mmap_lock");
        if old & VERBS != 0 {
            self.wait_for_verbs();
        }
        Other(self)
    }

    /// The same if no verb is inside.
    pub fn try_other(&self) -> Option<Other<'_>> {
        let mut now = self.word.load(Relaxed);
        while now & VERBS == 0 {
            // o1, as above.
            match (self.word).compare_exchange_weak(now, now + OTHER, Acquire, Relaxed) {
                Ok(_) => return Some(Other(self)),
                Err(changed) => now = changed,
            }
        }
        None
    }

    #[cold]
    fn wait_for_verbs(&self) {
        // o2. Acquire pairs with the Release of v3, of each verb: changes of the word in between are
        // read-modify-writes.
        let are_gone = |now: u32| now & VERBS == 0;
        if hint::spin_until(|| are_gone(self.word.load(Acquire))) {
            return;
        }
        loop {
            let now = self.word.load(Acquire);
            if are_gone(now) {
                return;
            }
            self.word.wait(now, None);
        }
    }
}

impl Drop for Verb<'_> {
    fn drop(&mut self) {
        // v3. Release pairs with the Acquire of o1 and o2.
        let old = self.0.word.fetch_sub(VERB, Release);
        if old & VERBS == VERB && old & OTHERS != 0 {
            self.0.word.wake(u32::MAX);
        }
    }
}

impl Drop for Other<'_> {
    fn drop(&mut self) {
        // o4. Release pairs with the Acquire of v1.
        let old = self.0.word.fetch_sub(OTHER, Release);
        if old & OTHERS == OTHER && old & SLEEPS != 0 {
            // Relaxed: nothing is published by it.
            self.0.word.fetch_and(!SLEEPS, Relaxed);
            self.0.word.wake(u32::MAX);
        }
    }
}
