//! Whatever private memory has been charged for, its words and tables show: nothing is
//! paid for that nobody would ever give back.

use softfault_engine::PAGE_SIZE;
use softfault_engine::anon::pages::Pages;
use softfault_engine::budget::{Budget, FLOOR};
use softfault_engine::mm::{Attributes, Backing, Protection};
use softfault_engine::policy::Policies;
use softfault_oracle::{Rig, TestStore, TestSwap, private_copy};

/// Pages: more than a page of words has.
const PAGES: usize = 600;

/// Found by the oracle, in its list 2068, when a page of words ended within a block: a folio that was read ahead reached over the
/// end of a page of words, to words that were not in use, so nobody saw the pages there.
#[test]
fn prefetched_pages_are_found_where_words_begin() {
    let swap = TestSwap::new(PAGES);
    let rig = Rig::with_swap(16_384, Policies::default(), &swap);
    let store = TestStore::new((PAGES * PAGE_SIZE) as u64);
    let copy = private_copy(rig.node.clone(), PAGES * PAGE_SIZE, &store, 0);
    let start = 0x1234_5000_0000;
    let attributes = Attributes {
        backing: Backing::from(copy),
        protection: Protection::ReadWrite,
        ..Attributes::default()
    };
    let range = start..start + PAGES * PAGE_SIZE;
    rig.space.mmap(range.clone(), attributes).unwrap();
    for page in 0..PAGES {
        let offset = page * PAGE_SIZE;
        assert_eq!(rig.touch(start + offset), Ok(store.byte(offset as u64)));
        let (charged, known) = (rig.node.budget.charged(), rig.node.charged_pages());
        assert_eq!(charged, known, "after page {page}");
    }
    rig.unmap(range);
    rig.finish();
}

/// Failed before: each page of words that nobody had needed was read, which mapped it.
#[test]
fn words_that_nobody_needed_are_passed_over_without_a_touch() {
    // 256 GiB of memory, and 512 MiB of words.
    const MANY: usize = 1 << 26;
    let budget = Budget::new(FLOOR + 2);
    let words = Pages::new(MANY).unwrap();
    let before = page_faults();
    assert_eq!(words.next_used(0), MANY);
    for page in [MANY / 3, MANY - 1] {
        assert!(words.pay_for(page, &budget));
    }
    let first = words.next_used(0);
    assert!(first <= MANY / 3 && MANY / 3 - first < PAGES);
    assert_eq!(words.next_used(MANY / 3), MANY / 3);
    let last = words.next_used(MANY / 3 + PAGES);
    assert!(last < MANY && MANY - last < PAGES);
    assert_eq!(words.next_used(MANY - 1), MANY - 1);
    assert_eq!(words.next_used(MANY), MANY);
    assert!(words.is_unused(MANY / 2));
    let faults = page_faults() - before;
    assert!(faults < 100, "{faults} page faults");
    words.uncharge(&budget);
}

/// Those of the calling thread that needed no I/O.
fn page_faults() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    let (_, behind_name) = stat.rsplit_once(") ").unwrap();
    behind_name.split(' ').nth(7).unwrap().parse().unwrap()
}
