//! A lock of two groups: any number of either may be inside, and none while one of the other is.
//!
//! `mmap_lock` has it with `verbs=shared`. A *verb* changes one leaf of the tree, beside other verbs. An *other* holds
//! `mmap_lock` for reading or for writing; the semaphore of `mmap_lock` decides the order of others. Others go before verbs: an
//! other waits for the verbs inside, and no verb enters meanwhile. A verb waits for others a limited time. Then it takes
//! `mmap_lock` for write, which is fair.
//!
//! There are several words, each for a few processors. A verb enters by that of its processor, so that verbs of all processors do
//! not write one line; an other enters by all of them.
//!
//! ```text
//!   verb, one word                               other, each word
//!   v1  others 0? verbs += 1     (RMW, Acquire)  o1  others += 1           (RMW, Acquire)
//!   v2  changes leaves                           o2  waits until verbs are 0    (Acquire)
//!   v3  verbs -= 1               (RMW, Release)  o3  mmap_lock, the space as a whole
//!                                                o4  others -= 1           (RMW, Release)
//! ```
//!
//! v1 and o1 change one word, so one comes first. If it is v1, o2 waits for v3, and its Acquire pairs with the Release of
//! v3. If it is o1, v1 finds an other until o4, whose Release pairs with the Acquire of v1. An other is inside when it has waited at
//! all words. A verb that is inside does not wait for others, so nobody waits in a circle.

use sync::PROCESSORS;
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

/// Processors that enter by one word.
const NEIGHBOURS: usize = 8;
/// Words. One where the world has few processors: a model looks at each change of each.
const WORDS: usize = if PROCESSORS < NEIGHBOURS {
    1
} else {
    PROCESSORS / NEIGHBOURS
};

/// The lock.
#[derive(Debug)]
pub struct GroupLock {
    words: Box<[Word]>,
}

#[derive(Debug)]
#[repr(align(64))]
struct Word(WaitWord);

/// A verb inside.
#[derive(Debug)]
#[must_use]
pub struct Verb<'a>(&'a Word);

/// One of the others inside.
#[derive(Debug)]
#[must_use]
pub struct Other<'a>(&'a [Word]);

impl Default for GroupLock {
    fn default() -> Self {
        Self::new()
    }
}

impl GroupLock {
    /// With nobody inside.
    pub fn new() -> Self {
        Self::with_words(WORDS)
    }

    /// The same, of so many words. For models.
    pub fn with_words(count: usize) -> Self {
        Self {
            words: (0..count).map(|_| Word(WaitWord::new(0))).collect(),
        }
    }

    /// The word of the caller's processor.
    fn own(&self) -> &Word {
        let neighbours = (PROCESSORS / self.words.len()).max(1);
        &self.words[sync::cpu() / neighbours % self.words.len()]
    }

    /// Enters as a verb. `None`, after a while, if there are always others, or as many verbs as can be counted.
    pub fn verb(&self) -> Option<Verb<'_>> {
        let word = self.own();
        for _ in 0..ATTEMPTS {
            if let Some(verb) = word.try_verb() {
                return Some(verb);
            }
            word.wait_for_others();
        }
        None
    }

    /// The same if there are no others now.
    pub fn try_verb(&self) -> Option<Verb<'_>> {
        self.own().try_verb()
    }

    /// Enters as another.
    ///
    /// # Panics
    /// Where 65,535 threads hold or want `mmap_lock` of one space.
    pub fn other(&self) -> Other<'_> {
        // All first: no verb enters while the first ones are waited for.
        for word in &self.words {
            word.add_other();
        }
        for word in &self.words {
            word.wait_for_verbs();
        }
        Other(&self.words)
    }

    /// The same if no verb is inside.
    pub fn try_other(&self) -> Option<Other<'_>> {
        let refused = self.words.iter().position(|word| !word.try_add_other());
        let entered = Other(&self.words[..refused.unwrap_or(self.words.len())]);
        refused.is_none().then_some(entered)
    }
}

impl Word {
    fn try_verb(&self) -> Option<Verb<'_>> {
        let mut now = self.0.load(Relaxed);
        while now & OTHERS == 0 && now & VERBS != VERBS {
            // v1. Acquire pairs with the Release of o4.
            match (self.0).compare_exchange_weak(now, now + VERB, Acquire, Relaxed) {
                Ok(_) => return Some(Verb(self)),
                Err(changed) => now = changed,
            }
        }
        None
    }

    /// Waits until there are no others, for a while.
    fn wait_for_others(&self) {
        // Relaxed: a guess; `try_verb` decides.
        if hint::spin_until(|| self.0.load(Relaxed) & OTHERS == 0) {
            return;
        }
        // Relaxed: the one who sees the bit changes the word, and a change ends the wait.
        let seen = self.0.fetch_or(SLEEPS, Relaxed) | SLEEPS;
        if seen & OTHERS != 0 {
            self.0.wait(seen, Some(SLEEP_NS));
        }
    }

    fn add_other(&self) {
        // o1. Acquire pairs with the Release of v3, where no verb is inside any more.
        let old = self.0.fetch_add(OTHER, Acquire);
        assert!(old & OTHERS != OTHERS, "too many threads at mmap_lock");
    }

    fn try_add_other(&self) -> bool {
        let mut now = self.0.load(Relaxed);
        while now & VERBS == 0 {
            // o1, as above.
            match (self.0).compare_exchange_weak(now, now + OTHER, Acquire, Relaxed) {
                Ok(_) => return true,
                Err(changed) => now = changed,
            }
        }
        false
    }

    fn wait_for_verbs(&self) {
        // o2. Acquire pairs with the Release of v3, of each verb: changes of the word in between are
        // read-modify-writes.
        let are_gone = |now: u32| now & VERBS == 0;
        if are_gone(self.0.load(Acquire)) || hint::spin_until(|| are_gone(self.0.load(Acquire))) {
            return;
        }
        loop {
            let now = self.0.load(Acquire);
            if are_gone(now) {
                return;
            }
            self.0.wait(now, None);
        }
    }

    fn remove_other(&self) {
        // o4. Release pairs with the Acquire of v1.
        let old = self.0.fetch_sub(OTHER, Release);
        if old & OTHERS == OTHER && old & SLEEPS != 0 {
            // Relaxed: nothing is published by it.
            self.0.fetch_and(!SLEEPS, Relaxed);
            self.0.wake(u32::MAX);
        }
    }
}

impl Drop for Verb<'_> {
    fn drop(&mut self) {
        // v3. Release pairs with the Acquire of o1 and o2.
        let old = self.0.0.fetch_sub(VERB, Release);
        if old & VERBS == VERB && old & OTHERS != 0 {
            self.0.0.wake(u32::MAX);
        }
    }
}

impl Drop for Other<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(Word::remove_other);
    }
}
