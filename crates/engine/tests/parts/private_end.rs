//! Private memory over a file that ends within a folio that is being read.

use softfault_engine::PAGE_SIZE;
use softfault_engine::mm::Advice;
use softfault_engine::policy::Policies;
use softfault_oracle::{Finally, Rig, TestStore, TestSwap, private_copy};
use std::thread;

/// Failed before: the read was taken for a short one of the first page, which was in swap by then, and the touch failed.
#[test]
fn a_file_that_ends_in_a_folio_is_no_failure_of_swap() {
    const PAGES: usize = 6;
    let swap = TestSwap::new(8);
    let rig = Rig::with_swap(2048, Policies::default(), &swap);
    let store = TestStore::new((PAGES * PAGE_SIZE - 100) as u64);
    let anon = private_copy(rig.node.clone(), PAGES * PAGE_SIZE, &store, 0);
    rig.map_anonymous(&anon);
    let advised = rig.space.madvise(anon.addresses(), Advice::Sequential);
    advised.unwrap();
    let page = |number: usize| anon.addresses().start + number * PAGE_SIZE;
    store.close();
    thread::scope(|scope| {
        let _ends = Finally(|| store.open());
        let touch = scope.spawn(|| rig.touch(page(0)));
        store.wait_blocked(1);
        assert_eq!(store.reads().first(), Some(&(0..PAGES as u64)), "one folio");
        // Meanwhile its first page is dropped, written as one of zeros, and evicted.
        store.punch(0..1);
        rig.space.dont_need(page(0)..page(1)).unwrap();
        rig.write(page(0), &[7]).unwrap();
        rig.space.page_out(page(0)..page(1)).unwrap();
        assert_eq!(swap.written(), 1);
        store.open();
        assert_eq!(touch.join().unwrap(), Ok(7));
    });
    assert_eq!(rig.touch(page(0)), Ok(7));
    rig.unmap(anon.addresses());
    drop(anon);
    rig.finish();
}
