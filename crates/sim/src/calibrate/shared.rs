//! What CPUs share: the bandwidth of memory, and the units of a core.

use super::cpus::pin;
use super::memory::{Memory, PAGE};
use super::sample::{each, median, middle, whole};
use super::{Failure, Watch};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Memory that each CPU clears, more than its caches hold.
const POOL: usize = 64 << 20;
/// Time of a sample of bandwidth.
const SAMPLE: Duration = Duration::from_millis(20);
/// Words that the work of a core goes over: a part of its nearest cache.
const WORDS: usize = 1024;
/// Rounds over them, a sample.
const ROUNDS: usize = 50;

/// Bytes a second of a node, while all of `cpus`, which are of so many nodes, clear pages of their own.
pub fn bandwidth(watch: &mut Watch, cpus: &[usize], nodes: u16) -> Result<u64, Failure> {
    let (stop, cleared) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let clear = |cpu: usize| {
            pin(cpu)?;
            let pool = Memory::map(POOL, false)?;
            // First touched here, so that it is of this CPU's node.
            pool.touch();
            let mut next = 0;
            while !stop.load(Ordering::Relaxed) {
                next = (next + 1) % pool.pages();
                // SAFETY: a page of the pool, to which nobody has a reference.
                unsafe { pool.page(next).write_bytes(0, PAGE) };
                cleared.fetch_add(PAGE as u64, Ordering::Relaxed);
            }
            Ok::<(), Failure>(())
        };
        let threads: Vec<_> = cpus
            .iter()
            .map(|&cpu| scope.spawn(move || clear(cpu)))
            .collect();
        let mut samples = Vec::new();
        let told = (0..watch.samples).try_for_each(|_| {
            watch.tell("the bandwidth of memory")?;
            let (begin, before) = (Instant::now(), cleared.load(Ordering::Relaxed));
            std::thread::sleep(SAMPLE);
            let bytes = cleared.load(Ordering::Relaxed) - before;
            samples.push(bytes as f64 / begin.elapsed().as_secs_f64());
            Ok::<(), Failure>(())
        });
        stop.store(true, Ordering::Relaxed);
        let ended: Result<Vec<()>, Failure> = threads
            .into_iter()
            .map(|thread| thread.join().expect("it does not panic"))
            .collect();
        told?;
        ended?;
        Ok(whole(middle(samples) / f64::from(nodes)))
    })
}

/// By how many percent work on the first CPU takes longer while the second does the same.
pub fn longer_beside(watch: &mut Watch, [mine, other]: [usize; 2]) -> Result<u64, Failure> {
    pin(mine)?;
    let alone = work(watch, "work on a CPU")?;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let beside = scope.spawn(|| {
            pin(other)?;
            let mut words = [0; WORDS];
            while !stop.load(Ordering::Relaxed) {
                mix(&mut words);
            }
            Ok::<(), Failure>(())
        });
        let both = work(watch, "work on two CPUs");
        stop.store(true, Ordering::Relaxed);
        beside.join().expect("it does not panic")?;
        let percent = (100.0 * (both? / alone - 1.0)).max(0.0);
        Ok(percent.round() as u64)
    })
}

/// The time of loads, stores and arithmetic that wait for nothing beyond the core.
fn work(watch: &mut Watch, what: &str) -> Result<f64, Failure> {
    let mut words = [0; WORDS];
    median(watch, what, || {
        Ok(each(ROUNDS, || {
            (0..ROUNDS).for_each(|_| mix(&mut words));
        }))
    })
}

/// Four chains of instructions that do not wait for each other, as two threads of a core would not: what they share is its units.
fn mix(words: &mut [u64; WORDS]) {
    let mut last = [1u64; 4];
    for four in black_box(words).as_chunks_mut::<4>().0 {
        for (last, word) in last.iter_mut().zip(four) {
            *last = (*last ^ *word)
                .rotate_left(13)
                .wrapping_mul(0x9E37_79B9_7F4A_7C15);
            *word = *last;
        }
    }
}
