//! What VMAs pay for who may look at them when they are gone: `reuse=typesafe`, where a
//! slot is free at once, and `reuse=rcu`, where it waits for a grace period. A lookup
//! (`lock_vma` and `vma_end_read`), by one thread and by two; and a mapping that comes and
//! goes, alone and beside a thread that looks another one up all the time.
//!
//! `cargo bench -p softfault-engine --bench vma_reuse`. The two take turns, so that a noisy
//! moment of the machine falls on both; each figure is the median of the samples. Without
//! `--bench` it takes one short sample of each, to see that it works.

mod vma;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use softfault_engine::PAGE_SIZE;
use softfault_engine::mm::{AddressSpace, VmaSlabs, VmaSlots};
use softfault_engine::policy::{SpaceLocks, VmaReuse};
use softfault_oracle::Still;
use sync::Arc;
use vma::{address, map, median};

const BOTH: [VmaReuse; 2] = [VmaReuse::TypeSafe, VmaReuse::Rcu];

/// A space of a few VMAs.
fn space(slabs: &Arc<VmaSlabs>, reuse: VmaReuse) -> AddressSpace {
    let locks = SpaceLocks {
        reuse,
        ..SpaceLocks::default()
    };
    let space = AddressSpace::with_lock(slabs.clone(), Arc::new(Still), locks).unwrap();
    (0..4).for_each(|vma| map(&space, vma));
    space
}

fn look(space: &AddressSpace, vma: usize) {
    let address = std::hint::black_box(address(vma));
    drop(std::hint::black_box(space.lock_vma(address)));
}

/// Nanoseconds of a lookup, where this many threads look up a VMA each.
fn lookups(reuse: VmaReuse, threads: usize, rounds: u32) -> (f64, VmaSlots) {
    let slabs = VmaSlabs::new(1 << 16);
    let space = space(&slabs, reuse);
    let taken: f64 = std::thread::scope(|scope| {
        let thread = |vma| {
            let space = &space;
            scope.spawn(move || {
                let begin = Instant::now();
                (0..rounds).for_each(|_| look(space, vma));
                begin.elapsed().as_nanos() as f64
            })
        };
        let threads: Vec<_> = (0..threads).map(thread).collect();
        threads.into_iter().map(|t| t.join().unwrap()).sum()
    });
    space.exit(|_, _| {});
    let ns = taken / threads as f64 / f64::from(rounds);
    (ns, slabs.vma_slots())
}

/// Nanoseconds of an `mmap` and a `munmap`; whether another thread looks up meanwhile.
fn mappings(reuse: VmaReuse, looks: bool, rounds: u32) -> (f64, VmaSlots) {
    let slabs = VmaSlabs::new(1 << 16);
    let space = space(&slabs, reuse);
    let over = AtomicBool::new(false);
    let taken = std::thread::scope(|scope| {
        if looks {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    look(&space, 0);
                }
            });
        }
        let begin = Instant::now();
        for _ in 0..rounds {
            map(&space, 9);
            let range = address(9)..address(9) + 8 * PAGE_SIZE;
            space.munmap(range, |_, _| {}).unwrap();
        }
        over.store(true, Ordering::Relaxed);
        begin.elapsed().as_nanos() as f64
    });
    space.exit(|_, _| {});
    (taken / f64::from(rounds), slabs.vma_slots())
}

/// The measurement: nanoseconds, and the counts of the slots.
type Case = (&'static str, fn(VmaReuse, u32) -> (f64, VmaSlots));

const CASES: [Case; 4] = [
    ("a lookup, one thread", |reuse, rounds| {
        lookups(reuse, 1, rounds)
    }),
    ("a lookup, two threads, a VMA each", |reuse, rounds| {
        lookups(reuse, 2, rounds)
    }),
    ("mmap and munmap", |reuse, rounds| {
        mappings(reuse, false, rounds / 4)
    }),
    ("the same beside lookups", |reuse, rounds| {
        mappings(reuse, true, rounds / 4)
    }),
];

fn main() {
    let real = std::env::args().any(|argument| argument == "--bench");
    let (samples, rounds) = if real { (15, 1_000_000) } else { (1, 1_000) };
    println!("ns, median of {samples}; slots made, most of them that waited");
    println!("{:34}  {:>22}  {:>22}", "", "typesafe", "rcu");
    for (name, case) in CASES {
        let mut taken = BOTH.map(|_| Vec::new());
        let mut slots = BOTH.map(|_| VmaSlots::default());
        for _ in 0..samples {
            for (at, reuse) in BOTH.into_iter().enumerate() {
                let (ns, after) = case(reuse, rounds);
                taken[at].push(ns);
                slots[at].made = slots[at].made.max(after.made);
                slots[at].waiting = slots[at].waiting.max(after.waiting);
            }
        }
        let cell = |(taken, slots): (Vec<f64>, VmaSlots)| {
            format!("{:.1}; {}, {}", median(taken), slots.made, slots.waiting)
        };
        let [typesafe, rcu] = [0, 1].map(|at| cell((taken[at].clone(), slots[at])));
        println!("{name:34}  {typesafe:>22}  {rcu:>22}");
    }
    let (vma, lock, link) = (VmaSlots::VMA, VmaSlots::VMA_LOCK, VmaSlots::LINK);
    println!(
        "a VMA: {vma} bytes and {link} for its place in the slab; lock=rwsem: {lock} and {link} more"
    );
}
