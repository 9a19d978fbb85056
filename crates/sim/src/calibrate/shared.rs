//! What CPUs share: the bandwidth of memory, and the units of a core.

use super::cpus::pin;
use super::memory::{Memory, PAGE};
use super::sample::{each, median, middle, whole};
use super::{Failure, Watch};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Memory of all CPUs together, more than caches hold, and of each at least.
const POOLS: usize = 256 << 20;
const POOL: usize = 16 << 20;
/// Pages after which a CPU says how far it is.
const COUNTED: usize = 64;
/// Time of a sample of bandwidth.
const SAMPLE: Duration = Duration::from_millis(20);
/// Words that the work of a core goes over: a part of its nearest cache.
const WORDS: usize = 1024;
/// Rounds over them, a sample.
const ROUNDS: usize = 50;

/// Bytes a second of a node, while all of `cpus`, which are of so many nodes, clear pages of their own, or copy them: whichever moves
/// more. A few CPUs may not reach what the memory could do.
pub fn bandwidth(watch: &mut Watch, cpus: &[usize], nodes: u16) -> Result<u64, Failure> {
    let cleared = moved(watch, cpus, PAGE, |pool, page| {
        // SAFETY: a page of the pool, to which nobody has a reference.
        unsafe { pool.page(page).write_bytes(0, PAGE) };
    })?;
    let copied = moved(watch, cpus, 2 * PAGE, |pool, page| {
        let other = (page + pool.pages() / 2) % pool.pages();
        // SAFETY: two pages of the pool, to which nobody has a reference.
        unsafe {
            pool.page(other)
                .copy_from_nonoverlapping(pool.page(page), PAGE);
        }
    })?;
    Ok(whole(cleared.max(copied) / f64::from(nodes)))
}

/// Bytes a second of all CPUs, each of which does `step` for page after page of a pool of its own; so many bytes each.
fn moved(
    watch: &mut Watch,
    cpus: &[usize],
    bytes: usize,
    step: impl Fn(&Memory, usize) + Sync,
) -> Result<f64, Failure> {
    let (stop, moved) = (AtomicBool::new(false), AtomicU64::new(0));
    let ready = AtomicUsize::new(0);
    let pool_bytes = (POOLS / cpus.len()).max(POOL).next_multiple_of(PAGE);
    std::thread::scope(|scope| {
        let work = |cpu: usize| {
            pin(cpu)?;
            let pool = Memory::map(pool_bytes, false)?;
            // First touched here, so that it is of this CPU's node.
            pool.touch();
            ready.fetch_add(1, Ordering::Release);
            let mut next = 0;
            while !stop.load(Ordering::Relaxed) {
                for _ in 0..COUNTED {
                    next = (next + 1) % pool.pages();
                    step(&pool, next);
                }
                // Seldom, or it were this word that all CPUs wait for.
                moved.fetch_add((COUNTED * bytes) as u64, Ordering::Relaxed);
            }
            Ok::<(), Failure>(())
        };
        let threads: Vec<_> = cpus
            .iter()
            .map(|&cpu| scope.spawn(move || work(cpu)))
            .collect();
        let gone = || threads.iter().any(|thread| thread.is_finished());
        let mut samples = Vec::new();
        let mut told = Ok(());
        while ready.load(Ordering::Acquire) < cpus.len() && !gone() && told.is_ok() {
            told = watch.tell("the bandwidth of memory");
            std::thread::sleep(SAMPLE);
        }
        for _ in 0..watch.samples {
            told = told.and_then(|()| watch.tell("the bandwidth of memory"));
            if told.is_err() {
                break;
            }
            let (begin, before) = (Instant::now(), moved.load(Ordering::Relaxed));
            std::thread::sleep(SAMPLE);
            let bytes = moved.load(Ordering::Relaxed) - before;
            samples.push(bytes as f64 / begin.elapsed().as_secs_f64());
        }
        stop.store(true, Ordering::Relaxed);
        let ended: Result<Vec<()>, Failure> = threads
            .into_iter()
            .map(|thread| thread.join().expect("it does not panic"))
            .collect();
        told?;
        ended?;
        Ok(middle(samples))
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
