//! The cost of a fork whose child ends at once: of memory of an engine's, most of it in
//! swap, and of as much plain memory as that has resident.
//!
//! `fork_cost DIR [GIB [BUDGET_GIB]]`

use softfault::{Engine, Swap};
use std::time::Instant;

const PAGE: usize = 4096;
const ROUNDS: usize = 7;

fn main() -> std::io::Result<()> {
    let mut args = std::env::args().skip(1);
    let dir = args.next().unwrap_or_else(|| "/var/tmp".to_owned());
    let mut size = |default| {
        args.next()
            .and_then(|text| text.parse().ok())
            .unwrap_or(default)
    };
    let (bytes, budget) = (size(4usize) << 30, size(1usize) << 30);

    forks("a small process");
    let mut plain = vec![0u8; budget];
    plain.iter_mut().step_by(PAGE).for_each(|byte| *byte = 1);
    forks("plain memory");
    drop(plain);

    let swap = Swap::in_dir(dir).bytes(2 * bytes as u64);
    let engine = Engine::builder().memory(budget).swap(swap).build()?;
    forks("an engine without memory");
    let mut map = engine.map_anon(bytes)?;
    map.iter_mut().step_by(PAGE).for_each(|byte| *byte = 1);
    forks("written");
    let sum: usize = map
        .iter()
        .step_by(PAGE)
        .map(|&byte| usize::from(byte))
        .sum();
    assert_eq!(sum, bytes / PAGE);
    forks("read");
    println!("{:#?}", engine.stats().swap);
    Ok(())
}

/// Times of the call, and until the child has ended; of the processor in both: medians.
fn forks(what: &str) {
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let (since, cpu) = (Instant::now(), thread_cpu_us());
        // SAFETY: the child ends at once.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: as above.
            unsafe { libc::_exit(0) };
        }
        let (call, parent) = (since.elapsed().as_micros(), thread_cpu_us() - cpu);
        let mut usage = core::mem::MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: our own child; fills the structure.
        let usage = unsafe {
            libc::wait4(child, core::ptr::null_mut(), 0, usage.as_mut_ptr());
            usage.assume_init()
        };
        let of = |time: libc::timeval| time.tv_sec * 1_000_000 + time.tv_usec;
        let child = of(usage.ru_utime) + of(usage.ru_stime);
        rounds.push([
            call as i64,
            since.elapsed().as_micros() as i64,
            parent,
            child,
        ]);
    }
    let [call, all, parent, child] = [0, 1, 2, 3].map(|column| {
        let mut column: Vec<i64> = rounds.iter().map(|round| round[column]).collect();
        column.sort_unstable();
        column[ROUNDS / 2]
    });
    println!(
        "{what:>26}: fork {call:>6} us, to the child's end {all:>6} us; \
         processor: parent {parent:>6} us, child {child:>6} us"
    );
}

/// Time that the thread has had on a processor.
fn thread_cpu_us() -> i64 {
    let mut now = core::mem::MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: fills the structure.
    let now = unsafe {
        libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, now.as_mut_ptr());
        now.assume_init()
    };
    now.tv_sec * 1_000_000 + now.tv_nsec / 1000
}
