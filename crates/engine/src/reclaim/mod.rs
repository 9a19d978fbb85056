//! Reclaim: making room under the budget, in the thread that needs it.
//!
//! Order: spare frames of the pool, folios read ahead long ago and never
//! touched, then mapped folios, least recently mapped first ([`lists`]). Mapped folios go in
//! batches with one zap for all: with a second thread running, a zap costs a
//! TLB shootdown, and that is tens of times a page's own cost.
//!
//! A folio leaves in these steps, and a fault that meets it in between waits
//! for its lock:
//!
//! 1. isolated: off its list, under the lists' lock;
//! 2. claimed: locked, under its bucket's lock, if the index alone refers to it;
//! 3. counted out of its range, and zapped with the batch;
//! 4. out of the index, remembered by the ghosts, unlocked, freed.

mod evict;
pub mod ghost;
pub mod lists;

pub use evict::Batches;
pub use ghost::Ghosts;
pub use lists::{ListPages, Lists, Want};

use crate::cache::Node;

/// Batches without a single evicted folio before reclaim gives up.
const ROUNDS: usize = 16;

impl Node {
    /// Makes at least `pages` pages of room if that is possible; returns how
    /// many came back, in the budget or in the pool.
    pub fn reclaim(&self, pages: usize) -> usize {
        self.stats.reclaim_batches.add(1);
        // A pool that was large for a while: keep what is in use once more.
        let counts = self.frames.counts();
        let keep = counts.used.max(crate::cache::frames::CHUNK_PAGES);
        let mut made = self.frames.shrink(keep) as usize;
        // What is pinned or waited for goes to the end of its list, so a few
        // rounds find what is not.
        let mut rounds = 0;
        while made < pages && rounds < ROUNDS {
            let Some(evicted) = self.evict(Want::Any, pages - made) else {
                break;
            };
            rounds = if evicted == 0 { rounds + 1 } else { 0 };
            made += evicted;
        }
        made
    }
}
