//! Cores, and the shootdown: the wait until no core can use pages or tables any more
//! that were taken out.
//!
//! A core is a thread's view of memory: a small translation buffer, and a word
//! that says whether the core is inside an access. It may use its
//! translations while the generation is the same. A thread that takes pages or tables out raises
//! the generation and waits until every core has been outside once:
//!
//! ```text
//!   access                                  shootdown
//!   a1  word = inside     (RMW, Acquire)    s0  clear the entries
//!   a2  read generation   (Acquire)         s1  generation += 1     (RMW, Release)
//!   a3  use buffer or tables, the page      s2  look at the word    (RMW, AcqRel)
//!   a4  word = outside    (RMW, Release)    s3  inside: wait for another word (Acquire)
//!                                           s4  reuse the frames
//! ```
//!
//! a1 and s2 change one word, so one comes first.
//! - a1 before s2: s2 finds the core inside, and s3 waits for its a4; the
//!   Acquire of s2 or s3 pairs with the Release of a4, so that a3 is before s4.
//! - s2 before a1: a1's Acquire pairs with s2's Release, so a2 reads the new
//!   generation (at least), nothing that was buffered before is used, and a3
//!   finds the entries cleared.
//!
//! a2 may read the new generation even though a1 came first. Its Acquire pairs
//! with the Release of s1, so that a3 finds the entries cleared then too, and
//! does not buffer an old one under the new number.
//!
//! That a4 is a read-modify-write, and no plain store, matters for the access
//! after it: where s2 came before a4, it is a4 that hands the Release of s2 on
//! to the next a1.
//!
//! Cores that come later are no exception: adding a core and s2 both change
//! `added`, and one of them comes first in the same way.
//!
//! **Inside an access** a core may only copy between frames and its own buffer.
//! It must not wait, and must not touch the caller's memory, which may
//! itself be missing and its fault end in a shootdown that waits for us.

use crate::lock::Mutex;
use sync::atomic::Ordering::{AcqRel, Acquire, Release};
use sync::atomic::{AtomicU32, AtomicU64};
use sync::hint;
use sync::wait::WaitWord;

/// Of a word: the core is inside an access.
const INSIDE: u32 = 1;
/// Of a word: a thread sleeps until the core is outside.
const AWAITED: u32 = 2;
/// The step of the count of accesses, which makes up the rest of the word.
const ONE: u32 = 4;

/// The cores of some page tables, for threads that take pages or tables out.
#[derive(Debug)]
pub struct Cores {
    line: Line,
    /// Cores that were ever added are below.
    added: AtomicU32,
    words: Box<[Word]>,
    /// Those of removed cores.
    free: Mutex<Vec<u32>>,
}

/// The fields that every access reads, on a line of its own.
#[derive(Debug)]
#[repr(align(64))]
struct Line {
    /// Raised by one with every shootdown; 1 at first.
    generation: AtomicU64,
}

/// [`INSIDE`], [`AWAITED`] and a count. Changed by the core whose it is; others
/// add [`AWAITED`].
#[derive(Debug, Default)]
#[repr(align(64))]
struct Word(WaitWord);

/// A core's place among the cores. Given back by [`Cores::remove_core`].
#[derive(Debug)]
pub struct CoreHandle {
    index: u32,
    /// Accesses so far, times [`ONE`].
    count: u32,
}

/// A core inside an access; dropping it ends the access.
pub struct Inside<'a> {
    word: &'a WaitWord,
    next: u32,
    /// Translations that were buffered under this number may be used.
    pub generation: u64,
}

impl Cores {
    /// Room for `most` cores.
    pub fn new(most: usize) -> Self {
        Self {
            line: Line {
                generation: AtomicU64::new(1),
            },
            added: AtomicU32::new(0),
            words: (0..most).map(|_| Word::default()).collect(),
            free: Mutex::new(Vec::new()),
        }
    }

    /// Makes a core. `None` if there are as many as there may be.
    pub fn add_core(&self) -> Option<CoreHandle> {
        let handle = self.free.lock().pop();
        let index = handle.or_else(|| {
            let room = |added: u32| ((added as usize) < self.words.len()).then_some(added + 1);
            // AcqRel pairs with itself in `shootdown`; see above.
            self.added.fetch_update(AcqRel, Acquire, room).ok()
        })?;
        // Acquire pairs with the Release of the handle's last user.
        let word = self.words[index as usize].0.load(Acquire);
        assert!(word & INSIDE == 0, "core {index} is in use");
        Some(CoreHandle {
            index,
            count: word & !AWAITED,
        })
    }

    /// Ends a core.
    pub fn remove_core(&self, handle: CoreHandle) {
        self.free.lock().push(handle.index);
    }

    /// Begins an access.
    #[inline]
    pub fn enter(&self, handle: &mut CoreHandle) -> Inside<'_> {
        let word = &self.words[handle.index as usize].0;
        // a1. Acquire pairs with the Release of s2.
        let before = word.swap(handle.count | INSIDE, Acquire);
        debug_assert!(before & INSIDE == 0, "a core is inside twice");
        handle.count = handle.count.wrapping_add(ONE);
        Inside {
            word,
            next: handle.count,
            // a2. Acquire pairs with the Release of s1.
            generation: self.line.generation.load(Acquire),
        }
    }

    /// Returns when no core uses entries any more that were taken out of the tables, or
    /// changed, before.
    pub fn shootdown(&self) {
        // s1. Release pairs with the Acquire of a2; others' raises in between
        // are read-modify-writes and hand it on.
        self.line.generation.fetch_add(1, Release);
        // AcqRel pairs with `add_core`.
        let added = self.added.fetch_add(0, AcqRel);
        for word in &self.words[..added as usize] {
            wait_outside(&word.0);
        }
    }
}

/// Waits until a core that is inside has been outside.
fn wait_outside(word: &WaitWord) {
    // s2. Release pairs with the Acquire of a1, Acquire with the Release of a4.
    let seen = word.fetch_add(0, AcqRel);
    if seen & INSIDE == 0 {
        return;
    }
    let is_over = |now: u32| (now ^ seen) & !AWAITED != 0;
    // s3. Acquire pairs with the Release of a4, here and below: later accesses
    // of the core are read-modify-writes and hand it on.
    if hint::spin_until(|| is_over(word.load(Acquire))) {
        return;
    }
    loop {
        let now = word.fetch_or(AWAITED, Acquire);
        if is_over(now) {
            return;
        }
        word.wait(now | AWAITED, None);
    }
}

impl Drop for Inside<'_> {
    #[inline]
    fn drop(&mut self) {
        // a4. Release pairs with the Acquire of s2 and s3.
        let before = self.word.swap(self.next, Release);
        if before & AWAITED != 0 {
            self.word.wake(u32::MAX);
        }
    }
}
