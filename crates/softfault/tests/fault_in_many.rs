//! Many ranges at once, of real files: an answer for each, whatever happens meanwhile.

mod child;
mod files;

use child::forked;
use core::future::Future;
use core::ops::Range;
use core::pin::pin;
use core::task::{Context, Poll, Waker};
use files::{byte_at, check, made_file};
use softfault::{Advice, Engine, FaultError, Mmap, Swap};
use softfault_oracle::Finally;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

const PAGE: usize = 4096;
const PAGES: usize = 8192;
const LEN: usize = PAGES * PAGE;

fn scene(name: &str, megabytes: usize) -> (Engine, std::fs::File, Mmap) {
    let file = made_file(name, LEN);
    let engine = files::engine(megabytes << 20);
    // SAFETY: nobody writes to the file while it is checked.
    let map = unsafe { engine.map(&file) }.unwrap();
    (engine, file, map)
}

/// So many ranges of some bytes each, in no order.
fn scattered(count: usize) -> Vec<Range<usize>> {
    let start = |i: usize| i * 7919 % PAGES * PAGE + i % 3000;
    (0..count).map(|i| start(i)..start(i) + 900).collect()
}

/// Polls until it is ready, for a minute at most.
fn ready<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..60_000 {
        if let Poll::Ready(answer) = future.as_mut().poll(&mut context) {
            return answer;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("hangs");
}

#[test]
fn thousands_of_ranges_in_one_call() {
    let (engine, _file, map) = scene("thousands", 64);
    let mut ranges = scattered(2000);
    let answers = map.fault_in_many(&ranges).wait();
    assert_eq!(answers, vec![Ok(()); 2000]);
    let before = engine.stats();
    for range in &ranges {
        check(&map, range.start);
        check(&map, range.end - 1);
    }
    // They are there: by reads that nobody waited for one by one, and for a look from then on.
    assert_eq!(map.fault_in_many(&ranges).wait(), vec![Ok(()); 2000]);
    assert_eq!(ready(map.fault_in_many(&ranges)), vec![Ok(()); 2000]);
    let after = engine.stats();
    assert_eq!(
        (after.faults, after.major_faults),
        (before.faults, before.major_faults)
    );
    assert_eq!(after.bytes_read, before.bytes_read);
    // Awaited, of missing pages; ranges outside the map stop no other.
    ranges = (0..PAGES)
        .map(|page| page * PAGE..page * PAGE + 1)
        .collect();
    ranges.push(LEN - 1..LEN + 1);
    let (end, start) = (3, 9);
    ranges.insert(0, start..end);
    ranges.insert(0, usize::MAX - 5..usize::MAX);
    let answers = ready(map.fault_in_many(&ranges));
    let outside: Vec<usize> = (0..answers.len())
        .filter(|&i| answers[i].is_err())
        .collect();
    assert_eq!(outside, [0, 1, PAGES + 2]);
    assert_eq!(answers[0], Err(FaultError::OutOfRange));
    let residency = map.residency(..).unwrap();
    assert_eq!(residency.mapped, PAGES);
}

#[test]
fn nothing_is_asked_for() {
    let (engine, _file, map) = scene("nothing", 16);
    assert_eq!(map.fault_in_many(&[]).wait(), []);
    assert_eq!(ready(map.fault_in_many(&[])), []);
    assert_eq!(
        map.fault_in_many(&[5..5, LEN..LEN]).wait(),
        [Ok(()), Ok(())]
    );
    let file = made_file("of-nothing", 0);
    // SAFETY: as above.
    let empty = unsafe { engine.map(&file) }.unwrap();
    let answers = empty.fault_in_many(&[0..0, 0..1]).wait();
    assert_eq!(answers, [Ok(()), Err(FaultError::OutOfRange)]);
}

#[test]
fn a_small_budget_is_kept() {
    let (engine, _file, map) = scene("small", 8);
    let ranges = scattered(PAGES);
    for _ in 0..2 {
        assert_eq!(map.fault_in_many(&ranges).wait(), vec![Ok(()); PAGES]);
        assert_eq!(ready(map.fault_in_many(&ranges)), vec![Ok(()); PAGES]);
    }
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (map, ranges) = (&map, &ranges[thread * 1000..]);
            scope.spawn(move || {
                assert!(map.fault_in_many(ranges).wait().iter().all(Result::is_ok));
                ranges
                    .iter()
                    .step_by(17)
                    .for_each(|range| check(map, range.start));
            });
        }
    });
    let stats = engine.stats();
    assert!(stats.peak_bytes <= 8 << 20, "{stats:?}");
}

#[test]
fn after_the_deadline_it_reports_the_present_pages() {
    let (engine, _file, map) = scene("deadline", 64);
    let ranges = scattered(1000);
    assert_eq!(map.fault_in_many(&ranges[..500]).wait(), vec![Ok(()); 500]);
    let before = engine.stats();
    let now = Instant::now();
    let blocking = map.fault_in_many(&ranges).until(now).wait();
    let awaited = ready(map.fault_in_many(&ranges).until(now));
    assert_eq!(blocking, awaited);
    for (range, answer) in ranges.iter().zip(&blocking) {
        let residency = map.residency(range.clone()).unwrap();
        let expected = match residency.mapped == residency.pages {
            true => Ok(()),
            false => Err(FaultError::TimedOut),
        };
        assert_eq!(*answer, expected);
    }
    assert_eq!(
        engine.stats().bytes_read,
        before.bytes_read,
        "nothing is read"
    );
    assert_eq!(blocking.iter().filter(|answer| answer.is_ok()).count(), 500);
    // One that comes in the middle, wherever that is.
    for microseconds in [100, 1000, 5000] {
        map.invalidate(..).unwrap();
        let soon = Instant::now() + Duration::from_micros(microseconds);
        for answer in map.fault_in_many(&ranges).until(soon).wait() {
            assert!(
                matches!(answer, Ok(()) | Err(FaultError::TimedOut)),
                "{answer:?}"
            );
        }
        assert!(Instant::now() < soon + Duration::from_secs(300));
    }
    let later = Instant::now() + Duration::from_secs(3600);
    assert_eq!(
        map.fault_in_many(&ranges).until(later).wait(),
        vec![Ok(()); 1000]
    );
}

#[test]
fn a_file_that_is_cut_off_meanwhile() {
    let (engine, file, map) = scene("cut", 16);
    let ranges = scattered(PAGES);
    for round in 0..4 {
        file.set_len(LEN as u64).unwrap();
        map.invalidate(..).unwrap();
        let half = LEN / 2 + round * PAGE;
        let answers = std::thread::scope(|scope| {
            let cut = scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(round as u64 * 3));
                file.set_len(half as u64).unwrap();
            });
            let answers = map.fault_in_many(&ranges).wait();
            cut.join().unwrap();
            answers
        });
        for (range, answer) in ranges.iter().zip(answers) {
            match answer {
                Ok(()) => {}
                Err(FaultError::BeyondEnd) => assert!(range.end > half / PAGE * PAGE),
                Err(error) => panic!("{range:?}: {error}"),
            }
        }
    }
    drop((engine, map));
}

#[test]
fn private_maps_and_pages_in_swap() {
    let file = made_file("private", LEN);
    let swap = Swap::in_dir(env!("CARGO_TARGET_TMPDIR")).bytes(64 << 20);
    let engine = Engine::builder()
        .allow_kernel_maps(false)
        .memory(16 << 20)
        .swap(swap)
        .build()
        .unwrap();
    // SAFETY: nobody writes to the file.
    let mut copy = unsafe { engine.map_copy(&file) }.unwrap();
    let ranges = scattered(1500);
    assert_eq!(copy.fault_in_many(&ranges).wait(), vec![Ok(()); 1500]);
    ranges.iter().for_each(|range| check(&copy, range.start));
    copy.iter_mut()
        .step_by(8 * PAGE)
        .for_each(|byte| *byte = 77);
    let mut anon = engine.map_anon(LEN).unwrap();
    for page in 0..PAGES {
        anon[page * PAGE] = page as u8;
    }
    anon.advise(Advice::PageOut).unwrap();
    assert_eq!(anon.fault_in_many(&ranges).wait(), vec![Ok(()); 1500]);
    let before = engine.stats();
    assert_eq!(ready(anon.fault_in_many(&ranges)), vec![Ok(()); 1500]);
    for range in &ranges {
        let page = range.start / PAGE;
        assert_eq!(anon[page * PAGE], page as u8);
    }
    assert_eq!(engine.stats().faults, before.faults);
    assert_eq!(copy.fault_in_many(&ranges).wait(), vec![Ok(()); 1500]);
    for page in 0..PAGES {
        let expected = if page % 8 == 0 {
            77
        } else {
            byte_at(page * PAGE)
        };
        assert_eq!(copy[page * PAGE], expected);
    }
    assert!(engine.stats().peak_bytes <= 16 << 20);
}

#[test]
fn maps_by_calls() {
    let file = made_file("calls", LEN);
    let engine = files::soft_engine(16 << 20);
    let map = engine.map(&file).unwrap();
    let mut ranges = scattered(1000);
    ranges.push(0..LEN + 1);
    let answers = map.fault_in_many(&ranges, None);
    assert_eq!(answers[..1000], vec![Ok(()); 1000]);
    assert_eq!(answers[1000], Err(FaultError::OutOfRange));
    let faults = engine.stats().faults;
    let mut byte = [0];
    for range in &ranges[..1000] {
        map.read_at(&mut byte, range.start).unwrap();
        assert_eq!(byte[0], byte_at(range.start));
    }
    assert_eq!(engine.stats().faults, faults);
    let past = map.fault_in_many(&[0..LEN, 5..5], Some(Instant::now()));
    assert_eq!(past, [Err(FaultError::TimedOut), Ok(())]);
    let anon = engine.map_anon(LEN).unwrap();
    assert_eq!(anon.fault_in_many(&ranges[..9], None), vec![Ok(()); 9]);
}

/// A timer whose signals go to one thread. Those of `setitimer(2)` go to the
/// process: any thread could be in the handler when another one counts.
struct Timer(libc::timer_t);

impl Timer {
    fn of_this_thread(signal: libc::c_int) -> Timer {
        let mut timer = core::ptr::null_mut();
        // SAFETY: zeros are a valid rest, and both live for the call.
        let rc = unsafe {
            let mut event: libc::sigevent = core::mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = signal;
            event.sigev_notify_thread_id = libc::gettid();
            libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer)
        };
        assert_eq!(rc, 0);
        Timer(timer)
    }

    /// A signal every so many nanoseconds; none from now on by zero.
    fn every(&self, nanoseconds: i64) {
        let time = libc::timespec {
            tv_sec: 0,
            tv_nsec: nanoseconds,
        };
        let both = libc::itimerspec {
            it_interval: time,
            it_value: time,
        };
        // SAFETY: a timer of ours, and a valid time.
        let rc = unsafe { libc::timer_settime(self.0, 0, &both, core::ptr::null_mut()) };
        assert_eq!(rc, 0);
    }
}

/// Signals are delivered while it waits, and their handlers touch the map.
#[test]
fn signals_are_served_meanwhile() {
    let test = "signals_are_served_meanwhile";
    if child::scenario().is_none() {
        return child::succeeds(test, "a timer");
    }
    static SERVED: AtomicUsize = AtomicUsize::new(0);
    static TOUCHED: AtomicUsize = AtomicUsize::new(0);
    static MAP: AtomicUsize = AtomicUsize::new(0);
    // So many at most: where a touch takes longer than the timer, the thread would come to nothing else.
    const MOST: usize = 1000;
    extern "C" fn handler(_: libc::c_int) {
        if SERVED.load(SeqCst) == MOST {
            return;
        }
        let at = SERVED.fetch_add(1, SeqCst) * 7873 % PAGES * PAGE;
        // SAFETY: within the map, which lives as long as the timer runs.
        let byte = unsafe { (MAP.load(SeqCst) as *const u8).add(at).read_volatile() };
        TOUCHED.fetch_add(usize::from(byte == byte_at(at)), SeqCst);
    }
    let (engine, _file, map) = scene("signals", 8);
    MAP.store(map.as_ptr() as usize, SeqCst);
    // SAFETY: a handler that touches memory and atomics; zeros are a valid rest.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        assert_eq!(
            libc::sigaction(libc::SIGALRM, &action, core::ptr::null_mut()),
            0
        );
    }
    let timer = Timer::of_this_thread(libc::SIGALRM);
    timer.every(700_000);
    let ranges = scattered(PAGES);
    let end = Instant::now() + Duration::from_secs(300);
    while SERVED.load(SeqCst) < 50 && Instant::now() < end {
        assert_eq!(map.fault_in_many(&ranges).wait(), vec![Ok(()); PAGES]);
    }
    // A pending signal is delivered here before the call returns.
    timer.every(0);
    assert!(SERVED.load(SeqCst) >= 50, "{}", SERVED.load(SeqCst));
    assert_eq!(SERVED.load(SeqCst), TOUCHED.load(SeqCst));
    drop((engine, map));
}

/// A child of fork has its private maps, and says so of the others.
#[test]
fn in_a_child_of_fork() {
    let test = "in_a_child_of_fork";
    if child::scenario().is_none() {
        return child::succeeds(test, "a child");
    }
    let (engine, file, shared) = scene("child", 16);
    // SAFETY: nobody writes to the file.
    let copy = unsafe { engine.map_copy(&file) }.unwrap();
    let ranges = scattered(600);
    assert_eq!(copy.fault_in_many(&ranges[..300]).wait(), vec![Ok(()); 300]);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(SeqCst) {
                shared.invalidate(..).unwrap();
                assert_eq!(shared.fault_in_many(&ranges).wait(), vec![Ok(()); 600]);
            }
        });
        let _over = Finally(|| over.store(true, SeqCst));
        for _ in 0..10 {
            let status = forked(|| {
                assert_eq!(copy.fault_in_many(&ranges).wait(), vec![Ok(()); 600]);
                assert_eq!(ready(copy.fault_in_many(&ranges)), vec![Ok(()); 600]);
                ranges.iter().for_each(|range| check(&copy, range.start));
                let answers = shared.fault_in_many(&ranges).wait();
                assert_eq!(answers, vec![Ok(()); 600]);
                ranges.iter().for_each(|range| check(&shared, range.start));
                0
            });
            assert_eq!(status, 0);
        }
    });
}

/// A future that is dropped asks for no more.
#[test]
fn dropped_futures_leave_their_ranges() {
    let (engine, _file, map) = scene("dropped", 8);
    let ranges = scattered(PAGES);
    for _ in 0..200 {
        let mut future = Box::pin(map.fault_in_many(&ranges));
        let _ = future
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
    }
    // Each of them would have read 32 MiB.
    assert_eq!(ready(map.fault_in(0..PAGE)), Ok(()));
    let read = engine.stats().bytes_read;
    assert!(read < 100 * LEN as u64, "{read} bytes");
}

/// It only had the kernel begin to read, and said that all was there.
#[test]
fn a_map_that_the_kernel_serves_is_waited_for() {
    let file = made_file("kernels", 16 * PAGE);
    let engine = Engine::builder().memory(16 << 20).build().unwrap();
    // SAFETY: bytes that are cut off are not looked at.
    let map = unsafe { engine.map(&file) }.unwrap();
    assert!(!map.is_managed(), "it is small");
    let ranges = [0..PAGE, 8 * PAGE..9 * PAGE, 5..5, 0..17 * PAGE];
    file.set_len(4 * PAGE as u64).unwrap();
    let answers = map.fault_in_many(&ranges).wait();
    assert_eq!(answers[0], Ok(()));
    assert!(
        matches!(answers[1], Err(FaultError::Io(_))),
        "{:?}",
        answers[1]
    );
    assert_eq!(answers[2], Ok(()));
    assert_eq!(answers[3], Err(FaultError::OutOfRange));
    // A range that is in memory by then succeeds.
    let over = map.fault_in_many(&ranges[..2]).until(Instant::now());
    assert_eq!(over.wait(), [Ok(()), Err(FaultError::TimedOut)]);
}
