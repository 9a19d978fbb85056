//! Writing back ahead of need: the next pages to evict are clean by then, and a thread that needs their memory waits for no
//! device. A thread of the engine's owner sleeps until an eviction where there are dirty pages.

use super::lists::EvictionRanks;
use super::write_back::WriteOrder;
use crate::cache::Node;

/// Pages of each shard that are looked at for a batch, at most: faults wait for its lock meanwhile.
const LOOK: usize = 1024;
/// Batches of one call.
const BATCHES: usize = 16;

impl Node {
    /// Wakes the thread, or lets it not sleep.
    pub fn ring_for_cleaning(&self) {
        self.evictions.ring();
    }

    /// Sleeps until somebody rings, at most so long; now and then less. For one thread.
    pub fn wait_for_cleaning(&self, timeout_ns: u64) {
        self.evictions.wait(Some(timeout_ns));
    }

    /// Writes back the dirty pages of the folios that go next, in some batches. The folios stay where they are. The number of batches
    /// is limited, because others may make more pages dirty all the time, and the caller has other work.
    pub fn clean_ahead(&self) {
        let look = (self.budget.limit() as usize / 32).min(LOOK);
        let mut ranks = EvictionRanks::new(look);
        for _ in 0..BATCHES {
            if !self.clean_some(&mut ranks) {
                break;
            }
        }
    }

    /// A batch of them; true if that made some of them clean.
    fn clean_some(&self, ranks: &mut EvictionRanks) -> bool {
        let mut batch = self.lru.batches.take();
        let (folios, write_batch) = batch.cleaning();
        let found = self.lru.lists.next_dirty(&self.folios, ranks, folios);
        let (mut claimed, mut pages) = (0, 0);
        let mut cache = core::ptr::null();
        for place in 0..found {
            let folio = self.folios.get(folios[place]);
            let bucket = self.index.lock(folio.range().start, &self.folios);
            // As of an eviction: it may be another folio by now. One that is being written has a reference more.
            let is_there = bucket.iter().any(|other| core::ptr::eq(other, folio));
            if !is_there || !bucket.try_claim(folio) {
                continue;
            }
            let dirty = folio.dirty_pages().count_ones() as usize;
            let of = core::ptr::from_ref(folio.cache());
            let fits = match write_batch.room() {
                0 => true,
                // Copies are of one cache. The others come with the next batch.
                room => pages + dirty <= room && (claimed == 0 || of == cache),
            };
            if dirty == 0 || !fits {
                folio.unlock();
                continue;
            }
            bucket.get(folio);
            (cache, pages) = (of, pages + dirty);
            folios[claimed] = folio.id();
            claimed += 1;
        }
        self.clean(&folios[..claimed], write_batch, WriteOrder::Reclaim) > 0
    }
}
