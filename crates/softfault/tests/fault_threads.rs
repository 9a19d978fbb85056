//! Faults that threads of the engine serve ([`Faults::Threads`]), in processes of their own: whatever
//! the program does about SIGBUS, bytes are right, and errors are signals.

mod child;
mod files;

use child::{forked, start, wait};
use files::{allow_numbers, byte_at, check, made_file, map, use_up_numbers};
use softfault::{Engine, Fallback, Faults, Mmap, Swap};
use softfault_engine::PAGE_SIZE;
use softfault_engine::store::{Store, StoreError};
use std::io::{Read as _, Write as _};
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

const BUDGET: usize = 8 << 20;

fn engine() -> Engine {
    let builder = Engine::builder()
        .allow_kernel_maps(false)
        .memory(BUDGET)
        .faults(Faults::Threads);
    builder.build().unwrap()
}

/// Runs each of `scenarios` in a process of its own, and ends each that hangs.
#[track_caller]
fn each(test: &str, scenarios: &[(&str, fn())]) {
    match child::scenario() {
        None => {
            for (name, _) in scenarios {
                child::succeeds(test, name);
            }
        }
        Some(name) => {
            // SAFETY: a process that hangs is killed rather than waited for.
            unsafe { libc::alarm(300) };
            let (_, run) = scenarios.iter().find(|(known, _)| *known == name).unwrap();
            run();
        }
    }
}

fn install(signal: i32, flags: i32, handler: usize) -> usize {
    // SAFETY: the callers' handlers suit their flags; the second is filled.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        let mut before = MaybeUninit::<libc::sigaction>::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = flags;
        assert_eq!(libc::sigaction(signal, &action, before.as_mut_ptr()), 0);
        before.assume_init().sa_sigaction
    }
}

fn block(signals: &[i32], how: i32) {
    // SAFETY: a valid set.
    unsafe {
        let mut set = MaybeUninit::uninit();
        libc::sigemptyset(set.as_mut_ptr());
        for &signal in signals {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        libc::pthread_sigmask(how, set.as_ptr(), core::ptr::null_mut());
    }
}

/// Signals that were of no concern of the program's.
static SEEN: AtomicUsize = AtomicUsize::new(0);

extern "C" fn foreign(_: i32) {
    SEEN.fetch_add(1, SeqCst);
}

/// Reads a file of four times the budget, twice, in no order.
fn read_it(engine: &Engine) {
    let file = made_file("four-times", 4 * BUDGET);
    let map = map(engine, &file);
    let pages = map.len() / PAGE_SIZE;
    for round in 0..2 {
        for page in 0..pages {
            let page = (page * 4097 + round) % pages;
            check(&map, page * PAGE_SIZE + page % PAGE_SIZE);
        }
    }
    assert!(engine.stats().evicted > 0 && engine.stats().failed_touches == 0);
}

#[test]
fn nothing_of_sigbus_is_the_programs_business() {
    each(
        "nothing_of_sigbus_is_the_programs_business",
        &[
            ("blocked", || {
                block(&[libc::SIGBUS], libc::SIG_BLOCK);
                read_it(&engine());
            }),
            ("ignored", || {
                let engine = engine();
                install(libc::SIGBUS, 0, libc::SIG_IGN);
                read_it(&engine);
                assert_eq!(install(libc::SIGBUS, 0, libc::SIG_DFL), libc::SIG_IGN);
            }),
            ("default", || {
                install(libc::SIGBUS, 0, libc::SIG_DFL);
                let engine = engine();
                read_it(&engine);
                assert_eq!(install(libc::SIGBUS, 0, libc::SIG_DFL), libc::SIG_DFL);
            }),
            ("foreign, before", || {
                install(libc::SIGBUS, 0, foreign as *const () as usize);
                read_it(&engine());
                assert_eq!(SEEN.load(SeqCst), 0);
            }),
            ("foreign, after", || {
                let engine = engine();
                let foreign = foreign as *const () as usize;
                install(libc::SIGBUS, libc::SA_NODEFER, foreign);
                read_it(&engine);
                assert_eq!(SEEN.load(SeqCst), 0);
                assert_eq!(install(libc::SIGBUS, 0, libc::SIG_DFL), foreign);
            }),
            ("all closed", || {
                let engine = engine();
                // SAFETY: the process's own numbers, which the program does not know.
                unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
                read_it(&engine);
            }),
        ],
    );
}

#[test]
fn many_threads_touch() {
    each(
        "many_threads_touch",
        &[
            ("8", || touch_by(8)),
            // More than serve at a time.
            ("100", || touch_by(100)),
        ],
    );
}

fn touch_by(threads: usize) {
    let engine = engine();
    let file = made_file("threads", 4 * BUDGET);
    let map = map(&engine, &file);
    let pages = map.len() / PAGE_SIZE;
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let map = &map;
            scope.spawn(move || {
                for step in 0..8 * pages / threads {
                    let page = step.wrapping_mul(7919).wrapping_add(thread * 131) % pages;
                    check(map, page * PAGE_SIZE + step % PAGE_SIZE);
                }
            });
        }
    });
    assert!(engine.stats().evicted > 0);
}

fn swapping() -> Engine {
    let swap = Swap::in_dir(env!("CARGO_TARGET_TMPDIR")).bytes(256 << 20);
    let builder = Engine::builder()
        .allow_kernel_maps(false)
        .memory(BUDGET)
        .swap(swap);
    builder.faults(Faults::Threads).build().unwrap()
}

/// Each word of a map, as a pass over it leaves it.
fn write_and_check(words: &mut [u64], pass: u64) {
    for (at, word) in words.iter_mut().enumerate() {
        if pass > 0 {
            assert_eq!(*word, at as u64 ^ (pass - 1), "word {at}, pass {pass}");
        } else {
            assert_eq!(*word, 0);
        }
        *word = at as u64 ^ pass;
    }
}

fn words(map: &mut [u8]) -> &mut [u64] {
    // SAFETY: any bytes are words; a map begins at a page.
    unsafe { map.align_to_mut().1 }
}

#[test]
fn private_memory_is_swapped_and_a_child_goes_on() {
    each(
        "private_memory_is_swapped_and_a_child_goes_on",
        &[
            ("swap", || {
                block(&[libc::SIGBUS], libc::SIG_BLOCK);
                let engine = swapping();
                let mut map = engine.map_anon(4 * BUDGET).unwrap();
                for pass in 0..3 {
                    write_and_check(words(&mut map), pass);
                }
            }),
            ("threads", || {
                let engine = swapping();
                let mut map = engine.map_anon(4 * BUDGET).unwrap();
                let part = map.len() / 8 / 8;
                std::thread::scope(|scope| {
                    for words in words(&mut map).chunks_mut(part) {
                        scope.spawn(|| (0..3).for_each(|pass| write_and_check(words, pass)));
                    }
                });
            }),
            ("fork", || {
                let engine = swapping();
                let mut map = engine.map_anon(4 * BUDGET).unwrap();
                write_and_check(words(&mut map), 0);
                let file = made_file("of-child", 2 * BUDGET);
                let status = forked(|| {
                    write_and_check(words(&mut map), 1);
                    write_and_check(words(&mut map), 2);
                    // A grandchild, and an engine of the child's own.
                    let status = forked(|| {
                        write_and_check(words(&mut map), 3);
                        let engine = self::engine();
                        let map = self::map(&engine, &file);
                        (0..map.len())
                            .step_by(PAGE_SIZE)
                            .for_each(|at| check(&map, at));
                        0
                    });
                    assert_eq!(status, 0);
                    write_and_check(words(&mut map), 3);
                    0
                });
                assert_eq!(status, 0);
                write_and_check(words(&mut map), 1);
            }),
        ],
    );
}

/// A store whose reads fail while it is told to.
#[derive(Default)]
struct Failing {
    works: AtomicBool,
    slow: AtomicBool,
    begun: AtomicBool,
}

impl Store for Failing {
    fn len(&self) -> Result<u64, StoreError> {
        Ok(1 << 20)
    }

    unsafe fn read(&self, offset: u64, buffer: *mut u8, bytes: usize) -> Result<usize, StoreError> {
        self.begun.store(true, SeqCst);
        while self.slow.load(SeqCst) {
            std::thread::yield_now();
        }
        if !self.works.load(SeqCst) {
            return Err(StoreError::Io(libc::EIO));
        }
        for at in 0..bytes {
            // SAFETY: the caller's promise.
            unsafe { buffer.add(at).write(byte_at(offset as usize + at)) };
        }
        Ok(bytes)
    }
}

fn failing() -> (Arc<Failing>, Mmap) {
    let store = Arc::<Failing>::default();
    // SAFETY: all that it answers is the same each time.
    let map = unsafe { engine().map_store(store.clone()) }.unwrap();
    (store, map)
}

/// A page that failed, by its address; and the store that then works.
static FAILED: AtomicUsize = AtomicUsize::new(0);
static WORKS: AtomicBool = AtomicBool::new(false);

extern "C" fn cure(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel hands a valid structure on.
    FAILED.store(unsafe { (*info).si_addr() } as usize, SeqCst);
    WORKS.store(true, SeqCst);
}

#[test]
fn errors_become_sigbus() {
    let test = "errors_become_sigbus";
    let touch = |map: &Mmap| {
        // SAFETY: a byte of the map; the result is the test's.
        unsafe { map.as_ptr().add(5 * PAGE_SIZE + 7).read_volatile() };
    };
    let Some(scenario) = child::scenario() else {
        for ends in [
            "default",
            "blocked",
            "blocked, and no number is left",
            "blocked, and none is allowed",
            "ignored",
            "returns for ever",
            "truncated",
        ] {
            child::dies_of(libc::SIGBUS, test, ends);
        }
        child::succeeds(test, "cured");
        child::succeeds(test, "interrupted");
        return;
    };
    // SAFETY: a process that hangs is killed, by another signal.
    unsafe { libc::alarm(300) };
    match &*scenario {
        "default" => {
            let (_, map) = failing();
            install(libc::SIGBUS, 0, libc::SIG_DFL);
            touch(&map);
        }
        "blocked" => {
            block(&[libc::SIGBUS], libc::SIG_BLOCK);
            let (_, map) = failing();
            touch(&map);
        }
        // Failed before: with no number for the file that tells it, the signal counted as not blocked, and the touch was made for ever.
        "blocked, and no number is left" => {
            block(&[libc::SIGBUS], libc::SIG_BLOCK);
            let file = made_file("no-number", 16 * PAGE_SIZE);
            let engine = engine();
            let map = map(&engine, &file);
            check(&map, 0);
            engine.truncate(&file, PAGE_SIZE as u64).unwrap();
            use_up_numbers();
            touch(&map);
        }
        // Failed before: the touch was made for ever, as nothing told that the signal is blocked.
        "blocked, and none is allowed" => {
            block(&[libc::SIGBUS], libc::SIG_BLOCK);
            let (_, map) = failing();
            allow_numbers(0);
            touch(&map);
        }
        "ignored" => {
            install(libc::SIGBUS, 0, libc::SIG_IGN);
            let (_, map) = failing();
            touch(&map);
        }
        "returns for ever" => {
            extern "C" fn gives_up(_: i32) {
                if SEEN.fetch_add(1, SeqCst) == 10 {
                    // SAFETY: restores the default.
                    unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
                }
            }
            install(libc::SIGBUS, 0, gives_up as *const () as usize);
            let (_, map) = failing();
            touch(&map);
        }
        "truncated" => {
            install(libc::SIGBUS, 0, libc::SIG_DFL);
            let file = made_file("truncated", 16 * PAGE_SIZE);
            let engine = engine();
            let map = map(&engine, &file);
            check(&map, 0);
            engine.truncate(&file, PAGE_SIZE as u64).unwrap();
            check(&map, 0);
            touch(&map);
        }
        "cured" => {
            let (store, map) = failing();
            let handler = cure as *const () as usize;
            install(libc::SIGBUS, libc::SA_SIGINFO, handler);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !WORKS.load(SeqCst) {
                        std::thread::yield_now();
                    }
                    store.works.store(true, SeqCst);
                });
                check(&map, 5 * PAGE_SIZE + 7);
            });
            let page = FAILED.load(SeqCst) - map.as_ptr() as usize;
            assert_eq!(
                page / PAGE_SIZE,
                5,
                "the page, and the byte on a newer kernel"
            );
            check(&map, 6 * PAGE_SIZE);
        }
        "interrupted" => {
            // The error of a touch that a signal has interrupted is raised once, by the touch that
            // came after it.
            let (store, map) = failing();
            store.slow.store(true, SeqCst);
            install(
                libc::SIGUSR1,
                libc::SA_RESTART,
                foreign as *const () as usize,
            );
            install(libc::SIGBUS, libc::SA_SIGINFO, cure as *const () as usize);
            // SAFETY: only asks.
            let main = unsafe { libc::pthread_self() } as usize;
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for sent in 1..=20 {
                        // SAFETY: that thread waits for this one.
                        unsafe { libc::pthread_kill(main as libc::pthread_t, libc::SIGUSR1) };
                        while SEEN.load(SeqCst) < sent {
                            std::thread::yield_now();
                        }
                    }
                    store.slow.store(false, SeqCst);
                    while !WORKS.load(SeqCst) {
                        std::thread::yield_now();
                    }
                    store.works.store(true, SeqCst);
                });
                check(&map, 5 * PAGE_SIZE + 7);
            });
        }
        other => panic!("{other}"),
    }
}

#[test]
fn the_first_engine_chooses_how_faults_are_served() {
    each(
        "the_first_engine_chooses_how_faults_are_served",
        &[
            ("threads", || {
                let engine = engine();
                for fallback in [Fallback::Error, Fallback::Kernel] {
                    let other = Engine::builder()
                        .allow_kernel_maps(false)
                        .faults(Faults::Signals)
                        .fallback(fallback);
                    let error = other.build().unwrap_err();
                    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
                    assert!(error.to_string().contains("faults by threads"), "{error}");
                }
                self::engine();
                read_it(&engine);
            }),
            ("signals", || {
                let first = Engine::builder()
                    .allow_kernel_maps(false)
                    .memory(BUDGET)
                    .faults(Faults::Signals);
                let first = first.build().unwrap();
                let other = Engine::builder()
                    .allow_kernel_maps(false)
                    .faults(Faults::Threads);
                let error = other.build().unwrap_err();
                assert!(error.to_string().contains("faults by signals"), "{error}");
                read_it(&first);
            }),
        ],
    );
}

#[test]
fn a_thread_that_waits_can_be_interrupted_and_killed() {
    let test = "a_thread_that_waits_can_be_interrupted_and_killed";
    extern "C" fn interrupt(_: i32) {
        install(libc::SIGINT, 0, libc::SIG_DFL);
        // SAFETY: to the process, as the terminal does.
        unsafe { libc::kill(libc::getpid(), libc::SIGINT) };
    }
    child::alone(test, || {
        for (signal, ends_by) in [
            (libc::SIGUSR1, libc::SIGINT),
            (libc::SIGKILL, libc::SIGKILL),
        ] {
            let (mut told, tells) = std::io::pipe().unwrap();
            // Its only thread that lets signals in waits for the page.
            let child = start(|| {
                install(libc::SIGUSR1, 0, interrupt as *const () as usize);
                block(&[libc::SIGUSR1, libc::SIGINT], libc::SIG_BLOCK);
                let (store, map) = failing();
                store.slow.store(true, SeqCst);
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        while !store.begun.load(SeqCst) {
                            std::thread::yield_now();
                        }
                        (&tells).write_all(&[1]).unwrap();
                    });
                    block(&[libc::SIGUSR1, libc::SIGINT], libc::SIG_UNBLOCK);
                    // SAFETY: waits for ever.
                    unsafe { map.as_ptr().read_volatile() };
                });
                1
            });
            drop(tells);
            told.read_exact(&mut [0]).unwrap();
            // SAFETY: the child, which was not waited for yet.
            unsafe { libc::kill(child, signal) };
            assert_eq!(wait(child), ends_by);
        }
    });
}

#[test]
fn signal_handlers_touch_maps() {
    static MAP: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn touches(_: i32) {
        let number = SEEN.fetch_add(1, SeqCst);
        let pages = 4 * BUDGET / PAGE_SIZE;
        let at = number.wrapping_mul(7919) % pages * PAGE_SIZE;
        // SAFETY: a byte of the map, which lives longer than the timer.
        let found = unsafe { (MAP.load(SeqCst) as *const u8).add(at).read_volatile() };
        assert_eq!(found, byte_at(at));
    }
    each(
        "signal_handlers_touch_maps",
        &[("timer", || {
            let engine = engine();
            let file = made_file("handlers", 4 * BUDGET);
            let map = map(&engine, &file);
            MAP.store(map.as_ptr() as usize, SeqCst);
            install(
                libc::SIGALRM,
                libc::SA_RESTART,
                touches as *const () as usize,
            );
            let often = libc::timeval {
                tv_sec: 0,
                tv_usec: 1000,
            };
            let timer = libc::itimerval {
                it_interval: often,
                it_value: often,
            };
            // SAFETY: a timer of this process.
            unsafe { libc::setitimer(libc::ITIMER_REAL, &timer, core::ptr::null_mut()) };
            let pages = map.len() / PAGE_SIZE;
            let mut step = 0_usize;
            while SEEN.load(SeqCst) < 300 {
                step += 1;
                check(&map, step.wrapping_mul(4099) % pages * PAGE_SIZE);
            }
            // SAFETY: stops it.
            unsafe {
                let never: libc::itimerval = core::mem::zeroed();
                libc::setitimer(libc::ITIMER_REAL, &never, core::ptr::null_mut());
            }
            // Another thread may be in the handler yet.
            core::mem::forget(map);
        })],
    );
}

#[test]
fn engines_come_and_go() {
    each(
        "engines_come_and_go",
        &[("rounds", || {
            let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
            read_it(&engine());
            for _ in 0..20 {
                let engine = engine();
                let file = made_file("rounds", BUDGET);
                let map = map(&engine, &file);
                (0..map.len())
                    .step_by(PAGE_SIZE)
                    .for_each(|at| check(&map, at));
            }
            // Those that serve are the process's, and bounded; nobody sleeps in a fault.
            assert!(threads() < 64 + 8, "{}", threads());
        })],
    );
}
