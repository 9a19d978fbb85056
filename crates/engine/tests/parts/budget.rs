//! A budget that several processors charge: their stocks are neither
//! lost nor in anybody's way.

use softfault_engine::budget::Budget;
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
