//! The hand of reclaim that goes over private memory: it finds what can go, however much there is before it that cannot.

use softfault_engine::PAGE_SIZE;
use softfault_engine::anon::Anonymous;
use softfault_engine::fault::{self, NeverInterrupted, Populated};
use softfault_engine::mmu::TABLE_SPAN;
use softfault_engine::policy::Policies;
use softfault_oracle::{Rig, TestSwap};
use std::sync::Arc;

/// More windows than a batch may have pages of.
const HOT: usize = 24;
/// Pages of the memory that can go.
const COLD: usize = 64;

fn mapped(rig: &Rig, bytes: usize) -> Arc<Anonymous> {
    let anon = Anonymous::new(rig.node.clone(), bytes).unwrap();
    rig.map_anonymous(&anon);
    anon
}

fn write(rig: &Rig, anon: &Anonymous, offset: usize) {
    rig.write(anon.addresses().start + offset, &[1]).unwrap();
}

fn written(rig: &Rig, pages: usize) -> Arc<Anonymous> {
    let anon = mapped(rig, pages * PAGE_SIZE);
    (0..pages).for_each(|page| write(rig, &anon, page * PAGE_SIZE));
    anon
}

fn finish(rig: Rig, all: Vec<Arc<Anonymous>>) {
    for anon in all {
        rig.unmap(anon.addresses());
    }
    rig.finish();
}

/// Failed before: each window with a resident took one of the 16 places of a batch, and the 17th ended the search with nothing found.
#[test]
fn windows_of_hot_pages_take_no_place_in_a_batch() {
    let swap = TestSwap::new(4096);
    let rig = Rig::with_swap(4096, Policies::default(), &swap);
    let mut all: Vec<_> = (0..HOT).map(|_| written(&rig, 1)).collect();
    for hot in &all {
        // It comes back at once, so that the hand passes it some times.
        rig.space.page_out(hot.addresses()).unwrap();
        rig.touch(hot.addresses().start).unwrap();
    }
    all.push(written(&rig, COLD));
    assert!(rig.node.reclaim(1) > 0);
    assert!(all[HOT].resident_pages() < COLD);
    assert!(all[..HOT].iter().all(|hot| hot.resident_pages() == 1));
    finish(rig, all);
}

/// More windows than a batch has places for go, a batch at a time, and the hand misses none of them.
#[test]
fn pages_of_many_windows_all_go() {
    const MANY: usize = 100;
    let swap = TestSwap::new(4096);
    let rig = Rig::with_swap(4096, Policies::default(), &swap);
    let all: Vec<_> = (0..MANY).map(|_| written(&rig, 1)).collect();
    while all.iter().any(|anon| anon.resident_pages() > 0) {
        assert!(rig.node.reclaim(1) > 0);
    }
    finish(rig, all);
}

/// Failed before: after 4,096 spans of page tables without a page the search ended with nothing found.
#[test]
fn spans_without_pages_end_no_search() {
    const SPANS: usize = 4200;
    let swap = TestSwap::new(1 << 14);
    let rig = Rig::with_swap(1 << 14, Policies::default(), &swap);
    let swapped = mapped(&rig, SPANS * TABLE_SPAN);
    for span in 0..SPANS {
        write(&rig, &swapped, span * TABLE_SPAN);
    }
    rig.space.page_out(swapped.addresses()).unwrap();
    assert_eq!(swapped.resident_pages(), 0);
    let all = vec![swapped, written(&rig, COLD)];
    assert!(rig.node.reclaim(1) > 0);
    assert!(all[1].resident_pages() < COLD);
    finish(rig, all);
}

/// Where nothing can go the search ends.
#[test]
fn a_search_ends_where_nothing_can_go() {
    let swap = TestSwap::new(4096);
    let rig = Rig::with_swap(4096, Policies::default(), &swap);
    let all: Vec<_> = (0..HOT).map(|_| written(&rig, 1)).collect();
    for kept in &all {
        let locked = fault::lock(&rig.space, kept.addresses(), false, &NeverInterrupted);
        assert_eq!(locked, Populated::Done);
    }
    assert_eq!(rig.node.reclaim(1), 0);
    assert!(all.iter().all(|anon| anon.resident_pages() == 1));
    finish(rig, all);
}

/// Failed before: zeros are charged nothing, so that reclaim took private memory of nothing else for none, and their page tables filled
/// the budget.
#[test]
fn page_tables_of_zeros_are_given_back() {
    const SPANS: usize = 2500;
    let swap = TestSwap::new(16);
    let rig = Rig::with_swap(4096, Policies::default(), &swap);
    let zeros = mapped(&rig, SPANS * TABLE_SPAN);
    for span in 0..SPANS {
        let addr = zeros.addresses().start + span * TABLE_SPAN;
        assert_eq!(rig.touch(addr), Ok(0), "span {span}");
    }
    assert!(rig.node.reclaim(1) > 0);
    finish(rig, vec![zeros]);
}
