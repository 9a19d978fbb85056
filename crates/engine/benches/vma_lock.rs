//! The cost of a fault's VMA: `lock_vma` and `vma_end_read`, with each kind of
//! lock, by one thread and by two, which have a VMA each or share one. And what a
//! writer pays: `mmap_lock`, `find`, `vma_start_write`, and the end of both.
//!
//! `cargo bench -p softfault-engine --bench vma_lock`. The kinds take turns, so
//! that a noisy moment of the machine falls on both; each figure is the median
//! of the samples. Without `--bench` it takes one short sample of each, to see
//! that it works.

mod vma;

use std::sync::Barrier;
use std::time::{Duration, Instant};

use softfault_engine::mm::{AddressSpace, VmaSlabs};
use softfault_engine::policy::VmaLockKind;
use softfault_oracle::Still;
use sync::Arc;
use vma::{address, map, median};

const KINDS: [VmaLockKind; 3] = [
    VmaLockKind::Refcount,
    VmaLockKind::Rwsem,
    VmaLockKind::Biased,
];

/// A space of two VMAs.
fn space(kind: VmaLockKind) -> AddressSpace {
    let space = AddressSpace::with_lock(VmaSlabs::new(16), Arc::new(Still), kind).unwrap();
    (0..2).for_each(|vma| map(&space, vma));
    space
}

/// Nanoseconds that `lock_vma` and the end of the read take a thread on
/// average, where thread `t` locks the VMA `vmas[t]`.
fn sample(kind: VmaLockKind, vmas: &[usize], rounds: u32) -> f64 {
    let space = space(kind);
    let start = Barrier::new(vmas.len());
    let total: f64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (vmas.iter())
            .map(|&vma| {
                let (space, start) = (&space, &start);
                scope.spawn(move || {
                    let address = std::hint::black_box(address(vma));
                    start.wait();
                    let begin = Instant::now();
                    for _ in 0..rounds {
                        let read = space.lock_vma(address).expect("it is mapped");
                        drop(std::hint::black_box(read));
                    }
                    begin.elapsed().as_nanos() as f64
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).sum()
    });
    space.exit(|_, _| {});
    total / vmas.len() as f64 / f64::from(rounds)
}

/// Nanoseconds that a writer takes on average; before each time `biases` says
/// whether the VMA is biased, which does not count.
fn write_sample(kind: VmaLockKind, biases: bool, rounds: u32) -> f64 {
    let space = space(kind);
    let mut total = Duration::ZERO;
    for _ in 0..rounds {
        let read = space.lock_vma(address(0)).expect("it is mapped");
        if biases {
            read.bias(space.mmap_lock());
        }
        drop(read);
        // In a word, if it can be: its line is used then.
        drop(space.lock_vma(address(0)));
        let begin = Instant::now();
        let mmap = space.mmap_lock().write();
        let vma = space.find(&mmap, address(0)).expect("it is mapped");
        vma.start_write(&mmap);
        drop(mmap);
        total += begin.elapsed();
    }
    space.exit(|_, _| {});
    total.as_nanos() as f64 / f64::from(rounds)
}

fn main() {
    let real = std::env::args().any(|argument| argument == "--bench");
    let (samples, rounds) = if real { (15, 1_000_000) } else { (1, 1_000) };
    println!("ns for lock_vma and vma_end_read, median of {samples}");
    println!("{:32}  refcount     rwsem    biased", "");
    let cases: [(&str, &[usize]); 3] = [
        ("one thread", &[0]),
        ("two threads, a VMA each", &[0, 1]),
        ("two threads, one VMA", &[0, 0]),
    ];
    for (name, vmas) in cases {
        let mut taken = KINDS.map(|_| Vec::new());
        for _ in 0..samples {
            for (kind, taken) in KINDS.into_iter().zip(&mut taken) {
                taken.push(sample(kind, vmas, rounds));
            }
        }
        let [refcount, rwsem, biased] = taken.map(median);
        println!("{name:32}  {refcount:8.1}  {rwsem:8.1}  {biased:8.1}");
    }
    for (name, biases) in [("a writer", false), ("a writer of a biased VMA", true)] {
        let mut taken = KINDS.map(|_| Vec::new());
        for _ in 0..samples {
            for (kind, taken) in KINDS.into_iter().zip(&mut taken) {
                taken.push(write_sample(kind, biases, rounds / 10));
            }
        }
        let [refcount, rwsem, biased] = taken.map(median);
        println!("{name:32}  {refcount:8.1}  {rwsem:8.1}  {biased:8.1}");
    }
}
