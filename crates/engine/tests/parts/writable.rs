//! Files that are written to through a map: a write is seen by all maps and calls, is in the store when somebody
//! asks for that, and is never lost to eviction, truncate, or a store that fails.

use crate::files::pin;
use softfault_engine::PAGE_SIZE;
use softfault_engine::cache::PageCache;
use softfault_engine::fault::{self, FaultError, NeverInterrupted, Pin};
use softfault_oracle::{Rig, TestStore, byte_at, run_on};
use std::sync::Arc;

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

pub fn bytes(pages: u64) -> u64 {
    pages * PAGE_SIZE as u64
}

/// Writes back all that is dirty of a page range.
pub fn write_back(cache: &PageCache, pages: std::ops::Range<u64>) {
    let start = cache.addresses().start;
    let range = start + bytes(pages.start) as usize..start + bytes(pages.end) as usize;
    let mut cursor = cache.write_back_of(range);
    while cache.write_back(&mut cursor) {}
}

/// A map of the whole store, and where it starts.
pub fn scene(store: Arc<TestStore>) -> (Rig, Arc<TestStore>, Arc<PageCache>, usize) {
    let rig = Rig::new(2048);
    let cache = rig.map_writable(&store);
    let start = cache.addresses().start;
    (rig, store, cache, start)
}

pub fn finish(rig: Rig, cache: Arc<PageCache>) {
    rig.unmap(cache.addresses());
    drop(cache);
    rig.finish();
}

#[test]
fn written_pages_are_in_the_store_after_eviction() {
    let (rig, store, cache, start) = scene(TestStore::new(bytes(64) + 100));
    rig.write(start + 5 * PAGE_SIZE + 7, b"five").unwrap();
    rig.write(start + 64 * PAGE_SIZE + 96, b"last").unwrap();
    assert_eq!(cache.dirty_pages(), 2);
    assert_eq!(store.byte(bytes(5) + 7), byte_at(0, bytes(5) + 7));
    rig.evict_all();
    assert_eq!((cache.dirty_pages(), cache.folio_count()), (0, 0));
    assert_eq!(store.writes(), [5, 64], "these pages, and no other");
    assert_eq!(store.byte(bytes(5) + 7), b'f');
    assert_eq!(store.byte(bytes(64) + 99), b't');
    assert_eq!(rig.touch(start + 5 * PAGE_SIZE + 10), Ok(b'e'));
    assert_eq!(
        rig.touch(start + 5 * PAGE_SIZE),
        Ok(byte_at(0, bytes(5))),
        "the rest of the page is the file's"
    );
    finish(rig, cache);
}

#[test]
fn a_page_is_protected_again_once_it_was_written_back() {
    let (rig, store, cache, start) = scene(TestStore::new(bytes(64)));
    for round in 0..3 {
        rig.write(start, &[round]).unwrap();
        assert_eq!(cache.dirty_pages(), 1, "round {round}");
        write_back(&cache, 0..64);
        assert_eq!(cache.dirty_pages(), 0);
        assert_eq!(store.byte(0), round);
        assert_eq!(rig.touch(start), Ok(round), "it stays");
    }
    write_back(&cache, 0..64);
    assert_eq!(store.writes().len(), 3, "clean pages are not written");
    finish(rig, cache);
}

#[test]
fn neighbours_of_written_pages_are_clean() {
    let (rig, store, cache, start) = scene(TestStore::new(bytes(64)));
    for page in 0..64 {
        rig.touch(start + page * PAGE_SIZE).unwrap();
    }
    rig.write(start + 20 * PAGE_SIZE, &[1]).unwrap();
    rig.write(start + 22 * PAGE_SIZE, &[1]).unwrap();
    // Somebody else writes to the file.
    store.rewrite(7);
    write_back(&cache, 0..64);
    assert_eq!(store.writes(), [20, 22]);
    assert_eq!(store.byte(bytes(21)), byte_at(7, bytes(21)));
    finish(rig, cache);
}

#[test]
fn unwritable_pages_stay_and_are_reported_once() {
    let (rig, store, cache, start) = scene(TestStore::new(bytes(64)));
    let mut seen = 0;
    for page in 0..64 {
        rig.write(start + page * PAGE_SIZE, &[page as u8 + 1])
            .unwrap();
    }
    store.fail_writes(9, Some(EIO));
    rig.evict_all();
    assert_eq!(cache.dirty_pages(), 1);
    assert_eq!(
        cache.write_error_since(&mut seen),
        Some(FaultError::Io(EIO))
    );
    assert_eq!(cache.write_error_since(&mut seen), None);
    assert_eq!(rig.touch(start + 9 * PAGE_SIZE), Ok(10));
    // Invalidating takes nothing that the store has not got.
    cache.invalidate(cache.addresses());
    assert_eq!(rig.touch(start + 9 * PAGE_SIZE), Ok(10));
    assert_eq!(
        cache.write_error_since(&mut seen),
        Some(FaultError::Io(EIO))
    );
    store.fail_writes(9, None);
    write_back(&cache, 0..64);
    assert_eq!((cache.dirty_pages(), store.byte(bytes(9))), (0, 10));
    assert_eq!(cache.write_error_since(&mut seen), None);
    finish(rig, cache);
}

/// A writer gets the error; readers go on.
#[test]
fn a_store_that_takes_nothing_does_not_keep_readers_from_memory() {
    let rig = Rig::new(2048);
    let store = TestStore::new(bytes(4096));
    for page in 0..4096 {
        store.fail_writes(page, Some(ENOSPC));
    }
    let cache = rig.map_writable(&store);
    let start = cache.addresses().start;
    let mut written = 0;
    let refused = loop {
        match rig.write(start + written * PAGE_SIZE, &[1]) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 2048);
    };
    assert_eq!(refused, FaultError::NoMemory);
    assert!(written > 1000, "{written}");
    for page in (0..4096).rev() {
        rig.touch(start + page * PAGE_SIZE).unwrap();
    }
    for page in 0..written {
        assert_eq!(rig.touch(start + page * PAGE_SIZE), Ok(1));
    }
    finish(rig, cache);
}

#[test]
fn pages_cut_off_are_not_written() {
    let (rig, store, cache, start) = scene(TestStore::new(bytes(64)));
    for page in 0..64 {
        rig.write(start + page * PAGE_SIZE + 1000, &[0xAB]).unwrap();
    }
    store.set_len(bytes(10) + 500);
    cache.truncate(bytes(10) + 500);
    assert_eq!(
        rig.touch(start + 11 * PAGE_SIZE),
        Err(FaultError::BeyondEnd)
    );
    assert_eq!(
        rig.write(start + 11 * PAGE_SIZE, &[1]),
        Err(FaultError::BeyondEnd)
    );
    store.set_len(bytes(64));
    cache.truncate(bytes(64));
    assert_eq!(rig.touch(start + 10 * PAGE_SIZE + 1000), Ok(0));
    assert_eq!(rig.touch(start + 20 * PAGE_SIZE + 1000), Ok(0));
    assert_eq!(rig.touch(start + 9 * PAGE_SIZE + 1000), Ok(0xAB));
    finish(rig, cache);
}

/// Only threads that need a page on its way there wait for a device that hangs.
#[test]
fn a_device_that_hangs_is_waited_for_by_threads_that_need_it() {
    let (rig, store, cache, start) = scene(TestStore::new(bytes(64)));
    let at = |page: usize| start + page * PAGE_SIZE;
    rig.touch(at(40)).unwrap();
    rig.write(at(3), &[3]).unwrap();
    store.hang_writes(true);
    std::thread::scope(|scope| {
        let flushes = scope.spawn(|| write_back(&cache, 0..64));
        while store.writes().is_empty() {
            std::thread::yield_now();
        }
        // It is there, and stays: the store has not got it.
        rig.node.reclaim(64);
        assert_eq!((rig.touch(at(3)), cache.dirty_pages()), (Ok(3), 1));
        assert_eq!(rig.touch(at(50)), Ok(byte_at(0, bytes(50))));
        rig.write(at(40), &[40]).unwrap();
        assert_eq!(cache.dirty_pages(), 2);
        // A thread that writes to it does not wait either: the store gets the old bytes.
        rig.write(at(3), &[4]).unwrap();
        assert_eq!((rig.touch(at(3)), cache.dirty_pages()), (Ok(4), 3));
        // It is not written once more before that is over, nor forgotten.
        let again = scope.spawn(|| write_back(&cache, 0..64));
        let forgets = scope.spawn(|| cache.invalidate(start..at(4)));
        assert_eq!(rig.touch(at(3)), Ok(4));
        assert_eq!(store.writes().iter().filter(|&&page| page == 3).count(), 1);
        assert!(!flushes.is_finished() && !again.is_finished() && !forgets.is_finished());
        store.hang_writes(false);
        flushes.join().unwrap();
        again.join().unwrap();
        forgets.join().unwrap();
    });
    assert_eq!(
        store.byte(bytes(3)),
        4,
        "each flush has the writes before it"
    );
    write_back(&cache, 0..64);
    assert_eq!((store.byte(bytes(3)), store.byte(bytes(40))), (4, 40));
    finish(rig, cache);
}

/// In the page that a file ends in, bytes that are written past the end are not the file's when it grows.
#[test]
fn bytes_written_past_the_end_are_dropped() {
    let (rig, store, cache, start) = scene(TestStore::new(bytes(64)));
    store.set_len(bytes(10) + 500);
    cache.truncate(bytes(10) + 500);
    rig.write(start + 10 * PAGE_SIZE + 499, &[1, 2]).unwrap();
    // Before the store is longer: bytes behind the end then were stored since.
    cache.truncate(bytes(10) + 500);
    assert_eq!(rig.touch(start + 10 * PAGE_SIZE), Ok(byte_at(0, bytes(10))));
    store.set_len(bytes(64));
    cache.truncate(bytes(64));
    assert_eq!(cache.folio_count(), 0, "the page is read anew");
    assert_eq!(rig.touch(start + 10 * PAGE_SIZE + 499), Ok(1));
    assert_eq!(rig.touch(start + 10 * PAGE_SIZE + 500), Ok(0));
    finish(rig, cache);
}

/// Of a folio that was read ahead, only the page that is written to may be written to unseen.
#[test]
fn each_page_of_a_folio_is_written_for_itself() {
    let (rig, store, cache, start) = scene(TestStore::with_queue(bytes(256), 4));
    for page in 0..20 {
        rig.touch(start + page * PAGE_SIZE).unwrap();
    }
    // In the middle of the prefetched pages, and then on both sides.
    for page in [40, 39, 41, 33, 47] {
        rig.write(start + page * PAGE_SIZE, &[page as u8]).unwrap();
    }
    assert_eq!(cache.dirty_pages(), 5);
    write_back(&cache, 0..256);
    for page in [33, 39, 40, 41, 47] {
        assert_eq!(store.byte(bytes(page)), page as u8);
    }
    assert_eq!(store.writes().len(), 5);
    finish(rig, cache);
}

/// A writer in order makes the rest of a folio writable before it comes there; a page that it never came to is not written.
#[test]
fn expected_writes_that_do_not_come_are_not_written_back() {
    let (rig, store, cache, start) = scene(TestStore::with_queue(bytes(256), 4));
    let in_use = rig.node.frames_in_use();
    for page in 0..100 {
        rig.write(start + page * PAGE_SIZE, &[page as u8 | 128])
            .unwrap();
    }
    assert!(cache.dirty_pages() > 100, "{}", cache.dirty_pages());
    // Others write to the pages that follow.
    store.rewrite(9);
    write_back(&cache, 0..256);
    assert_eq!(cache.dirty_pages(), 0);
    assert!(store.writes().into_iter().eq(0..100));
    assert_eq!(store.byte(bytes(100)), byte_at(9, bytes(100)));
    // The pages are protected, and a write there is seen.
    rig.write(start + 100 * PAGE_SIZE, &[1]).unwrap();
    assert_eq!(cache.dirty_pages(), 1);
    write_back(&cache, 0..256);
    assert_eq!(store.byte(bytes(100)), 1);
    // Read-ahead has some.
    rig.evict_all();
    assert!(rig.node.frames_in_use() <= in_use);
    finish(rig, cache);
}

/// Once the writer has gone on, the pages that he left out are protected: a write there is seen.
#[test]
fn pages_left_out_can_be_written_to_later() {
    let (rig, store, cache, start) = scene(TestStore::with_queue(bytes(256), 4));
    for page in 0..100 {
        let left_out = (20..32).contains(&page);
        if !left_out {
            rig.write(start + page * PAGE_SIZE, &[1]).unwrap();
        }
    }
    for page in 20..32 {
        rig.write(start + page * PAGE_SIZE, &[2]).unwrap();
    }
    write_back(&cache, 0..256);
    for page in 0..100 {
        let byte = if (20..32).contains(&page) { 2 } else { 1 };
        assert_eq!(store.byte(bytes(page)), byte, "page {page}");
    }
    finish(rig, cache);
}

/// Bytes that are written over with themselves keep neither frames nor the store busy.
#[test]
fn pages_overwritten_with_the_same_bytes_are_not_written() {
    let (rig, store, cache, start) = scene(TestStore::with_queue(bytes(512), 4));
    for page in 0..512 {
        let byte = byte_at(0, bytes(page as u64));
        rig.write(start + page * PAGE_SIZE, &[byte]).unwrap();
    }
    assert!(
        rig.node.frames_in_use() < 128,
        "{}",
        rig.node.frames_in_use()
    );
    write_back(&cache, 0..512);
    // A page that a fault has made dirty is written; of two folios one is expected.
    assert!(store.writes().len() < 300, "{}", store.writes().len());
    finish(rig, cache);
}

/// A page that was protected with its whole window is not protected once more when it is written back.
#[test]
fn a_window_that_was_protected_is_not_written_to_unseen() {
    let (rig, store, cache, start) = scene(TestStore::new(bytes(64)));
    let write = |byte: u8| {
        (0..64).for_each(|page| rig.write(start + page * PAGE_SIZE, &[byte]).unwrap());
    };
    for round in 0..4_u8 {
        write(2 * round);
        assert!(cache.protect_window());
        assert_eq!(cache.dirty_pages(), 64);
        write_back(&cache, 0..64);
        write(2 * round + 1);
        write_back(&cache, 0..64);
        for page in 0..64 {
            assert_eq!(store.byte(bytes(page)), 2 * round + 1, "page {page}");
        }
    }
    finish(rig, cache);
}

/// Many pages are protected with the pages between them, or one by one; each write to one afterwards is seen.
#[test]
fn writes_after_the_protection_are_written_back() {
    for distance in [3, 600] {
        let all = 100 * distance;
        let (rig, store) = (Rig::new(8192), TestStore::new(bytes(all)));
        let cache = rig.map_writable(&store);
        let at = |page: u64, byte: u64| cache.addresses().start + (bytes(page) + byte) as usize;
        let pages = || (0..all).step_by(distance as usize);
        for round in 1..6_u8 {
            for page in pages() {
                rig.write(at(page, 0), &[round]).unwrap();
            }
            // A part: the others are protected, and dirty still.
            write_back(&cache, 0..all / 2);
            for page in pages().step_by(2) {
                rig.write(at(page, 1), &[round]).unwrap();
            }
            write_back(&cache, 0..all);
            for page in pages() {
                assert_eq!(store.byte(bytes(page)), round, "page {page}");
            }
            for page in pages().step_by(2) {
                assert_eq!(store.byte(bytes(page) + 1), round, "page {page}");
            }
        }
        finish(rig, cache);
    }
}

/// There may come to be as many folios as blocks in the middle of a write-back, which goes on as it began.
#[test]
fn a_write_back_does_not_lose_its_way() {
    const BLOCKS: u64 = 1024;
    let (rig, store, cache, start) = scene(TestStore::new(bytes(BLOCKS * 16)));
    // One folio a block but the first; those that were made first are in the last blocks.
    let pages = || (1..BLOCKS).rev().map(|block| block * 16);
    for page in pages() {
        let addr = start + bytes(page) as usize;
        rig.write(addr, &[7]).unwrap();
    }
    let mut cursor = cache.write_back_of(cache.addresses());
    assert!(cache.write_back(&mut cursor));
    assert_ne!(cache.dirty_pages(), 0);
    for page in [0, 4, 8, 12] {
        rig.write(start + page * PAGE_SIZE, &[7]).unwrap();
    }
    while cache.write_back(&mut cursor) {}
    for page in pages() {
        assert_eq!(store.byte(bytes(page)), 7, "page {page}");
    }
    finish(rig, cache);
}

/// A refusal of the device to make writes durable is an error of every map's next flush.
#[test]
fn a_sync_that_fails_is_told_once() {
    let (rig, store, cache, start) = scene(TestStore::new(bytes(64)));
    let mut seen = [0, 0];
    rig.write(start, &[1]).unwrap();
    write_back(&cache, 0..64);
    store.fail_sync(Some(EIO));
    cache.sync();
    store.fail_sync(None);
    for seen in &mut seen {
        assert_eq!(cache.write_error_since(seen), Some(FaultError::Io(EIO)));
        assert_eq!(cache.write_error_since(seen), None);
    }
    cache.sync();
    assert_eq!(cache.write_error_since(&mut seen[0]), None);
    finish(rig, cache);
}

/// A write to a place without blocks on the device gets blocks, or the device's error; a read needs none.
#[test]
fn a_write_without_room_on_the_device_is_an_error() {
    let (rig, store, cache, start) = scene(TestStore::new(bytes(64)));
    let at = |page: usize| start + page * PAGE_SIZE;
    [3, 4, 6].into_iter().for_each(|page| store.unreserve(page));
    store.fail_reserve(Some(ENOSPC));
    let refused = Err(FaultError::Io(ENOSPC));
    // SAFETY: bytes of our own; the window stays mapped.
    let whole = unsafe { fault::write_whole(&cache, at(6), &[9; PAGE_SIZE][..]) };
    assert_eq!(whole, 0, "a whole page");
    assert_eq!(rig.write(at(3), &[1]), refused, "of a page that is missing");
    assert_eq!(rig.touch(at(4)), Ok(byte_at(0, bytes(4))));
    assert_eq!(rig.write(at(4), &[1]), refused, "of one that is there");
    assert_eq!((rig.write(at(5), &[1]), cache.dirty_pages()), (Ok(()), 1));
    store.fail_reserve(None);
    for page in [3, 4] {
        rig.write(at(page), &[1]).unwrap();
    }
    write_back(&cache, 0..64);
    assert_eq!(store.writes(), [3, 4, 5]);
    finish(rig, cache);
}

/// A pinned page may be in the hands of a system call: it stays writable, and is written again by each write-back.
#[test]
fn pinned_pages_are_written_as_they_are_and_stay_dirty() {
    let (rig, store, cache, start) = scene(TestStore::new(bytes(64)));
    let range = start..start + PAGE_SIZE;
    let pages = cache.admit_pin(&range).expect("room for a pin");
    let pin = || fault::pin(&rig.space, &cache, range.clone(), start, &NeverInterrupted);
    while !matches!(pin(), Pin::Done) {
        rig.touch(start).unwrap();
    }
    rig.write(start, &[1]).unwrap();
    for byte in 2..5 {
        write_back(&cache, 0..64);
        assert_eq!((store.byte(0), cache.dirty_pages()), (byte - 1, 1));
        rig.write(start, &[byte]).unwrap();
    }
    fault::unpin(&cache, range);
    cache.dismiss_pin(pages);
    write_back(&cache, 0..64);
    assert_eq!((store.byte(0), cache.dirty_pages()), (4, 0));
    finish(rig, cache);
}

/// Where one file's window ends where another's begins, a writer has come to the second from nowhere: the end of the first is not
/// before it in its file.
#[test]
fn windows_that_touch_are_two_files() {
    // Windows of one processor lie side by side.
    assert!((0..1024).any(run_on), "a processor to run on");
    let rig = Rig::new(4096);
    let stores = [(); 2].map(|()| TestStore::with_queue(bytes(512), 4));
    let mut files = stores.map(|store| (rig.map_writable(&store), store));
    files.sort_unstable_by_key(|(cache, _)| cache.addresses().start);
    let [(lower, _), (upper, store)] = files;
    let (first, last) = (lower.addresses(), upper.addresses());
    assert_eq!(first.end, last.start, "they touch");
    for addr in (first.start..first.end - PAGE_SIZE).step_by(PAGE_SIZE) {
        rig.write(addr, &[1]).unwrap();
    }
    assert_eq!(lower.dirty_pages(), 512, "the last page is expected");
    rig.write(last.start, &[7]).unwrap();
    assert_eq!((lower.dirty_pages(), upper.dirty_pages()), (512, 1));
    write_back(&upper, 0..512);
    assert_eq!((store.writes(), store.byte(0)), (vec![0], 7));
    write_back(&lower, 0..512);
    assert_eq!((lower.dirty_pages(), upper.dirty_pages()), (0, 0));
    rig.unmap(first);
    drop(lower);
    finish(rig, upper);
}

/// A page that was expected to be written to is pinned, written back, and then written to with the file's first bytes: that
/// was taken for a page that nobody had written to, and the file kept the write before.
#[test]
fn pinned_pages_may_get_their_old_bytes_again() {
    for written_before in [false, true] {
        let (rig, store, cache, start) = scene(TestStore::with_queue(bytes(256), 4));
        for page in 0..100 {
            rig.write(start + page * PAGE_SIZE, &[page as u8 | 128])
                .unwrap();
        }
        let dirty = cache.dirty_pages();
        assert!(
            dirty > 101,
            "page 101 is expected to be written to: {dirty}"
        );
        let at = start + 101 * PAGE_SIZE;
        let first = byte_at(0, bytes(101));
        if written_before {
            rig.write(at, &[!first]).unwrap();
        }
        let range = at..at + PAGE_SIZE;
        let pages = cache.admit_pin(&range).expect("room for a pin");
        pin(&rig, &cache, range.clone());
        for byte in [!first, first, !first, first] {
            rig.write(at, &[byte]).unwrap();
            write_back(&cache, 0..256);
            assert_eq!(store.byte(bytes(101)), byte);
        }
        fault::unpin(&cache, range);
        cache.dismiss_pin(pages);
        write_back(&cache, 0..256);
        rig.evict_all();
        assert_eq!(rig.touch(at), Ok(first));
        finish(rig, cache);
    }
}

/// Write-back by age takes pages that were dirty at the look before, and no more.
#[test]
fn old_pages_are_written_at_the_second_look() {
    let (rig, store, cache, start) = scene(TestStore::new(bytes(64)));
    let look = || {
        let mut cursor = cache.write_back_of_aged();
        while cache.write_back(&mut cursor) {}
    };
    rig.write(start, &[1]).unwrap();
    look();
    assert_eq!(store.writes(), []);
    rig.write(start + 9 * PAGE_SIZE, &[1]).unwrap();
    look();
    assert_eq!((store.writes(), cache.dirty_pages()), (vec![0], 1));
    // Dirty anew: young again.
    rig.write(start, &[2]).unwrap();
    look();
    assert_eq!(store.writes(), [0, 9]);
    look();
    assert_eq!((store.writes(), store.byte(0)), (vec![0, 9, 0], 2));
    finish(rig, cache);
}

/// Pages that are written over as a whole are not read, cost no frame, and do not wait for a thread that has one of them.
#[test]
fn wholly_overwritten_pages_are_not_read() {
    let (rig, store, cache, start) = scene(TestStore::new(bytes(64) + 100));
    let at = |page: usize| start + page * PAGE_SIZE;
    let content: Vec<u8> = (0..65 * PAGE_SIZE).map(|at| (at * 7) as u8).collect();
    let write = |page: usize, pages: usize| {
        let content = &raw const content[page * PAGE_SIZE..][..pages * PAGE_SIZE];
        // SAFETY: bytes; the map stays.
        unsafe { fault::write_whole(&cache, at(page), content) / PAGE_SIZE }
    };
    assert_eq!(write(3, 40), 40);
    assert_eq!((store.reads().len(), cache.dirty_pages()), (0, 40));
    for page in 3..43 {
        let byte = content[page * PAGE_SIZE + 9];
        assert_eq!(rig.touch(at(page) + 9), Ok(byte), "page {page}");
    }
    assert_eq!(write(3, 40), 0, "pages in memory are written by stores");
    rig.write(at(3), b"new").unwrap();
    write_back(&cache, 0..65);
    assert_eq!(store.writes(), (3..43).collect::<Vec<_>>());
    assert_eq!(store.byte(bytes(3)), b'n');
    assert_eq!(store.byte(bytes(42) + 1), content[42 * PAGE_SIZE + 1]);
    assert_eq!(write(62, 3), 2, "the last one has bytes behind the end");
    finish(rig, cache);
}

/// A full device refuses it, and so does a budget of dirty pages; then stores say why.
#[test]
fn pages_that_cannot_be_written_whole_are_left() {
    let (rig, store, cache, start) = scene(TestStore::new(bytes(64)));
    let content = vec![5; 32 * PAGE_SIZE];
    // SAFETY: bytes; the map stays.
    let write = || unsafe { fault::write_whole(&cache, start, &raw const content[..]) };
    store.unreserve(17);
    store.fail_reserve(Some(ENOSPC));
    let charged = rig.node.budget.charged();
    assert_eq!(write(), 16 * PAGE_SIZE, "up to the block that has it");
    assert_eq!(cache.dirty_pages(), 16);
    let refused = Err(FaultError::Io(ENOSPC));
    assert_eq!(rig.write(start + 17 * PAGE_SIZE, &[1]), refused);
    rig.evict_all();
    assert!(rig.node.budget.charged() <= charged + 16);
    finish(rig, cache);
}
