//! Pages that are taken out of a file that is written to, or forgotten, and cannot be written then.

use crate::files::pin;
use crate::writable::{bytes, finish, scene, write_back};
use softfault_engine::PAGE_SIZE;
use softfault_engine::fault;
use softfault_oracle::{Rig, TestStore, byte_at};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// A page that was to be forgotten with its last pin, and could not be written then, goes later as any other.
#[test]
fn a_page_that_cannot_be_written_at_its_last_unpin_can_go_later() {
    let (rig, store, cache, start) = scene(TestStore::new(bytes(4)));
    rig.write(start, &[7]).unwrap();
    let range = start..start + PAGE_SIZE;
    pin(&rig, &cache, range.clone());
    cache.invalidate(range.clone());
    rig.write(start, &[8]).unwrap();
    store.fail_writes(0, Some(EIO));
    fault::unpin(&cache, range.clone());
    assert_eq!(cache.dirty_pages(), 1);
    store.fail_writes(0, None);
    cache.invalidate(range);
    assert_eq!((cache.dirty_pages(), cache.folio_count()), (0, 0));
    assert_eq!(store.byte(0), 8);
    // The window's end waits for all folios.
    finish(rig, cache);
}

/// Pages of a folio that only overlaps a range that is emptied stay, if they could not be written.
#[test]
fn pages_beside_a_hole_that_cannot_be_written_stay_dirty() {
    let (rig, store, cache, start) = scene(TestStore::with_queue(bytes(64), 4));
    for page in 0..32 {
        rig.write(start + page * PAGE_SIZE, &[page as u8 | 128])
            .unwrap();
    }
    // In folios of several pages, as a writer in order makes them.
    assert!(cache.folio_count() < 32);
    (20..24).for_each(|page| store.fail_writes(page, Some(ENOSPC)));
    let addr = |page: usize| start + page * PAGE_SIZE;
    let punch = || {
        store.punch(21..23);
        Ok::<(), ()>(())
    };
    cache.empty(addr(21)..addr(23), punch).unwrap();
    (20..24).for_each(|page| store.fail_writes(page, None));
    let bytes_of = |page: usize| rig.touch(addr(page));
    assert_eq!([20, 23].map(bytes_of), [Ok(20 | 128), Ok(23 | 128)]);
    write_back(&cache, 0..64);
    assert_eq!(cache.dirty_pages(), 0);
    let stored = [20, 23].map(|page| store.byte(bytes(page)));
    assert_eq!(stored, [20 | 128, 23 | 128]);
    finish(rig, cache);
}

/// A page that could not be written is written at the worst moment: when the store has taken it out, and it is still dirty.
#[test]
fn a_page_that_is_written_late_is_no_part_of_a_hole() {
    let (rig, store, cache, start) = scene(TestStore::new(bytes(4)));
    rig.write(start, &[7]).unwrap();
    store.fail_writes(0, Some(ENOSPC));
    let punch = || {
        store.punch(0..1);
        store.fail_writes(0, None);
        write_back(&cache, 0..1);
        Ok::<(), ()>(())
    };
    cache.empty(start..start + PAGE_SIZE, punch).unwrap();
    assert_eq!((store.byte(0), cache.dirty_pages()), (0, 0));
    assert_eq!(rig.touch(start), Ok(0));
    finish(rig, cache);
}

/// Page numbers of such a file need more than 32 bits.
#[test]
fn pages_far_out_are_not_read_while_they_are_taken_out() {
    const FAR: u64 = 20 << 40;
    // The words of such a window are tens of megabytes.
    let rig = Rig::new(40_000);
    let store = TestStore::new(FAR + bytes(64));
    let cache = rig.map_writable(&store);
    let addr = |page: u64| cache.addresses().start + (FAR + bytes(page)) as usize;
    let byte = |page| Ok(byte_at(0, FAR + bytes(page)));
    assert_eq!(rig.touch(addr(3)), byte(3));
    let reads = store.reads().len();
    std::thread::scope(|scope| {
        let mut touches = None;
        let taken = cache.empty(addr(8)..addr(12), || {
            // Outside of the range nothing waits. Units have four pages in such a window.
            assert_eq!(rig.touch(addr(3)), byte(3));
            touches = Some(scope.spawn(|| [8, 11].map(|page| rig.touch(addr(page)))));
            (0..1000).for_each(|_| std::thread::yield_now());
            assert_eq!(store.reads().len(), reads);
            Ok::<(), ()>(())
        });
        assert_eq!(taken, Ok(()));
        assert_eq!(touches.unwrap().join().unwrap(), [8, 11].map(byte));
    });
    finish(rig, cache);
}

/// Failed before: the page was written into the hole when its last pin went, or by a write-back in between.
#[test]
fn a_pinned_page_does_not_fill_a_hole_again() {
    for dirty in [true, false] {
        let (rig, store, cache, start) = scene(TestStore::new(bytes(4)));
        rig.write(start, &[7]).unwrap();
        if !dirty {
            write_back(&cache, 0..4);
        }
        let range = start..start + PAGE_SIZE;
        pin(&rig, &cache, range.clone());
        let punch = || {
            store.punch(0..1);
            Ok::<(), ()>(())
        };
        cache.empty(range.clone(), punch).unwrap();
        assert_eq!((rig.touch(start), cache.dirty_pages()), (Ok(0), 0));
        write_back(&cache, 0..4);
        assert_eq!(store.byte(0), 0);
        // Bytes that are written afterwards stay.
        rig.write(start + 1, &[9]).unwrap();
        fault::unpin(&cache, range);
        write_back(&cache, 0..4);
        assert_eq!((store.byte(0), store.byte(1)), (0, 9));
        assert_eq!((rig.touch(start), rig.touch(start + 1)), (Ok(0), Ok(9)));
        finish(rig, cache);
    }
}

/// Failed before: the bytes of a pinned page came back into the file when that became longer again.
#[test]
fn a_pinned_page_that_is_cut_off_comes_back_as_zeros() {
    let (rig, store, cache, start) = scene(TestStore::new(bytes(8)));
    let addr = start + 5 * PAGE_SIZE;
    rig.write(addr, &[7]).unwrap();
    let range = addr..addr + PAGE_SIZE;
    pin(&rig, &cache, range.clone());
    {
        let _length = cache.hold_length();
        let _emptied = cache.empty_from(bytes(3));
        store.set_len(bytes(3));
        cache.lower_end(bytes(3));
        cache.truncate(bytes(3));
    }
    write_back(&cache, 0..8);
    assert_eq!(cache.dirty_pages(), 0);
    {
        let _length = cache.hold_length();
        store.set_len(bytes(8));
        cache.truncate(bytes(8));
    }
    assert_eq!(rig.touch(addr), Ok(0));
    write_back(&cache, 0..8);
    fault::unpin(&cache, range);
    let stored = store.byte(bytes(5));
    assert_eq!(rig.touch(addr), Ok(stored));
    assert_ne!(stored, 7);
    finish(rig, cache);
}

/// Nothing is lost of pinned pages either, where the store refuses; nor of the page that the file ends in.
#[test]
fn pinned_pages_that_the_store_keeps_lose_nothing() {
    let (rig, store, cache, start) = scene(TestStore::new(bytes(8)));
    let addr = |page: usize| start + page * PAGE_SIZE;
    for page in [3, 5] {
        rig.write(addr(page), &[7]).unwrap();
    }
    pin(&rig, &cache, addr(3)..addr(6));
    let refused = cache.empty(addr(5)..addr(6), || Err(EIO));
    assert_eq!((refused, rig.touch(addr(5))), (Err(EIO), Ok(7)));
    {
        let _length = cache.hold_length();
        let _emptied = cache.empty_from(bytes(3));
    }
    let there = || [3, 5].map(|page| rig.touch(addr(page)));
    assert_eq!(there(), [Ok(7), Ok(7)]);
    // Others go through the same pages meanwhile.
    let punch = || {
        cache.invalidate(addr(0)..addr(8));
        Ok::<(), ()>(())
    };
    cache.empty(addr(1)..addr(2), punch).unwrap();
    assert_eq!(there(), [Ok(7), Ok(7)]);
    {
        let _length = cache.hold_length();
        let _emptied = cache.empty_from(bytes(3) + 8);
        store.set_len(bytes(3) + 8);
        cache.lower_end(bytes(3) + 8);
        cache.truncate(bytes(3) + 8);
    }
    assert_eq!(rig.touch(addr(3)), Ok(7));
    fault::unpin(&cache, addr(3)..addr(6));
    write_back(&cache, 0..8);
    assert_eq!(store.byte(bytes(3)), 7);
    finish(rig, cache);
}

/// Failed before: pages of a file that is only read went from under their pins when the file became longer again, in part.
#[test]
fn pinned_pages_that_are_only_read_stay_past_the_end() {
    let rig = Rig::new(2048);
    let store = TestStore::new(bytes(8));
    let cache = rig.map(&store);
    let addr = cache.addresses().start + 5 * PAGE_SIZE;
    rig.touch(addr).unwrap();
    let range = addr..addr + PAGE_SIZE;
    pin(&rig, &cache, range.clone());
    for pages in [3, 4] {
        store.set_len(bytes(pages));
        cache.truncate(bytes(pages));
        assert_eq!(rig.touch(addr), Ok(byte_at(0, bytes(5))));
    }
    fault::unpin(&cache, range);
    finish(rig, cache);
}
