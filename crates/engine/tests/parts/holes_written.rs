//! Holes of a file that is written to in order: the calls to the store for them are counted.

use crate::writable::{bytes, finish, write_back};
use softfault_engine::PAGE_SIZE;
use softfault_oracle::{Rig, TestStore};

/// A look for a hole is a system call at each fault, and the answer is read in both cases.
#[test]
fn nobody_asks_for_holes_of_a_file_that_is_written_to() {
    let rig = Rig::new(2048);
    let store = TestStore::with_queue(bytes(256), 4);
    store.punch(16..200);
    let cache = rig.map_writable(&store);
    let start = cache.addresses().start;
    for page in 0..256 {
        let addr = start + page * PAGE_SIZE;
        if (16..200).contains(&page) {
            assert_eq!(rig.touch(addr), Ok(0), "page {page}");
        }
        rig.write(addr, &[1]).unwrap();
    }
    write_back(&cache, 0..256);
    assert_eq!((store.extents(), store.writes().len()), (0, 256));
    finish(rig, cache);
}

/// Where the first page of a block gets its place on the device at its write, the rest of the block is mapped to be written to with
/// it.
#[test]
fn a_place_is_asked_for_before_the_page_is_mapped() {
    let rig = Rig::new(2048);
    let store = TestStore::with_queue(bytes(256), 4);
    let cache = rig.map_writable(&store);
    let start = cache.addresses().start;
    (0..128).step_by(16).for_each(|page| store.unreserve(page));
    let mut expected = 0;
    for page in 0..128 {
        // In order: what is dirty beyond the pages before was mapped with one of them, and is no fault.
        expected += u64::from(cache.dirty_pages() > page);
        rig.write(start + page as usize * PAGE_SIZE, &[1]).unwrap();
    }
    assert!(expected >= 96, "{expected} of 128 pages");
    write_back(&cache, 0..256);
    assert_eq!(store.writes().len(), 128);
    finish(rig, cache);
}
