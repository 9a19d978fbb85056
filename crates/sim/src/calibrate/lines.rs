//! The cost of cache lines.

use super::cpus::pin;
use super::memory::Memory;
use super::sample::{each, median, whole};
use super::{Failure, Watch};
use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Steps of a sample where lines hit: some microseconds.
const STEPS: usize = 10_000;
/// Round trips of a sample between two CPUs.
const ROUND_TRIPS: u64 = 1_000;
/// Words of a line.
const WORDS: usize = 8;
/// Samples between two CPUs are the best of so many: one that was interrupted
/// says nothing of lines.
const TRIES: usize = 8;

/// A load that hits, each waiting for the one before: addresses in a ring.
pub fn hit(watch: &mut Watch) -> Result<u64, Failure> {
    let mut ring: Vec<*const ()> = vec![std::ptr::null(); 64];
    for at in 0..ring.len() {
        ring[at] = (&raw const ring[(at + WORDS) % 64]).cast();
    }
    let mut at: *const () = ring.as_ptr().cast();
    let picoseconds = median(watch, "a hit", || {
        Ok(each(STEPS, || {
            for _ in 0..STEPS {
                // SAFETY: each word of the ring has the address of another.
                at = unsafe { at.cast::<*const ()>().read_volatile() };
            }
        }))
    })?;
    Ok(whole(picoseconds))
}

/// A read-modify-write of a line that is there, the hit included.
pub fn rmw(watch: &mut Watch) -> Result<u64, Failure> {
    let word = AtomicU64::new(0);
    let picoseconds = median(watch, "a read-modify-write", || {
        Ok(each(STEPS, || {
            for _ in 0..STEPS {
                black_box(&word).fetch_add(1, Ordering::AcqRel);
            }
        }))
    })?;
    Ok(whole(picoseconds))
}

/// A line that is in memory alone: lines in a random order, through more memory
/// than caches hold.
pub fn memory(watch: &mut Watch) -> Result<u64, Failure> {
    let lines = if watch.quick { 1 << 20 } else { 1 << 22 };
    // Huge pages, or it were the page tables that are measured.
    let memory = Memory::map(lines * WORDS * size_of::<usize>(), true)?;
    let word = |line: usize| memory.at(line * WORDS * size_of::<usize>()).cast::<usize>();
    let mut order: Vec<u32> = (0..lines as u32).collect();
    let mut state = 1u64;
    for at in (1..lines).rev() {
        // Sattolo's way to one cycle of all; any mixing generator does.
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        order.swap(at, (state >> 33) as usize % at);
        if at % (1 << 18) == 0 {
            watch.tell("a line from memory")?;
        }
    }
    for (line, next) in order.iter().enumerate() {
        // SAFETY: the first word of a line of the mapping.
        unsafe { word(line).write(*next as usize) };
    }
    let mut line = 0;
    let picoseconds = median(watch, "a line from memory", || {
        Ok(each(STEPS, || {
            for _ in 0..STEPS {
                // SAFETY: the number of a line was written there.
                line = unsafe { word(line).read_volatile() };
            }
        }))
    })?;
    Ok(whole(picoseconds))
}

/// Two threads change a word by turns. On lines of its own: neighbours are
/// fetched in pairs.
#[repr(align(256))]
#[derive(Default)]
struct Ball(AtomicU64);

/// From one CPU to the other and half of the way back: compare-and-exchange by
/// turns, as published figures between cores are measured.
pub fn transfer(watch: &mut Watch, what: &str, pair: [usize; 2]) -> Result<u64, Failure> {
    let ball = Ball::default();
    let (stop, ready) = (AtomicBool::new(false), AtomicBool::new(false));
    let mine = pair[0];
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            pin(pair[1])?;
            ready.store(true, Ordering::Release);
            let mut turn = 1;
            while !stop.load(Ordering::Relaxed) {
                if pass(&ball, turn) {
                    turn += 2;
                }
            }
            Ok(())
        });
        let measured = play(watch, what, mine, &ball, &ready, || other.is_finished());
        stop.store(true, Ordering::Relaxed);
        let other: Result<(), Failure> = other.join().expect("it does not panic");
        other.and(measured)
    })
}

fn play(
    watch: &mut Watch,
    what: &str,
    cpu: usize,
    ball: &Ball,
    ready: &AtomicBool,
    gone: impl Fn() -> bool,
) -> Result<u64, Failure> {
    pin(cpu)?;
    while !ready.load(Ordering::Acquire) {
        if gone() {
            return Ok(0);
        }
        spin_loop();
    }
    let mut turn = 0;
    let picoseconds = median(watch, what, || {
        let best = (0..TRIES).map(|_| {
            each(2 * ROUND_TRIPS as usize, || {
                for _ in 0..ROUND_TRIPS {
                    while !pass(ball, turn) {}
                    turn += 2;
                }
            })
        });
        Ok(best.fold(f64::INFINITY, f64::min))
    })?;
    Ok(whole(picoseconds))
}

/// Whether it was our turn.
fn pass(ball: &Ball, turn: u64) -> bool {
    let exchanged = ball
        .0
        .compare_exchange(turn, turn + 1, Ordering::AcqRel, Ordering::Relaxed);
    exchanged.is_ok()
}
