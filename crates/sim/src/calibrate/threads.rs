//! The cost of threads: calls, switches, wake-ups.

use super::cpus::pin;
use super::sample::{each, median, middle, whole};
use super::{Failure, Figure, Watch};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Calls of a sample.
const CALLS: usize = 1_000;
/// Hand-overs of a sample.
const HAND_OVERS: usize = 200;
/// Long enough for a waiter to be asleep and its CPU idle.
const ASLEEP: Duration = Duration::from_micros(200);
/// A waiter that nobody wakes looks again after so long.
const PATIENCE: libc::timespec = libc::timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// Sleeps while `word` is `value`, at most `PATIENCE`.
fn wait(word: &AtomicU32, value: u32) {
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word lives, and the time is a live structure. After any
    // answer, the caller looks at the word.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, value, &PATIENCE) };
}

/// Wakes one that sleeps on `word`.
fn wake_one(word: &AtomicU32) {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word lives.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, 1) };
}

/// A call that does nothing.
pub fn call(watch: &mut Watch) -> Result<u64, Failure> {
    let picoseconds = median(watch, "a system call", || {
        Ok(each(CALLS, || {
            for _ in 0..CALLS {
                // SAFETY: takes nothing and changes nothing.
                unsafe { libc::syscall(libc::SYS_getppid) };
            }
        }))
    })?;
    Ok(whole(picoseconds))
}

/// From a thread to another on the same CPU: a wake-up, going to sleep, and the
/// switch.
pub fn hand_over(watch: &mut Watch, cpu: usize) -> Result<u64, Failure> {
    let turn = AtomicU32::new(0);
    let stop = AtomicBool::new(false);
    let pass = |mine: u32| {
        turn.store(1 - mine, Ordering::Release);
        wake_one(&turn);
        while turn.load(Ordering::Acquire) != mine && !stop.load(Ordering::Relaxed) {
            wait(&turn, 1 - mine);
        }
    };
    pin(cpu)?;
    std::thread::scope(|scope| {
        // Pinned as we are: a thread inherits that.
        let other = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                pass(1);
            }
        });
        let measured = median(watch, "a context switch", || {
            Ok(each(2 * HAND_OVERS, || {
                (0..HAND_OVERS).for_each(|_| pass(0))
            }))
        });
        stop.store(true, Ordering::Relaxed);
        turn.store(1, Ordering::Release);
        wake_one(&turn);
        other.join().expect("it does not panic");
        Ok(whole(measured?))
    })
}

/// The cost of waking for the waker, and the time from there until the
/// woken thread runs, on another CPU that is idle.
pub fn wake(watch: &mut Watch, pair: [usize; 2]) -> Result<(u64, u64), Failure> {
    let begin = Instant::now();
    let now = || begin.elapsed().as_nanos() as u64;
    let turn = AtomicU32::new(0);
    let (ran_at, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    pin(pair[0])?;
    let mut latencies = Vec::new();
    let costs = std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            pin(pair[1])?;
            let mut seen = 0;
            while !stop.load(Ordering::Relaxed) {
                wait(&turn, seen);
                let at = now();
                let woken = turn.load(Ordering::Acquire);
                if woken != seen {
                    seen = woken;
                    ran_at.store(at, Ordering::Release);
                }
            }
            Ok(())
        });
        let costs = median(watch, "a wake-up", || {
            std::thread::sleep(ASLEEP);
            ran_at.store(0, Ordering::Relaxed);
            let before = now();
            turn.fetch_add(1, Ordering::AcqRel);
            wake_one(&turn);
            let after = now();
            while ran_at.load(Ordering::Acquire) == 0 && !sleeper.is_finished() {
                std::hint::spin_loop();
            }
            latencies.push(ran_at.load(Ordering::Acquire).saturating_sub(before) as f64 * 1e3);
            Ok((after - before) as f64 * 1e3)
        });
        stop.store(true, Ordering::Relaxed);
        turn.fetch_add(1, Ordering::AcqRel);
        wake_one(&turn);
        let slept: Result<(), Failure> = sleeper.join().expect("it does not panic");
        slept.and(costs)
    })?;
    Ok((whole(costs), whole(middle(latencies))))
}

/// How long a thread runs while others wait: the scheduler's value, where it may
/// be read.
pub fn slice() -> Figure {
    let path = "/sys/kernel/debug/sched/base_slice_ns";
    let text = std::fs::read_to_string(path).map_err(|e| format!("{path}: {e}"))?;
    let ns: u64 = text
        .trim()
        .parse()
        .map_err(|_| format!("{path} is no number"))?;
    Ok(ns * 1000)
}
