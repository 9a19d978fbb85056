//! Faults that are awaited.

mod child;
mod files;
mod filter;
mod write_scene;

use core::future::Future;
use core::pin::{Pin, pin};
use core::slice::from_ref;
use core::task::{Context, Poll, Waker};
use files::{byte_at, check, made_file};
use softfault::{Engine, FaultError, Mmap, MmapMut, MmapOptions};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::task::Wake;
use std::thread::Thread;
use std::time::{Duration, Instant};
use write_scene::{PAGE, Scratch, in_file};

fn scene(name: &str, megabytes: usize, bytes: usize) -> (Engine, File, Mmap) {
    let file = made_file(name, bytes);
    let engine = files::engine(megabytes << 20);
    // SAFETY: nobody writes to the file while it is checked.
    let map = unsafe { engine.map(&file) }.unwrap();
    (engine, file, map)
}

/// Unparks the thread that blocks on a future.
struct Unpark(Thread, AtomicUsize);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.1.fetch_add(1, SeqCst);
        self.0.unpark();
    }
}

/// The smallest executor: polls when woken, and only then.
fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let unpark = Arc::new(Unpark(std::thread::current(), AtomicUsize::new(1)));
    let waker = Waker::from(unpark.clone());
    loop {
        if unpark.1.swap(0, SeqCst) == 0 {
            std::thread::park();
            continue;
        }
        if let Poll::Ready(answer) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return answer;
        }
    }
}

/// All futures at once, in one task.
async fn all<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let mut futures: Vec<Pin<Box<F>>> = futures.into_iter().map(Box::pin).collect();
    let mut answers: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    core::future::poll_fn(move |context| {
        for (future, answer) in futures.iter_mut().zip(&mut answers) {
            if answer.is_none()
                && let Poll::Ready(ready) = future.as_mut().poll(context)
            {
                *answer = Some(ready);
            }
        }
        match answers.iter().all(Option::is_some) {
            true => Poll::Ready(answers.drain(..).map(Option::unwrap).collect()),
            false => Poll::Pending,
        }
    })
    .await
}

#[test]
fn awaited_pages_are_there() {
    let (engine, _file, map) = scene("awaited", 16, 4 << 20);
    block_on(map.fault_in(1_000_000..2_000_000)).unwrap();
    let residency = map.residency(1_000_000..2_000_000).unwrap();
    assert_eq!(residency.mapped, residency.pages, "{residency:?}");
    let faults = engine.stats().faults;
    for offset in (1_000_000..2_000_000).step_by(501) {
        check(&map, offset);
    }
    assert_eq!(engine.stats().faults, faults, "nothing was left to fault");
    block_on(map.fault_in(5..5)).unwrap();
    block_on(map.fault_in(..)).unwrap();
}

#[test]
fn many_at_once_each_get_their_answer() {
    let (engine, _file, map) = scene("many", 12, 32 << 20);
    let ranges = |round: usize| (0..300).map(move |i| (i * 7 + round) * 104_729 % (31 << 20));
    for round in 0..3 {
        let futures = ranges(round).map(|at| map.fault_in(at..at + 50_000));
        let answers = block_on(all(futures.collect()));
        assert_eq!(answers.len(), 300);
        assert!(answers.iter().all(Result::is_ok));
    }
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let map = &map;
            scope.spawn(move || {
                for at in ranges(thread).take(60) {
                    block_on(map.fault_in(at..at + 10_000)).unwrap();
                    check(map, at + 9_999);
                }
            });
        }
    });
    assert!(engine.stats().peak_bytes <= 12 << 20);
}

#[test]
fn one_dropped_early_harms_nobody() {
    let (engine, file, map) = scene("dropped", 12, 16 << 20);
    for round in 0..200 {
        let at = round * 77_777;
        let mut future = Box::pin(map.fault_in(at..at + 100_000));
        if round % 3 > 0 {
            let mut context = Context::from_waker(Waker::noop());
            let _ = future.as_mut().poll(&mut context);
        }
        drop(future);
        check(&map, at);
    }
    drop(map);
    // The workers may still be at it, in a map that is gone.
    for round in 0..50 {
        // SAFETY: nobody writes to the file.
        let map = unsafe { engine.map(&file) }.unwrap();
        let mut future = Box::pin(map.fault_in(..));
        let mut context = Context::from_waker(Waker::noop());
        let _ = future.as_mut().poll(&mut context);
        drop(future);
        check(&map, round * 300_000);
    }
    drop(engine);
}

#[test]
fn an_engine_may_go_while_its_workers_read() {
    for round in 0..30 {
        let (engine, _file, map) = scene("gone", 8, 2 << 20);
        let mut future = Box::pin(map.fault_in(..));
        let mut context = Context::from_waker(Waker::noop());
        let _ = future.as_mut().poll(&mut context);
        drop(future);
        if round % 2 == 0 {
            check(&map, round * 4096);
        }
        drop(engine);
        drop(map);
    }
}

#[test]
fn errors_are_values() {
    let (_engine, file, map) = scene("errors", 16, 4 << 20);
    let outside = block_on(map.fault_in(..(4 << 20) + 1));
    assert_eq!(outside, Err(FaultError::OutOfRange));
    file.set_len(1 << 20).unwrap();
    let beyond = block_on(map.fault_in(2 << 20..3 << 20));
    assert_eq!(beyond, Err(FaultError::BeyondEnd));
    let partly = block_on(map.fault_in(..));
    assert_eq!(partly, Err(FaultError::BeyondEnd));
    block_on(map.fault_in(..1 << 20)).unwrap();
    assert_eq!(map[(1 << 20) - 1], byte_at((1 << 20) - 1));
}

#[test]
fn the_newest_waker_is_woken() {
    let (_engine, _file, map) = scene("waker", 16, 8 << 20);
    let stale = Arc::new(Unpark(std::thread::current(), AtomicUsize::new(0)));
    let mut future = Box::pin(map.fault_in(..));
    let waker = Waker::from(stale.clone());
    let first = future.as_mut().poll(&mut Context::from_waker(&waker));
    // Moved to another thread, as work-stealing executors do.
    std::thread::scope(|scope| {
        scope.spawn(move || {
            if first.is_pending() {
                block_on(future).unwrap();
            }
        });
    });
    let residency = map.residency(..).unwrap();
    assert!(residency.mapped > 0, "{residency:?}");
}

/// A flush that is awaited has its bytes in the file, whoever serves the map; one that is dropped ends by itself.
#[test]
fn a_flush_can_be_awaited() {
    use softfault::Coherence;
    for coherence in [Coherence::Engine, Coherence::Kernel] {
        let scratch = Scratch::new(&format!("awaited-{coherence:?}"), 64 * PAGE);
        let file = scratch.open();
        let builder = Engine::builder().memory(16 << 20).coherence(coherence);
        let engine = builder.build().unwrap();
        // SAFETY: nobody else has the file.
        let mut map = unsafe { engine.map_mut(&file) }.unwrap();
        assert_eq!(map.is_managed(), coherence == Coherence::Engine);
        for page in 0..64 {
            map[page * PAGE] = page as u8 + 1;
        }
        block_on(map.flush_future(3 * PAGE..5 * PAGE)).unwrap();
        assert_eq!((in_file(&file, 3 * PAGE), in_file(&file, 4 * PAGE)), (4, 5));
        let flushes = block_on(all(vec![map.flush_future(..), map.flush_future(..5)]));
        assert!(flushes.into_iter().all(|flushed| flushed.is_ok()));
        assert_eq!((in_file(&file, 63 * PAGE), map.dirty_bytes()), (64, 0));
        #[expect(clippy::reversed_empty_ranges, reason = "refused")]
        let refused = [map.flush_future(..(64 * PAGE) + 1), map.flush_future(5..3)];
        for refused in refused {
            block_on(refused).unwrap_err();
        }
        // Begun, and dropped; the map and the engine go too.
        map[0] = 77;
        {
            let mut dropped = pin!(map.flush_future(..));
            let mut context = Context::from_waker(Waker::noop());
            // Pending, as a rule: it may be over already.
            let _ = dropped.as_mut().poll(&mut context);
        }
        drop((map, engine));
        assert_eq!(in_file(&file, 0), 77);
    }
    // No file sees writes to memory.
    let engine = Engine::builder().memory(16 << 20).build().unwrap();
    let map = engine.map_anon(PAGE).unwrap();
    block_on(map.flush_future(..)).unwrap();
}

/// True if all of these pages are in memory.
fn are_in_memory(pages: &[u8]) -> bool {
    let mut there = vec![0_u8; pages.len().div_ceil(PAGE)];
    // SAFETY: fills a byte a page.
    let answer = unsafe {
        libc::mincore(
            pages.as_ptr().cast_mut().cast(),
            pages.len(),
            there.as_mut_ptr(),
        )
    };
    assert_eq!(answer, 0);
    there.iter().all(|there| there & 1 != 0)
}

/// Memory that the kernel serves, and has read nothing of yet.
fn by_kernel(engine: &Engine, bytes: usize) -> MmapMut {
    let map = MmapOptions::new().len(bytes).stack().map_anon_in(engine);
    let map = map.unwrap();
    assert!(!map.is_managed());
    map
}

/// Where the kernel serves the map, the future was ready at once, with no page in memory.
#[test]
fn pages_that_the_kernel_serves_are_there_too() {
    let engine = files::engine(16 << 20);
    let map = by_kernel(&engine, 5 << 20);
    let ranges = [
        PAGE..3 << 20,
        0..0,
        4 << 20..(4 << 20) + 1,
        3 << 20..6 << 20,
    ];
    let answers = block_on(map.fault_in_many(&ranges));
    assert_eq!(
        answers,
        [Ok(()), Ok(()), Ok(()), Err(FaultError::OutOfRange)]
    );
    assert!(are_in_memory(&map[PAGE..3 << 20]));
    assert!(are_in_memory(&map[4 << 20..(4 << 20) + 1]));
    assert!(!are_in_memory(&map[(4 << 20) + PAGE..]));
    // Cold files, small and written to.
    for bytes in [50_000, 3 << 20] {
        let file = made_file("by-kernel", bytes);
        file.sync_all().unwrap();
        let cold = || {
            // SAFETY: advice.
            unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        };
        let engine = Engine::builder().memory(16 << 20).build().unwrap();
        cold();
        // SAFETY: nobody writes to the file.
        let map = unsafe { engine.map_mut(&file) }.unwrap();
        assert_eq!(block_on(map.fault_in_many(from_ref(&(0..bytes)))), [Ok(())]);
        assert!(are_in_memory(&map));
        drop(map);
        cold();
        // SAFETY: nobody writes to the file.
        let map = unsafe { engine.map(&file) }.unwrap();
        block_on(map.fault_in(..)).unwrap();
        assert!(map.is_managed() || are_in_memory(&map));
        // A page that is not there.
        drop(map);
        let map = by_kernel_of(&engine, &file);
        file.set_len(PAGE as u64).unwrap();
        let answers = block_on(map.fault_in_many(&[0..PAGE, PAGE..bytes]));
        assert!(answers[0].is_ok() && answers[1].is_err(), "{answers:?}");
    }
}

/// A shared map that the kernel serves.
fn by_kernel_of(engine: &Engine, file: &File) -> MmapMut {
    // SAFETY: nobody writes to the file.
    let map = unsafe { engine.map_mut(file) }.unwrap();
    assert!(!map.is_managed());
    map
}

/// Pages that are in memory count after the deadline, and others are not read, whoever serves them.
#[test]
fn a_deadline_holds_where_the_kernel_serves_the_map() {
    const LARGE: usize = 64 << 30;
    let engine = files::engine(16 << 20);
    let map = by_kernel(&engine, LARGE);
    map.fault_in_many(from_ref(&(0..3 << 20))).wait()[0].unwrap();
    let ranges = [0..3 << 20, 0..4 << 20, 3 << 20..4 << 20, 7..7];
    let expected = [
        Ok(()),
        Err(FaultError::TimedOut),
        Err(FaultError::TimedOut),
        Ok(()),
    ];
    let over = || map.fault_in_many(&ranges).until(Instant::now());
    assert_eq!(over().wait(), expected);
    assert_eq!(block_on(over()), expected);
    assert!(!are_in_memory(&map[3 << 20..4 << 20]));
    // So much cannot be had so soon.
    let soon = || {
        let until = Instant::now() + Duration::from_millis(10);
        map.fault_in_many(from_ref(&(0..LARGE))).until(until)
    };
    assert_eq!(soon().wait(), [Err(FaultError::TimedOut)]);
    assert_eq!(block_on(soon()), [Err(FaultError::TimedOut)]);
    // A small file.
    let file = made_file("small-deadline", 50_000);
    let engine = Engine::builder().memory(16 << 20).build().unwrap();
    // SAFETY: nobody writes to the file.
    let map = unsafe { engine.map(&file) }.unwrap();
    block_on(map.fault_in(..)).unwrap();
    let over = map
        .fault_in_many(from_ref(&(0..50_000)))
        .until(Instant::now());
    assert_eq!(over.wait(), [Ok(())]);
}

/// A waker that keeps the thread that calls it.
#[derive(Default)]
struct Keep {
    /// Threads that are kept, and whether they may go.
    kept: Mutex<(usize, bool)>,
    changed: Condvar,
}

impl Wake for Keep {
    fn wake(self: Arc<Self>) {
        let mut kept = self.kept.lock().unwrap();
        kept.0 += 1;
        self.changed.notify_all();
        let may_go = self.changed.wait_while(kept, |kept| !kept.1);
        drop(may_go.unwrap());
    }
}

/// Faults a file in that the engine serves while as many other futures hang as threads do their kind of work.
fn fault_beside<F: Future>(engine: &Engine, begin: impl Fn() -> F) {
    /// Threads for each kind.
    const THREADS: usize = 4;
    let file = made_file("beside", 1 << 20);
    // SAFETY: nobody writes to the file.
    let map = unsafe { engine.map(&file) }.unwrap();
    let keep = Arc::new(Keep::default());
    let waker = Waker::from(keep.clone());
    let mut futures = Vec::new();
    for kept in 1..=THREADS {
        // One that is done before it is polled again wakes nobody.
        loop {
            let mut future = Box::pin(begin());
            let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
            if polled.is_pending() {
                futures.push(future);
                break;
            }
        }
        let entered = keep.kept.lock().unwrap();
        let entered = keep.changed.wait_while(entered, |entered| entered.0 < kept);
        drop(entered.unwrap());
    }
    let faulted = block_on(map.fault_in(..));
    keep.kept.lock().unwrap().1 = true;
    keep.changed.notify_all();
    faulted.unwrap();
}

/// No fault waits for flushes that hang. It did, for ever.
#[test]
fn flushes_that_hang_are_in_the_way_of_no_fault() {
    let engine = files::engine(16 << 20);
    let scratch = Scratch::new("hang", PAGE);
    let written = by_kernel_of(&engine, &scratch.open());
    fault_beside(&engine, || written.flush_future(..));
}

/// Nor does it for a file system that does not answer the kernel.
#[test]
fn reads_of_the_kernel_that_hang_are_in_the_way_of_no_fault() {
    let engine = files::engine(16 << 20);
    let memory = by_kernel(&engine, PAGE);
    fault_beside(&engine, || memory.fault_in_many(from_ref(&(0..PAGE))));
}

/// Failed before: ranges that the kernel brings in had no memory where the system had no thread.
#[test]
fn without_a_thread_the_poll_brings_the_pages_in() {
    if child::scenario().is_none() {
        return child::succeeds("without_a_thread_the_poll_brings_the_pages_in", "alone");
    }
    let (engine, _file, map) = scene("threadless", 16, 4 << 20);
    let memory = by_kernel(&engine, 5 << 20);
    let scratch = Scratch::new("threadless", PAGE);
    let written = by_kernel_of(&engine, &scratch.open());
    filter::deny(&[libc::SYS_clone, libc::SYS_clone3], libc::EAGAIN);
    let ranges = [0..PAGE, 3 << 20..5 << 20];
    assert_eq!(block_on(memory.fault_in_many(&ranges)), [Ok(()), Ok(())]);
    assert!(are_in_memory(&memory[3 << 20..]));
    block_on(map.fault_in(..)).unwrap();
    assert_eq!(map.residency(..).unwrap().mapped, 1024);
    block_on(written.flush_future(..)).unwrap();
}

/// A program that awaits a file's ranges one after the other: the next one is being read meanwhile. Ranges anywhere are read alone.
#[test]
fn ranges_awaited_in_order_are_read_ahead_of() {
    const BYTES: usize = 16 << 20;
    const RANGE: usize = 256 << 10;
    let (engine, _file, map) = scene("awaited-in-order", 32, BYTES);
    for start in (0..BYTES).step_by(RANGE) {
        block_on(map.fault_in(start..start + RANGE)).unwrap();
        check(&map, start + RANGE / 2);
    }
    let stats = engine.stats();
    let ahead = stats.readahead_pages as usize * PAGE;
    assert!(ahead > BYTES / 8, "{stats:?}");
    assert!(stats.bytes_read <= BYTES as u64 * 9 / 8, "{stats:?}");

    let (engine, _file, map) = scene("awaited-anywhere", 32, BYTES);
    for range in 0..20 {
        let start = range * 7 % 20 * 3 * RANGE;
        block_on(map.fault_in(start..start + RANGE)).unwrap();
    }
    let stats = engine.stats();
    assert_eq!(stats.bytes_read, 20 * RANGE as u64, "{stats:?}");
}
