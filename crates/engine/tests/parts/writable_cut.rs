//! Files that are written to through a map, and that others make shorter.

use super::writable::{bytes, finish, scene, write_back};
use softfault_engine::PAGE_SIZE;
use softfault_engine::fault::{self, FaultError};
use softfault_oracle::TestStore;

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
