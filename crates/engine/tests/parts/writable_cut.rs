//! Files that are written to through a map, and that others make shorter.

use super::writable::{bytes, finish, scene, write_back};
use softfault_engine::PAGE_SIZE;
use softfault_engine::fault::{self, FaultError};
use softfault_oracle::TestStore;
use std::sync::mpsc;
use std::thread;

/// A store to them is lost, as another has made the store shorter: that is told, once, and they are as clean as any.
#[test]
fn pages_that_others_have_cut_off_are_told_and_not_kept() {
    let (rig, store, cache, start) = scene(TestStore::new(bytes(64)));
    let mut seen = 0;
    let at = |page: usize| start + page * PAGE_SIZE;
    for page in [9, 10, 40] {
        rig.write(at(page), &[1]).unwrap();
    }
    store.set_len(bytes(10));
    write_back(&cache, 0..64);
    assert_eq!(
        cache.write_error_since(&mut seen),
        Some(FaultError::BeyondEnd)
    );
    assert_eq!((cache.dirty_pages(), store.byte(bytes(9))), (0, 1));
    write_back(&cache, 0..64);
    assert_eq!(cache.write_error_since(&mut seen), None);
    // By an eviction, too. They come back no more, and are not read from behind the end.
    rig.write(at(40), &[2]).unwrap();
    rig.evict_all();
    assert_eq!((cache.dirty_pages(), cache.folio_count()), (0, 0));
    assert_eq!(
        cache.write_error_since(&mut seen),
        Some(FaultError::BeyondEnd)
    );
    assert_eq!(rig.touch(at(40)), Err(FaultError::BeyondEnd));
    // Whole pages by a call are left to faults, which say so.
    let content = vec![3; 4 * PAGE_SIZE];
    // SAFETY: bytes of the test's, and nobody unmaps the window.
    let written = unsafe { fault::write_whole(&cache, at(8), &raw const content[..]) };
    assert_eq!(written, 2 * PAGE_SIZE);
    write_back(&cache, 0..64);
    assert_eq!(cache.write_error_since(&mut seen), None);
    // A cut of the caller's own is none of others.
    rig.write(at(9), &[4]).unwrap();
    let length = cache.hold_length();
    store.set_len(bytes(5));
    cache.lower_end(bytes(5));
    cache.truncate(bytes(5));
    assert_eq!(
        (cache.dirty_pages(), cache.write_error_since(&mut seen)),
        (0, None)
    );
    drop(length);
    finish(rig, cache);
}

/// A folio that is found while it is read, and that ends before the page once it is: the store was cut meanwhile. The frames behind its
/// end are not the file's bytes.
#[test]
fn a_folio_that_shrinks_after_the_look_up_has_no_such_page() {
    let (rig, store, cache, start) = scene(TestStore::with_queue(bytes(26) + 100, 4));
    let at = |page: usize| start + page * PAGE_SIZE;
    store.close();
    fault::prefetch(&cache, at(16)..at(27));
    assert_eq!(store.reads().len(), 1);
    store.set_len(bytes(21));
    thread::scope(|scope| {
        let (looked_up, has_looked_up) = mpsc::channel();
        let (read, has_read) = mpsc::channel();
        let (rig, gate) = (&rig, store.clone());
        scope.spawn(move || {
            has_looked_up.recv().unwrap();
            gate.open();
            // It completes the other read, too.
            read.send(rig.touch(at(0))).unwrap();
        });
        store.before_next_len(move || {
            looked_up.send(()).unwrap();
            assert!(has_read.recv().unwrap().is_ok());
        });
        assert_eq!(rig.write(at(24), &[1]), Err(FaultError::BeyondEnd));
    });
    assert_eq!(cache.dirty_pages(), 0);
    finish(rig, cache);
}
