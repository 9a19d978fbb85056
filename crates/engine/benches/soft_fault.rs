//! The cost of a fault on anonymous memory in software, over the soft page
//! tables, in one thread: `write_at` of one byte to each page of a region that
//! was just mapped, then `munmap`. Frames are recycled, so that the kernel's own
//! faults are not in it.
//!
//! Prints the whole, and its parts each by itself: medians of many short times.
//! The parts overlap in the processor: their sum is more than the whole.
//!
//! `cargo bench -p softfault-engine --bench soft_fault`

use softfault_engine::PAGE_SIZE;
use softfault_engine::anon::Anonymous;
use softfault_engine::budget::Budget;
use softfault_engine::cache::window::Window;
use softfault_engine::cache::{Node, NodeOptions};
use softfault_engine::fault::{NeverInterrupted, read_at, write_at};
use softfault_engine::mm::{AddressSpace, Attributes, Backing, Protection, VmaSlabs};
use softfault_engine::mmu::soft::chain::Chain;
use softfault_engine::mmu::soft::cores::Cores;
use softfault_engine::mmu::soft::frames::Frames;
use softfault_engine::mmu::soft::tables::Tables;
use softfault_engine::mmu::soft::tlb::{Tlb, TlbKey, Transfer};
use softfault_engine::mmu::{Core, Reservation, SoftMmu};
use softfault_oracle::{Still, TestFrames};
use std::hint::black_box;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// Pages of the regions: 2 MiB, which stays in a cache, and 64 MiB, which does
/// not.
const REGIONS: [usize; 2] = [512, 16384];
/// Pages that are timed together: too few for the scheduler to come between.
const CHUNK: usize = 128;
/// Chunks that are timed of each thing, at least.
const SAMPLES: usize = 1500;
const START: usize = 1 << 32;
/// The limit of the whole, in nanoseconds.
const GOAL: f64 = 250.0;

/// A node, a space and the soft page tables, as an engine of its own has them.
struct Rig {
    space: AddressSpace,
    mmu: Arc<SoftMmu>,
    node: Arc<Node>,
}

impl Rig {
    fn new(pages: usize) -> Self {
        let mmu = Arc::new(SoftMmu::new());
        let budget = Budget::new(pages as u64);
        let frames = TestFrames::new(pages);
        let options = NodeOptions::default();
        let node = Node::new(budget, mmu.clone(), frames, Arc::new(Still), options);
        let space = AddressSpace::new(VmaSlabs::new(64), Arc::new(Still));
        Self {
            space: space.expect("room for a space"),
            mmu,
            node: node.expect("a budget that is large enough"),
        }
    }

    fn unmap(&self, range: Range<usize>) {
        self.space.munmap(range, |_, _| {}).expect("it is mapped");
    }
}

/// Nanoseconds a page, of many chunks.
#[derive(Default)]
struct Times(Vec<f64>);

impl Times {
    /// Calls `f` with each page of a region, and takes the time.
    fn of(&mut self, pages: usize, mut f: impl FnMut(usize)) {
        for chunk in (0..pages).step_by(CHUNK) {
            let begin = Instant::now();
            for page in chunk..chunk + CHUNK {
                f(page);
            }
            self.0
                .push(begin.elapsed().as_nanos() as f64 / CHUNK as f64);
        }
    }

    /// Takes the time of something that is done to a region at once.
    fn of_all(&mut self, pages: usize, f: impl FnOnce()) {
        let begin = Instant::now();
        f();
        self.0
            .push(begin.elapsed().as_nanos() as f64 / pages as f64);
    }

    fn median(&self) -> f64 {
        let mut all = self.0.clone();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    }
}

fn addr(page: usize) -> usize {
    START + page * PAGE_SIZE
}

fn line(name: &str, times: &Times) {
    println!("  {name:<56} {:>7.1} ns", times.median());
}

/// Rounds that make enough samples.
fn rounds(pages: usize, mut round: impl FnMut()) {
    for _ in 0..SAMPLES.div_ceil(pages / CHUNK) {
        round();
    }
}

/// A region in a space, mapped anew.
fn map(rig: &Rig, pages: usize) -> Range<usize> {
    let anon = Anonymous::new(rig.node.clone(), pages * PAGE_SIZE).expect("a window");
    let range = START..START + pages * PAGE_SIZE;
    let attributes = Attributes {
        backing: Backing::from(anon),
        protection: Protection::ReadWrite,
        ..Attributes::default()
    };
    rig.space.mmap(range.clone(), attributes).expect("room");
    range
}

fn write(rig: &Rig, core: &mut Core, page: usize) {
    let written = write_at(core, &rig.space, addr(page), &[1], &NeverInterrupted);
    written.expect("memory enough");
}

fn read(rig: &Rig, core: &mut Core, page: usize) {
    let mut byte = [0];
    let read = read_at(core, &rig.space, addr(page), &mut byte, &NeverInterrupted);
    read.expect("it is there");
}

fn main() {
    // As the test runner calls it: nothing to measure.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    for pages in REGIONS {
        region(pages);
    }
}

fn region(pages: usize) {
    let rig = Rig::new(2 * pages + 8192);
    let mut core = rig.mmu.core().expect("a core");
    let (mut faults, mut zaps) = (Times::default(), Times::default());
    let mut first = Times::default();
    let range = map(&rig, pages);
    first.of_all(pages, || {
        (0..pages).for_each(|page| write(&rig, &mut core, page))
    });
    rig.unmap(range);
    rounds(pages, || {
        let range = map(&rig, pages);
        faults.of(pages, |page| write(&rig, &mut core, page));
        zaps.of_all(pages, || rig.unmap(range));
    });
    let mib = (pages * PAGE_SIZE) >> 20;
    println!("anonymous memory, {mib} MiB, one thread; by the page, medians");
    line("fault: write_at of a byte to each page", &faults);
    line(
        "the same in frames that the kernel has yet to provide",
        &first,
    );
    line("zap: munmap", &zaps);
    println!(" of which");
    parts(&rig, &mut core, pages);
    frames(pages);
    tables(pages);
    let whole = faults.median();
    let verdict = if whole <= GOAL { "within" } else { "above" };
    println!("{whole:.0} ns a fault: {verdict} the goal of {GOAL:.0} ns\n");
}

fn parts(rig: &Rig, core: &mut Core, pages: usize) {
    let range = map(rig, pages);
    (0..pages).for_each(|page| write(rig, core, page));
    let (mut locks, mut misses) = (Times::default(), Times::default());
    rounds(pages, || {
        locks.of(pages, |page| {
            let vma = rig.space.lock_vma(addr(page)).expect("mapped");
            drop(black_box(vma));
        });
        // More pages than the buffer has entries: each is a miss.
        misses.of(pages, |page| read(rig, core, page));
    });
    line("lock_vma and vma_end_read", &locks);
    line("access to a page that is present, past the buffer", &misses);
    rig.unmap(range);
    let mut charges = Times::default();
    rounds(pages, || charge(pages, &mut charges));
    line("charging page and table", &charges);
}

/// The charges of the fault; and the zap's repayment.
fn charge(pages: usize, charges: &mut Times) {
    let budget = Budget::new(2 * pages as u64);
    let reservation = Reservation {
        addr: START,
        bytes: pages * PAGE_SIZE,
        token: 0,
    };
    let window = Window::new(reservation).expect("room for its words");
    charges.of(pages, |page| {
        assert!(budget.try_charge(1, 0));
        black_box(window.enter(addr(page), 1, &budget, 0));
    });
    for page in 0..pages {
        if let Some(table) = window.leave(addr(page), 1) {
            window.zapped(&table, &budget);
        }
    }
}

fn frames(pages: usize) {
    let frames = Frames::new(2 * pages * PAGE_SIZE, 16).expect("address space");
    let (mut taken, mut cleared) = (Times::default(), Times::default());
    let mut freed = Times::default();
    let mut mine = vec![0; pages];
    rounds(pages, || {
        taken.of(pages, |page| {
            mine[page] = frames.alloc_one().expect("enough")
        });
        cleared.of(pages, |page| {
            // SAFETY: just taken, and nobody else has it.
            unsafe { frames.clear(mine[page]) };
        });
        freed.of_all(pages, || {
            let mut chain = Chain::default();
            mine.iter().for_each(|&frame| chain.push(&frames, frame));
            frames.free(chain);
        });
    });
    line("taking a frame", &taken);
    line("clearing the page", &cleared);
    line("giving a frame back, many at a time", &freed);
}

fn tables(pages: usize) {
    let frames = Frames::new(2 * pages * PAGE_SIZE, 16).expect("address space");
    let tables = Tables::<512>::new(frames, Cores::new(4)).expect("a root");
    let mut handle = tables.cores().add_core().expect("a core");
    let mut tlb = Tlb::default();
    let range = START..START + pages * PAGE_SIZE;
    let (mut entered, mut walked) = (Times::default(), Times::default());
    let (mut hit, mut zapped) = (Times::default(), Times::default());
    let mut byte = [0];
    rounds(pages, || {
        entered.of(pages, |page| {
            tables.hole(addr(page)..addr(page + 1)).expect("enough");
        });
        walked.of(pages, |page| {
            let (addr, space) = (addr(page), 1);
            let load = Transfer::Load(&mut byte);
            let place = TlbKey { space, addr };
            assert!(tables.miss(&mut handle, &mut tlb, place, addr, false, load));
        });
        let (addr, space) = (addr(pages - 1), 1);
        hit.of(pages, |_| {
            let load = Transfer::Load(&mut byte);
            assert!(tables.hit(&mut handle, &tlb, TlbKey { space, addr }, load));
        });
        zapped.of_all(pages, || tables.zap(core::slice::from_ref(&range)));
    });
    line("entering the page, under the leaf's lock", &entered);
    line("access: walk of the tables, buffer filled", &walked);
    line("access by the buffer", &hit);
    line("taking the page out", &zapped);
    tables.cores().remove_core(handle);
}
