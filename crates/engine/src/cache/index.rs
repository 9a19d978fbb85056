//! The index of cached folios, by window address.
//!
//! A window shows one backing at one place, so an address names a page of a
//! backing, and one table serves all page caches of a node. A bucket holds the
//! folios of a 64 KiB block, so that a fault finds its neighbours in the same
//! chain. The table is as large as the budget needs and never grows with
//! files.
//!
//! Lock: one a bucket, for its chain and for references to the folios in it.
//! It is taken under VMA locks and batches of reclaim, and only a shard of the
//! reclaim lists is locked under it.

use super::folio::{BLOCK_BYTES, Folio, NO_FOLIO, flag};
use crate::lock::{Mutex, MutexGuard, order};
use crate::slab::Slab;
use sync::atomic::Ordering;

/// The number of its first folio and one: zero is none, and memory of zeros an index without folios.
type Bucket = Mutex<u32, { order::BUCKET }>;

const _: () = assert!(NO_FOLIO == u32::MAX, "its successor is zero");

/// The index.
pub struct Index {
    /// As many as a power of two.
    buckets: Box<[Bucket]>,
}

/// A bucket, locked.
pub struct LockedBucket<'a> {
    head: MutexGuard<'a, u32, { order::BUCKET }>,
    folios: &'a Slab<Folio>,
}

impl Index {
    /// An index for about `folios` folios. `None` where there is no memory for it.
    pub fn new(folios: usize) -> Option<Self> {
        let count = (folios / 2).checked_next_power_of_two()?.max(512);
        Some(Self {
            buckets: sync::zeros::table(count)?,
        })
    }

    /// Bytes of the table.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.buckets)
    }

    /// Locks the bucket of `addr`'s block.
    pub fn lock<'a>(&'a self, addr: usize, folios: &'a Slab<Folio>) -> LockedBucket<'a> {
        // Fibonacci hashing: the high half of the product is well mixed.
        let hash = (addr / BLOCK_BYTES).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 24;
        let bucket = &self.buckets[hash & (self.buckets.len() - 1)];
        LockedBucket {
            head: bucket.lock(),
            folios,
        }
    }
}

impl<'a> LockedBucket<'a> {
    fn first(&self) -> u32 {
        self.head.wrapping_sub(1)
    }

    fn set_first(&mut self, folio: u32) {
        *self.head = folio.wrapping_add(1);
    }

    /// The folio that holds `addr`'s page.
    pub fn find(&self, addr: usize) -> Option<&'a Folio> {
        self.iter().find(|folio| folio.range().contains(&addr))
    }

    /// True if a folio holds any page of the range, which lies in one block.
    pub fn overlaps(&self, range: &core::ops::Range<usize>) -> bool {
        self.iter().any(|folio| {
            let other = folio.range();
            other.start < range.end && range.start < other.end
        })
    }

    /// The folios of all blocks that share the bucket.
    pub fn iter(&self) -> impl Iterator<Item = &'a Folio> + use<'a> {
        let folios = self.folios;
        let mut next = self.first();
        core::iter::from_fn(move || {
            if next == NO_FOLIO {
                return None;
            }
            let folio = folios.get(next);
            next = folio.bucket_next.load(Ordering::Relaxed);
            Some(folio)
        })
    }

    /// Takes a reference to a folio of this bucket.
    pub fn get(&self, folio: &'a Folio) {
        let refs = folio.refs.fetch_add(1, Ordering::Relaxed);
        assert!((1..u32::MAX / 2).contains(&refs), "folio reference count");
    }

    /// Adds a folio; its first reference becomes the index's.
    pub fn insert(&mut self, folio: &Folio) {
        debug_assert!(!self.overlaps(&folio.range()));
        folio.bucket_next.store(self.first(), Ordering::Relaxed);
        self.set_first(folio.id());
    }

    /// Locks the folio for eviction if the index alone refers to it.
    pub fn try_claim(&self, folio: &Folio) -> bool {
        folio.refs.load(Ordering::Relaxed) == 1 && folio.try_lock()
    }

    /// Takes the folio out of the index; the caller holds the folio lock and
    /// now owns the index's reference.
    pub fn remove(&mut self, folio: &Folio) {
        let after = folio.bucket_next.load(Ordering::Relaxed);
        if self.first() == folio.id() {
            self.set_first(after);
        } else {
            let before = self
                .iter()
                .find(|other| other.bucket_next.load(Ordering::Relaxed) == folio.id())
                .expect("a folio leaves the bucket that it is in");
            before.bucket_next.store(after, Ordering::Relaxed);
        }
        folio.bucket_next.store(NO_FOLIO, Ordering::Relaxed);
        folio.change(flag::DEAD, 0);
    }
}
