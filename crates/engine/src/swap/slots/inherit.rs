//! Slots that children may read: a child process has its parent's table of pages,
//! and cannot say which slots it still needs.

use super::{INHERITED, PAGES, Slots};
use sync::atomic::AtomicU32;
use sync::atomic::Ordering::{AcqRel, Relaxed};

impl Slots {
    /// A process is forked: marks all slots in use. They are not given out again
    /// until [`children_gone`](Self::children_gone).
    pub fn inherit(&self) {
        self.each_used(|_, word| {
            // Relaxed, here and below: the mark orders nothing; it is there before
            // the child is, and freeing the slot changes the same word.
            let mut now = word.load(Relaxed);
            while now & (PAGES | INHERITED) != 0 {
                let marked = now | INHERITED;
                match word.compare_exchange_weak(now, marked, Relaxed, Relaxed) {
                    Ok(_) => break,
                    Err(other) => now = other,
                }
            }
        });
    }

    /// No child lives any more: takes the marks away, and frees slots without a user, after
    /// `discard`.
    pub fn children_gone(&self, discard: impl Fn(u32)) {
        self.each_used(|slot, word| {
            // Relaxed: marks come and go under the hand's lock.
            if word.load(Relaxed) & INHERITED != 0
                // AcqRel as in `put`: this may free the slot.
                && word.fetch_and(!INHERITED, AcqRel) == INHERITED
            {
                // Nobody allocates meanwhile.
                discard(slot);
                self.count_out(slot);
            }
        });
    }

    /// Shows all words of clusters with slots in use. Nobody allocates meanwhile.
    fn each_used(&self, each: impl Fn(u32, &AtomicU32)) {
        let hand = self.hand.lock();
        for number in 0..hand.fresh {
            // A count is never below the sum of the words.
            if self.table.record(number).used() > 0 {
                let slots = self.table.slots(number);
                slots.for_each(|slot| each(slot, self.table.word(slot)));
            }
        }
    }
}
