//! Pages of private memory that two callers keep at the same time.

use softfault_engine::PAGE_SIZE;
use softfault_engine::fault::{self, FaultFlags, Interrupt, NeverInterrupted};
use softfault_engine::fault::{Outcome, Populated, StartedFault};
use softfault_engine::mm::Advice;
use softfault_engine::policy::Policies;
use softfault_engine::store::Store;
use softfault_oracle::{Rig, TestStore, TestSwap, private_copy};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::{self, yield_now};

/// A signal that arrives while a page is waited for, as late as the test likes.
#[derive(Default)]
struct Signal {
    is_waited: AtomicBool,
    arrives: AtomicBool,
}

impl Interrupt for Signal {
    fn pending(&self) -> bool {
        self.is_waited.store(true, SeqCst);
        while !self.arrives.load(SeqCst) {
            yield_now();
        }
        true
    }
}

/// Failed before: the caller that was interrupted let the page go that another one kept by then.
#[test]
fn a_caller_that_is_interrupted_lets_no_page_go_that_another_keeps() {
    let swap = TestSwap::new(8);
    let rig = Rig::with_swap(2048, Policies::default(), &swap);
    let store = TestStore::new((64 * PAGE_SIZE) as u64);
    let anon = private_copy(rig.node.clone(), 64 * PAGE_SIZE, &store, 0);
    rig.map_anonymous(&anon);
    rig.space.madvise(anon.addresses(), Advice::Random).unwrap();
    let page = |number: usize| -> Range<usize> {
        let start = anon.addresses().start + number * PAGE_SIZE;
        start..start + PAGE_SIZE
    };
    let (kept, other) = (page(0), page(32));
    rig.touch(kept.start).unwrap();
    rig.write(other.start, &[1]).unwrap();
    swap.close();
    let signal = Arc::new(Signal::default());
    thread::scope(|scope| {
        // The first caller waits for this eviction when its page is there, and not kept yet.
        scope.spawn(|| rig.space.page_out(other.clone()).unwrap());
        swap.wait_blocked(1);
        let first = scope.spawn(|| fault::lock(&rig.space, kept.clone(), false, &*signal));
        while rig.node.pinned_pages() == 0 {
            yield_now();
        }
        // Meanwhile the page goes, and somebody begins to read it again.
        rig.space.page_out(kept.clone()).unwrap();
        assert!(!anon.is_resident(kept.start));
        let begun = fault::begin(&rig.space, kept.start, FaultFlags::default());
        let StartedFault::Read(read) = begun else {
            panic!("nobody reads it");
        };
        swap.open();
        while !signal.is_waited.load(SeqCst) {
            yield_now();
        }
        let asked = read.request(0);
        // SAFETY: the buffer is the read's until it has arrived.
        let result = unsafe { store.read(asked.offset, asked.buffer, asked.bytes) };
        let arrived = read.arrived(result);
        assert!(matches!(arrived, StartedFault::Over(Outcome::Mapped)));
        let second = fault::lock(&rig.space, kept.clone(), false, &NeverInterrupted);
        assert_eq!(second, Populated::Done);
        signal.arrives.store(true, SeqCst);
        assert_eq!(first.join().unwrap(), Populated::Interrupted(kept.start));
    });
    assert_eq!(anon.count_pages(kept.clone(), |state| state.stays()), 1);
    assert_eq!(rig.node.pinned_pages(), 1);
    fault::unlock(&rig.space, kept);
    assert_eq!(rig.node.pinned_pages(), 0);
    rig.unmap(anon.addresses());
    drop(anon);
    rig.finish();
}
