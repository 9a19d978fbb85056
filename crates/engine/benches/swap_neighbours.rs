//! The pages that are read ahead with a page that comes back from swap: its neighbours by slot, as
//! Linux's `swap_cluster_readahead` has it, or by address, as its `swap_vma_readahead`?
//!
//! `cargo bench -p softfault-engine --bench swap_neighbours`. Memory four times as large
//! as the budget is written and read in some order, with read-ahead off. At each swap-in
//! both aligned blocks of eight are looked at: those of its pages that are in swap too
//! would have been read. A page that is touched while as many pages are touched as there is room
//! for would have been a hit. Counts only: nothing depends on the machine's speed.

use softfault_engine::PAGE_SIZE;
use softfault_engine::anon::Anonymous;
use softfault_engine::mm::{Advice, Attributes, Backing, Protection};
use softfault_engine::policy::Policies;
use softfault_oracle::{Random, Rig, TestSwap};
use std::collections::HashMap;

/// The least budget, in pages.
const BUDGET: usize = 2048;
const PAGES: usize = 4 * BUDGET;
/// Linux's `page-cluster`: 2^3.
const BLOCK: usize = 8;
const START: usize = 0x1234_5000_0000;

/// Pages in the order in which they are touched.
fn order(name: &str, count: usize) -> Vec<usize> {
    let mut random = Random::new(7);
    let mut below = |most: usize| random.below(most);
    let mut pages = Vec::new();
    while pages.len() < count {
        match name {
            "scan" => pages.push(pages.len() % PAGES),
            "backwards" => pages.push(PAGES - 1 - pages.len() % PAGES),
            "stride 7" => pages.push(pages.len() * 7 % PAGES),
            "two scans" => {
                let step = pages.len() / 2;
                pages.push((step + pages.len() % 2 * PAGES / 2) % PAGES);
            }
            "runs of 16" => {
                let first = below(PAGES - 16);
                pages.extend(first..first + 16);
            }
            "hot eighth" => {
                let first = if below(8) > 0 { PAGES / 8 } else { PAGES };
                pages.push(below(first));
            }
            // The same pages in the same order, which is not that of addresses.
            "list" => pages.push((pages.len() % PAGES).wrapping_mul(4099) % PAGES),
            _ => pages.push(below(PAGES)),
        }
    }
    pages
}

/// The pages that one of the two would have read, and the useful part of them.
#[derive(Default)]
struct Kind {
    /// Pages that would be there, until so many have been touched.
    ahead: HashMap<usize, usize>,
    read: usize,
    hits: usize,
    /// Swap-ins that would not have been.
    saved: usize,
}

impl Kind {
    fn touched(&mut self, page: usize, now: usize, is_swapped: bool) {
        if self.ahead.remove(&page).is_some_and(|until| now <= until) {
            self.hits += 1;
            self.saved += usize::from(is_swapped);
        }
    }

    fn read(&mut self, pages: impl Iterator<Item = usize>, now: usize) {
        for page in pages {
            // Present pages are not read again.
            let known = self.ahead.insert(page, now + BUDGET);
            self.read += usize::from(known.is_none_or(|until| now > until));
        }
    }
}

fn measure(name: &str, count: usize) {
    let swap = TestSwap::new(2 * PAGES);
    let rig = Rig::with_swap(BUDGET as u64, Policies::default(), &swap);
    let anon = Anonymous::new(rig.node.clone(), PAGES * PAGE_SIZE).unwrap();
    let attributes = Attributes {
        backing: Backing::from(anon.clone()),
        protection: Protection::ReadWrite,
        advice: Advice::Random,
        ..Attributes::default()
    };
    let range = START..START + PAGES * PAGE_SIZE;
    rig.space.mmap(range.clone(), attributes).unwrap();
    let at = |page: usize| anon.addresses().start + page * PAGE_SIZE;
    let is_swapped = |page: usize| anon.page_state(at(page)).is_swapped();
    // All of it once, so that all of it has been somewhere.
    for page in 0..PAGES {
        rig.write(START + page * PAGE_SIZE, &[1]).unwrap();
    }
    let (mut by_slot, mut by_address) = (Kind::default(), Kind::default());
    let mut swap_ins = 0;
    for (now, page) in order(name, count).into_iter().enumerate() {
        let swapped = is_swapped(page);
        by_slot.touched(page, now, swapped);
        by_address.touched(page, now, swapped);
        if swapped {
            swap_ins += 1;
            let owners: HashMap<u32, usize> = (0..PAGES)
                .filter(|&page| is_swapped(page))
                .filter_map(|page| Some((anon.slot(at(page))?, page)))
                .collect();
            let slot = anon.slot(at(page)).expect("it is swapped");
            let first = slot - slot % BLOCK as u32;
            let slots = (first..first + BLOCK as u32).filter(|&other| other != slot);
            by_slot.read(slots.filter_map(|slot| owners.get(&slot).copied()), now);
            let first = page - page % BLOCK;
            let pages = (first..first + BLOCK).filter(|&other| other != page);
            by_address.read(pages.filter(|&page| is_swapped(page)), now);
        }
        let addr = START + page * PAGE_SIZE;
        match now % 2 {
            0 => rig.write(addr, &[now as u8]).unwrap(),
            _ => {
                rig.touch(addr).unwrap();
            }
        }
    }
    let percent = |part: usize, of: usize| 100.0 * part as f64 / of.max(1) as f64;
    println!(
        "{name:11} {swap_ins:6} swap-ins; read ahead and used: by slot {:5.1} %, by address {:5.1} %; \
         swap-ins saved: by slot {:5.1} %, by address {:5.1} %",
        percent(by_slot.hits, by_slot.read),
        percent(by_address.hits, by_address.read),
        percent(by_slot.saved, swap_ins),
        percent(by_address.saved, swap_ins),
    );
    rig.unmap(range);
    drop(anon);
    rig.finish();
}

fn main() {
    let count = match std::env::args().any(|argument| argument == "--bench") {
        true => 4 * PAGES,
        false => 64,
    };
    let names = [
        "scan",
        "backwards",
        "stride 7",
        "two scans",
        "runs of 16",
        "list",
        "hot eighth",
        "uniform",
    ];
    names.iter().for_each(|name| measure(name, count));
}
