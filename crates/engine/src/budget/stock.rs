//! Pages that are charged before anybody needs them, by processor: most charges
//! are of a page, and would all write one line otherwise. Linux's memory cgroups
//! have the same.
//!
//! Pages in stock count as charged where room is looked for, and are given
//! back when there is too little (`Budget::charge_here`).

use super::FLOOR;
use sync::PROCESSORS;
use sync::atomic::AtomicU64;
use sync::atomic::Ordering::{AcqRel, Relaxed};

/// The most pages of a charge that is for the stock too, and the most that a stock has of pages that come back.
const BATCH: u64 = 64;
/// Pages of the greatest charge that is taken from stock, and of the greatest give-back that goes there.
pub(super) const SMALL: u64 = 4;

/// The stocks of a budget. Their orderings are relaxed, as the budget's own,
/// where nothing else is said: the numbers order nothing.
pub(super) struct Stocks(Box<[Stock]>);

#[derive(Default)]
#[repr(align(64))]
struct Stock(AtomicU64);

impl Stocks {
    pub(super) fn new() -> Self {
        Self((0..PROCESSORS).map(|_| Stock::default()).collect())
    }

    /// Under a budget of `limit`, how much of it must be free for a charge in
    /// advance, and how much such a charge is: all processors' together are not
    /// more than that, and leave the floor to pages that can be evicted.
    pub(super) fn room_and_charge(limit: u64) -> (u64, u64) {
        let room = limit / 8;
        // A budget that has no node may be too small to have a floor.
        let spare = room.checked_sub(FLOOR).filter(|&spare| spare >= FLOOR);
        let spare = spare.unwrap_or(room);
        (room, BATCH.min(spare / PROCESSORS as u64))
    }

    /// The caller's.
    #[inline]
    fn own(&self) -> &AtomicU64 {
        &self.0[sync::cpu() % PROCESSORS].0
    }

    /// Takes `pages` out of the caller's processor's stock.
    #[inline]
    pub(super) fn take(&self, pages: u64) -> bool {
        let rest = |stock: u64| stock.checked_sub(pages);
        self.own().fetch_update(Relaxed, Relaxed, rest).is_ok()
    }

    /// Puts `pages` that have been charged into it.
    pub(super) fn put(&self, pages: u64) {
        // Relaxed: the fence that follows in `restock` pairs with `empty_all`. Either that takes these pages too, or
        // we see the limit that was set before it.
        self.own().fetch_add(pages, Relaxed);
    }

    /// Puts `pages` that come back into the stock, which has `most` at last. Returns how many it does not take: a full one
    /// is left half full, so that not each of many pages is given back by itself.
    pub(super) fn keep(&self, pages: u64, most: u64) -> u64 {
        let after = |stock: u64| match stock + pages {
            all if all <= most => all,
            _ => most / 2,
        };
        // AcqRel: as in `put`, and no fence follows.
        let keep = |stock| Some(after(stock));
        let stock = self.own().fetch_update(AcqRel, Relaxed, keep);
        let (Ok(stock) | Err(stock)) = stock;
        stock + pages - after(stock)
    }

    /// Takes all that is in stock.
    pub(super) fn empty(&self) -> u64 {
        let take = |stock: &Stock| match stock.0.load(Relaxed) {
            0 => 0,
            _ => stock.0.swap(0, Relaxed),
        };
        self.0.iter().map(take).sum()
    }

    /// The same of every processor, also of one whose stock seemed empty.
    pub(super) fn empty_all(&self) -> u64 {
        // AcqRel: see `put`.
        self.0.iter().map(|stock| stock.0.swap(0, AcqRel)).sum()
    }

    /// Pages in stock.
    pub(super) fn pages(&self) -> u64 {
        self.0.iter().map(|stock| stock.0.load(Relaxed)).sum()
    }
}
