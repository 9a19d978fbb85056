//! Whatever private memory has been charged for, its words and tables show: nothing is
//! paid for that nobody would ever give back.

use softfault_engine::PAGE_SIZE;
use softfault_engine::mm::{Attributes, Backing, Protection};
use softfault_engine::policy::Policies;
use softfault_oracle::{Rig, TestStore, TestSwap, private_copy};

/// Pages: more than a page of words has.
const PAGES: usize = 600;

/// Found by the oracle, in its list 2068: a folio that was read ahead reached over the
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
