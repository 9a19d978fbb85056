//! A budget that several processors charge: their stocks are neither
//! lost nor in anybody's way.

use crate::files::pages;
use crate::readahead_room::shuffled;
use softfault_engine::PAGE_SIZE;
use softfault_engine::budget::{Budget, InHand, Member};
use softfault_oracle::{Rig, TestStore};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use sync::thread::spawn;

/// An eighth of it is more than all processors' stocks.
const PAGES: u64 = 200_000;

#[test]
fn threads_together_get_all_of_it_and_no_more() {
    let budget = Budget::nested(PAGES, &Budget::new(PAGES + 1));
    let threads = [1, 2, 3, 4].map(|pages| {
        let budget = budget.clone();
        spawn(move || {
            let mut charged = 0;
            while budget.try_charge(pages, 0) {
                charged += pages;
            }
            charged
        })
    });
    let mut charged: u64 = threads.into_iter().map(|t| t.join().unwrap()).sum();
    // Too little for the great ones.
    while budget.try_charge(1, 0) {
        charged += 1;
    }
    assert_eq!(
        (charged, budget.charged(), budget.free()),
        (PAGES, PAGES, 0)
    );
    budget.uncharge(PAGES);
    assert_eq!((budget.charged(), budget.free()), (0, PAGES));
}

#[test]
fn pages_in_stock_count_as_free() {
    let budget = Budget::new(PAGES);
    assert!(budget.try_charge(1, 0));
    assert_eq!((budget.charged(), budget.free()), (1, PAGES - 1));
    assert!(budget.has_free(PAGES - 1) && !budget.has_free(PAGES));
    assert!(budget.short_of(PAGES - 1).is_none());
    // No charge in advance is in the way of one that needs it all.
    assert!(!budget.try_charge(PAGES, 0) && !budget.try_charge(PAGES - 2, 2));
    assert!(budget.try_charge(PAGES - 2, 1));
    assert_eq!((budget.charged(), budget.excess()), (PAGES - 1, 0));
    assert!(budget.try_charge(1, 0) && !budget.try_charge(1, 0));
    budget.uncharge(PAGES);

    assert!(budget.try_charge(1, 0));
    budget.set_limit(1);
    assert_eq!((budget.charged(), budget.excess()), (1, 0));
}

/// A member that has charged pages and gives them.
struct Sharer {
    budget: Arc<Budget>,
    has: AtomicU64,
    asked: Mutex<Vec<InHand>>,
}

impl Member for Sharer {
    fn held(&self) -> usize {
        self.has.load(Relaxed) as usize
    }

    fn give(&self, pages: usize, in_hand: InHand) -> usize {
        // The list of members is locked: a thread that has folios locked does not wait for it.
        assert_eq!(self.budget.reclaim_from_members(1, InHand::Folios), 0);
        self.asked.lock().unwrap().push(in_hand);
        let has = self.has.load(Relaxed);
        let gives = has.min(pages as u64);
        self.has.store(has - gives, Relaxed);
        self.budget.uncharge(gives);
        gives as usize
    }
}

/// Failed before: read-ahead, with folios locked, waited for the other members as if it had none. One of them may wait for a folio.
#[test]
fn members_are_told_what_a_thread_has_in_hand() {
    const MEMORY: u64 = 1 << 12;
    let family = Budget::new(MEMORY);
    let rig = Rig::within(MEMORY, &family);
    let sharer = Arc::new(Sharer {
        budget: family.clone(),
        has: AtomicU64::new(0),
        asked: Mutex::default(),
    });
    family.enlist(&(sharer.clone() as Arc<dyn Member>));
    let store = TestStore::with_queue(pages(4 * MEMORY as usize), 128);
    let cache = rig.map(&store);
    for (turn, page) in shuffled(0..4 * MEMORY, 256, 16).into_iter().enumerate() {
        // It takes half of whatever is free, from time to time.
        let free = family.free() / 2;
        if turn % 512 == 0 && family.try_charge(free, 0) {
            sharer.has.fetch_add(free, Relaxed);
        }
        let page = page as usize;
        let addr = cache.addresses().start + page * PAGE_SIZE;
        assert_eq!(rig.touch(addr), Ok(store.byte(pages(page))));
    }
    let asked = sharer.asked.lock().unwrap();
    for in_hand in [InHand::Nothing, InHand::Folios] {
        assert!(asked.contains(&in_hand), "{in_hand:?} of {}", asked.len());
    }
    drop(asked);
    family.uncharge(sharer.has.swap(0, Relaxed));
    family.delist(&(sharer.clone() as Arc<dyn Member>));
    drop(cache);
    rig.finish();
}
