//! Which slots are in use, and by how many pages.
//!
//! A slot has a word: how many pages of this process have it, and whether a child
//! process may still read it. It is free when the word is 0.
//!
//! | word | the slot is |
//! |---|---|
//! | 0 | free |
//! | n | had by n pages: of one space, and of those forked from it |
//! | [`INHERITED`] and n | the same, and known to children: not free at n = 0 |

use crate::PAGE_SIZE;
use crate::budget::Budget;
use crate::lock::Mutex;
use core::ops::Range;
use core::ptr::NonNull;
use sync::Arc;
use sync::atomic::AtomicU32;
use sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

/// Names no slot.
pub const NO_SLOT: u32 = u32::MAX;
/// The most slots of a device.
pub(super) const MOST: u32 = 1 << 30;
/// Of a word: a child process may read the slot.
const INHERITED: u32 = 1 << 31;
/// Words a page of the table.
const WORDS: usize = PAGE_SIZE / size_of::<AtomicU32>();

/// The slots of a device.
pub struct Slots {
    /// A word a slot of `range`; zeroed, and resident only where touched.
    words: NonNull<AtomicU32>,
    bytes: usize,
    /// Slots that are ours to give out. Immutable.
    range: Range<u32>,
    /// Pages of the table are charged here.
    budget: Arc<Budget>,
    hand: Mutex<Hand>,
}

struct Hand {
    /// Where to look for free slots next.
    next: u32,
    /// Words below have been charged.
    charged: u32,
    /// Slots in use, those that only children have included.
    used: u32,
}

// SAFETY: the words are atomics; the table is given back only on drop.
unsafe impl Send for Slots {}
// SAFETY: as above.
unsafe impl Sync for Slots {}

impl Slots {
    /// All of `range` free. `None` where the system has no memory.
    pub fn new(range: Range<u32>, budget: Arc<Budget>) -> Option<Self> {
        let bytes = range.len().max(1).div_ceil(WORDS) * PAGE_SIZE;
        let hand = Hand {
            next: range.start,
            charged: range.start,
            used: 0,
        };
        Some(Self {
            words: sync::pages::map(bytes)?.cast(),
            bytes,
            range,
            budget,
            hand: Mutex::new(hand),
        })
    }

    fn word(&self, slot: u32) -> &AtomicU32 {
        assert!(self.range.contains(&slot), "slot {slot}");
        // SAFETY: the table has a word for each slot of the range; zeroed memory
        // is a valid word.
        unsafe { self.words.add((slot - self.range.start) as usize).as_ref() }
    }

    /// Takes up to `most` free slots in a row, each for one page. `None` if none
    /// is free, or the budget has no page for their words.
    pub fn alloc(&self, most: u32) -> Option<Range<u32>> {
        let mut hand = self.hand.lock();
        let free = |slot: u32| self.word(slot).load(Acquire) == 0;
        let Range { start, end } = self.range.clone();
        let mut slots = (hand.next..end).chain(start..hand.next);
        let first = slots.find(|&slot| slot >= hand.charged || free(slot))?;
        let mut after = first;
        while after < end && after - first < most && (after >= hand.charged || free(after)) {
            while after >= hand.charged {
                if !self.budget.try_charge(1, 0) {
                    break;
                }
                hand.charged = hand.charged.saturating_add(WORDS as u32).min(end);
            }
            if after >= hand.charged {
                break;
            }
            self.word(after).store(1, Relaxed);
            after += 1;
        }
        hand.next = after;
        hand.used += after - first;
        (after > first).then_some(first..after)
    }

    /// One more page has the slot.
    pub fn get(&self, slot: u32) {
        if self.range.contains(&slot) {
            let before = self.word(slot).fetch_add(1, Relaxed);
            assert!(before & !INHERITED > 0, "slot {slot} is nobody's");
        }
    }

    /// One page less has it; true if it is free now.
    pub fn put(&self, slot: u32) -> bool {
        if !self.range.contains(&slot) {
            return false;
        }
        let before = self.word(slot).fetch_sub(1, AcqRel);
        assert!(before & !INHERITED > 0, "slot {slot} is nobody's");
        if before == 1 {
            self.hand.lock().used -= 1;
        }
        before == 1
    }

    /// Slots that are ours to give out.
    pub fn count(&self) -> u32 {
        self.range.len() as u32
    }

    /// Slots in use.
    pub fn used(&self) -> u32 {
        self.hand.lock().used
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        let hand = self.hand.lock();
        let words = (hand.charged - self.range.start) as usize;
        self.budget.uncharge(words.div_ceil(WORDS) as u64);
        // SAFETY: mapped in `new`; nobody else has the table any more.
        unsafe { sync::pages::unmap(self.words.cast(), self.bytes) };
    }
}
