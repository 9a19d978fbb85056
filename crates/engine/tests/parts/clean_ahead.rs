//! Write-back ahead of need: the pages that go next are clean by then.

use crate::writable::{bytes, finish, scene};
use softfault_engine::PAGE_SIZE;
use softfault_oracle::{TestStore, run_on};
use std::thread;

/// The next pages to evict are clean by then, after cleaning ahead; no other thread has to write.
#[test]
fn the_next_pages_to_evict_are_cleaned_ahead() {
    let (rig, store, cache, start) = scene(TestStore::new(bytes(1024)));
    for page in (0..1024).step_by(2) {
        rig.write(start + page * PAGE_SIZE, &[1]).unwrap();
    }
    rig.node.clean_ahead();
    let ahead = store.writes().len();
    assert!((32..512).contains(&ahead), "{ahead}");
    assert_eq!(cache.dirty_pages() as usize, 512 - ahead);
    // They are there, and go without another write.
    let folios = cache.folio_count();
    rig.node.reclaim(32);
    assert!(cache.folio_count() < folios);
    assert_eq!(store.writes().len(), ahead);
    finish(rig, cache);
}

/// Where a thread has moved to another processor, its oldest pages are all in the lists of the first.
#[test]
fn pages_are_cleaned_ahead_in_their_order_over_all_processors() {
    let (rig, store, cache, start) = scene(TestStore::new(bytes(1024)));
    for (processor, pages) in [(1, 0..512), (0, 512..1024)] {
        let rig = &rig;
        thread::scope(|scope| {
            scope.spawn(move || {
                // Where it may not, the pages are in the order all the same.
                run_on(processor);
                for page in pages.step_by(2) {
                    rig.write(start + page * PAGE_SIZE, &[1]).unwrap();
                }
            });
        });
    }
    rig.node.clean_ahead();
    let ahead = store.writes();
    assert!((32..512).contains(&ahead.len()), "{}", ahead.len());
    let last = ahead.iter().max().expect("some pages");
    assert_eq!(
        *last as usize / 2 + 1,
        ahead.len(),
        "not the oldest: {ahead:?}"
    );
    finish(rig, cache);
}
