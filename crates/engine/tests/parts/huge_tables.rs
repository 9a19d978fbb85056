//! The page tables of a thousand spaces that map one file of 250 GiB.

use softfault_engine::PAGE_SIZE;
use softfault_engine::fault::{self, FaultFlags, NeverInterrupted, Outcome};
use softfault_engine::huge::{HugeFile, HugeMapping, HugePool, HugeSize, Reserve};
use softfault_engine::mm::{AddressSpace, Attributes, Backing, Protection, VmaSlabs};
use softfault_engine::mmu::SoftMmu;
use softfault_engine::policy::ShareSync;
use softfault_oracle::Ticks;
use std::sync::Arc;

const HUGE: usize = 2 << 20;
const PAGES: u64 = (250 << 30) / HUGE as u64;
/// Pages of a leaf.
const LEAF: u64 = 512;
const SPACES: usize = 1000;
const START: usize = 0x4000_0000_0000;

fn fault_in(space: &AddressSpace, index: u64) {
    let addr = START + index as usize * HUGE;
    let outcome = fault::handle(space, addr, FaultFlags::default(), &NeverInterrupted);
    assert!(
        matches!(outcome, Outcome::Mapped),
        "page {index}: {outcome:?}"
    );
}

fn map(space: &AddressSpace, file: &Arc<HugeFile>) -> Arc<HugeMapping> {
    let mapping = HugeMapping::new(file, 0..PAGES, Reserve::Yes).unwrap();
    let attributes = Attributes {
        backing: Backing::from(mapping.clone()),
        protection: Protection::ReadWrite,
        ..Attributes::default()
    };
    let bytes = PAGES as usize * HUGE;
    space.mmap(START..START + bytes, attributes).unwrap();
    mapping
}

#[test]
fn a_thousand_spaces_pay_for_one_set_of_leaf_tables() {
    let mmu = SoftMmu::with_huge_memory(1 << 20, PAGES as usize * HUGE);
    let mmu = Arc::new(mmu.expect("address space"));
    let clock = Arc::new(Ticks::default());
    let sync = ShareSync::VmaLock;
    let pool = HugePool::new(mmu, clock.clone(), HugeSize::TwoMiB, PAGES as u32, sync).unwrap();
    let file = HugeFile::new(&pool, PAGES).unwrap();
    let slabs = VmaSlabs::new(1 << 12);
    let space = || AddressSpace::new(slabs.clone(), clock.clone()).unwrap();

    let first = space();
    let mapping = map(&first, &file);
    let upper = pool.table_bytes();
    (0..PAGES).for_each(|index| fault_in(&first, index));
    let leaves = pool.table_bytes() - upper;

    let others: Vec<_> = (1..SPACES).map(|_| space()).collect();
    let mappings: Vec<_> = others.iter().map(|space| map(space, &file)).collect();
    for space in &others {
        // One fault of a span, and all of it is there.
        (0..PAGES.div_ceil(LEAF)).for_each(|span| fault_in(space, span * LEAF));
    }
    let spans = PAGES.div_ceil(LEAF) as usize;
    assert_eq!(
        pool.stats().faults as usize,
        PAGES as usize + (SPACES - 1) * spans
    );
    let last = mappings.last().expect("there are others");
    assert_eq!(last.mapped_pages(), PAGES);
    assert!(last.is_mapped((PAGES - 1) * (HUGE / PAGE_SIZE) as u64));
    assert_eq!(file.sharers(17) as usize, SPACES);

    let tables = pool.table_bytes();
    let spaces = (slabs.bytes() + SPACES * size_of::<AddressSpace>()) as u64;
    let allowed = leaves + leaves / 20 + SPACES as u64 * (64 << 10);
    println!(
        "{SPACES} spaces, {PAGES} pages: leaf tables {leaves} bytes, all tables {tables}, VMAs, trees and spaces {spaces}; \
         {} a space besides the leaves; {} of {allowed} allowed",
        (tables + spaces - leaves) / SPACES as u64,
        tables + spaces,
    );
    // With tables of its own each space would have as much as the leaves again.
    assert!(tables + spaces <= allowed && allowed < SPACES as u64 * leaves / 5);

    drop(mapping);
    first.exit(|_, _| {});
    drop(mappings);
    others.iter().for_each(|space| space.exit(|_, _| {}));
    assert_eq!(file.sharers(17), 0);
    // The leaves are the file's.
    assert_eq!(pool.table_bytes(), leaves);
    drop(file);
    assert_eq!(pool.table_bytes(), 0);
}
