//! Faults among the signals of a program.

mod child;
mod files;

use files::{byte_at, check, made_file, map};
use softfault::{Advice, AsyncReads, Engine, MIN_MEMORY, Mmap};
use softfault_engine::PAGE_SIZE;
use softfault_engine::store::{Store, StoreError};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Condvar, Mutex};

fn engine() -> Engine {
    files::engine(8 << 20)
}

fn install(signal: i32, flags: i32, handler: usize) {
    // SAFETY: the callers' handlers suit their flags.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = flags;
        assert_eq!(libc::sigaction(signal, &action, core::ptr::null_mut()), 0);
    }
}

/// The calling thread's mask, changed by `change`; returns it as it was.
fn mask(how: i32, signals: &[i32]) -> u64 {
    // SAFETY: valid sets; the kernel's signals are the first 64 bits.
    unsafe {
        let (mut set, mut before): (libc::sigset_t, libc::sigset_t) = core::mem::zeroed();
        libc::sigemptyset(&mut set);
        for &signal in signals {
            libc::sigaddset(&mut set, signal);
        }
        assert_eq!(libc::pthread_sigmask(how, &set, &mut before), 0);
        core::ptr::from_ref(&before).cast::<u64>().read_unaligned()
    }
}

#[test]
fn errno_is_kept_across_faults() {
    let file = made_file("errno", 16 << 20);
    let engine = engine();
    let map = map(&engine, &file);
    let errno = libc::__errno_location;
    for round in 0..2 {
        for page in 0..map.len() / PAGE_SIZE {
            let page = (page * 37 + round) % (map.len() / PAGE_SIZE);
            // SAFETY: this thread's errno, and a byte within the map.
            let after = unsafe {
                errno().write_volatile(7777);
                map.as_ptr().add(page * PAGE_SIZE).read_volatile();
                errno().read_volatile()
            };
            assert_eq!(after, 7777, "page {page}");
        }
    }
    assert!(engine.stats().evicted > 0);
}

/// A store that tells of each read, and reads only when it is let.
struct Gate {
    bytes: u64,
    /// The mask in which the last read ran.
    mask_in_read: AtomicU64,
    /// Reads that have begun.
    begun: AtomicUsize,
    /// Opened by the test.
    open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn new(open: bool) -> Arc<Self> {
        Arc::new(Self {
            bytes: 1 << 20,
            mask_in_read: AtomicU64::new(0),
            begun: AtomicUsize::new(0),
            open: Mutex::new(open),
            opened: Condvar::new(),
        })
    }

    fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
    }

    fn wait_begun(&self, count: usize) {
        while self.begun.load(SeqCst) < count {
            std::thread::yield_now();
        }
    }
}

impl Store for Gate {
    fn len(&self) -> Result<u64, StoreError> {
        Ok(self.bytes)
    }

    unsafe fn read(&self, offset: u64, buffer: *mut u8, bytes: usize) -> Result<usize, StoreError> {
        self.mask_in_read.store(mask(libc::SIG_BLOCK, &[]), SeqCst);
        self.begun.fetch_add(1, SeqCst);
        let open = self.open.lock().unwrap();
        drop(self.opened.wait_while(open, |open| !*open).unwrap());
        for at in 0..bytes {
            // SAFETY: the caller's promise.
            unsafe { buffer.add(at).write(byte_at(offset as usize + at)) };
        }
        Ok(bytes)
    }
}

#[test]
fn all_signals_are_masked_in_the_handler_and_none_afterwards() {
    let gate = Gate::new(true);
    // SAFETY: the gate answers the same each time.
    let map = unsafe { engine().map_store(gate.clone()) }.unwrap();
    let before = mask(libc::SIG_BLOCK, &[libc::SIGUSR2]);
    check(&map, 0);
    let after = mask(libc::SIG_UNBLOCK, &[libc::SIGUSR2]);
    assert_eq!(after, before | 1 << (libc::SIGUSR2 - 1));
    let within = gate.mask_in_read.load(SeqCst);
    for signal in (1..=31).chain(35..=64) {
        let may = [libc::SIGKILL, libc::SIGSTOP].contains(&signal);
        assert_eq!(within >> (signal - 1) & 1 == 0, may, "signal {signal}");
    }
    check(&map, 300_000);
    assert_eq!(mask(libc::SIG_BLOCK, &[]), before);
}

static DELIVERED: AtomicUsize = AtomicUsize::new(0);

extern "C" fn count(_: i32) {
    DELIVERED.fetch_add(1, SeqCst);
}

#[test]
fn a_thread_that_waits_for_a_page_gets_its_signals_first() {
    let test = "a_thread_that_waits_for_a_page_gets_its_signals_first";
    if child::scenario().is_none() {
        return child::succeeds(test, "waits");
    }
    install(libc::SIGUSR1, 0, count as *const () as usize);
    let gate = Gate::new(false);
    let engine = engine();
    // SAFETY: the gate answers the same each time.
    let map = unsafe { engine.map_store(gate.clone()) }.unwrap();
    map.advise(Advice::Random).unwrap();
    std::thread::scope(|scope| {
        let (map, gate) = (&map, &gate);
        scope.spawn(|| check(map, 10));
        gate.wait_begun(1);
        // A second thread waits for the page that the first one reads.
        let (tell, told) = std::sync::mpsc::channel();
        scope.spawn(move || {
            // SAFETY: only asks.
            tell.send(unsafe { libc::pthread_self() } as usize).unwrap();
            check(map, 20);
        });
        let waiter = told.recv().unwrap();
        for expected in 1..=3 {
            // SAFETY: the thread lives: it waits for the page.
            unsafe { libc::pthread_kill(waiter as libc::pthread_t, libc::SIGUSR1) };
            while DELIVERED.load(SeqCst) < expected {
                std::thread::yield_now();
            }
        }
        // All were delivered while the page was not there.
        assert_eq!(gate.begun.load(SeqCst), 1);
        gate.open();
    });
    assert_eq!(DELIVERED.load(SeqCst), 3);
}

#[test]
fn sigint_ends_a_process_whose_threads_wait_in_faults() {
    let test = "sigint_ends_a_process_whose_threads_wait_in_faults";
    child::alone(test, || {
        // In a process that has no thread of the test harness, which lets the signal in.
        let status = child::forked(|| {
            // A job in the background of a script is started with SIGINT ignored.
            install(libc::SIGINT, 0, libc::SIG_DFL);
            mask(libc::SIG_BLOCK, &[libc::SIGINT]);
            let gate = Gate::new(false);
            // SAFETY: the gate answers the same each time.
            let map: &'static Mmap = Box::leak(Box::new(
                unsafe { engine().map_store(gate.clone()) }.unwrap(),
            ));
            map.advise(Advice::Random).unwrap();
            // It reads, with all signals blocked.
            std::thread::spawn(|| check(map, 10));
            gate.wait_begun(1);
            // Only these let the signal in, and only once they wait for the page.
            let waiters: Vec<_> = (0..4).map(|_| waiter(map)).collect();
            waiters.iter().for_each(|&thread| wait_asleep(thread));
            // SAFETY: sends this process a signal.
            unsafe { libc::kill(libc::getpid(), libc::SIGINT) };
            loop {
                std::thread::park();
            }
        });
        assert!(libc::WIFSIGNALED(status), "status {status:#x}");
        assert_eq!(libc::WTERMSIG(status), libc::SIGINT);
    });
}

/// Starts a thread that lets SIGINT in and touches the map. Answers its number.
fn waiter(map: &'static Mmap) -> libc::pid_t {
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        mask(libc::SIG_UNBLOCK, &[libc::SIGINT]);
        // SAFETY: only asks.
        tell.send(unsafe { libc::gettid() }).unwrap();
        check(map, 10);
    });
    told.recv().unwrap()
}

/// Returns when a thread of this process sleeps in a way that a signal can end.
fn wait_asleep(thread: libc::pid_t) {
    let state = || {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap();
        stat.rsplit_once(") ").unwrap().1.starts_with('S')
    };
    while !state() {
        std::thread::yield_now();
    }
}

#[test]
fn sigint_ends_a_thread_that_waits_in_a_pin() {
    let test = "sigint_ends_a_thread_that_waits_in_a_pin";
    if child::scenario().is_none() {
        return child::dies_of(libc::SIGINT, test, "sigint");
    }
    // A job in the background of a script is started with SIGINT ignored.
    install(libc::SIGINT, 0, libc::SIG_DFL);
    let gate = Gate::new(false);
    // SAFETY: the gate answers the same each time.
    let map: &'static Mmap = Box::leak(Box::new(
        unsafe { engine().map_store(gate.clone()) }.unwrap(),
    ));
    std::thread::spawn(|| check(map, 10));
    gate.wait_begun(1);
    let (tell, told) = std::sync::mpsc::channel();
    let waiter = std::thread::spawn(move || {
        // SAFETY: only asks.
        tell.send(unsafe { libc::pthread_self() } as usize).unwrap();
        let _ = map.pin(0..100);
        unreachable!("the page never comes");
    });
    // SAFETY: the thread lives: it waits for the page.
    unsafe { libc::pthread_kill(told.recv().unwrap() as libc::pthread_t, libc::SIGINT) };
    let _ = waiter.join();
}

static MAP: AtomicPtr<Mmap> = AtomicPtr::new(core::ptr::null_mut());
static TOUCHED: AtomicUsize = AtomicUsize::new(0);
static WRONG: AtomicUsize = AtomicUsize::new(0);

extern "C" fn touch(_: i32) {
    // SAFETY: set before the handler is installed, and leaked.
    let map = unsafe { &*MAP.load(SeqCst) };
    for _ in 0..3 {
        let touched = TOUCHED.fetch_add(1, SeqCst);
        let offset = touched.wrapping_mul(0x9E37_79B9) % map.len();
        // SAFETY: within the map.
        let found = unsafe { map.as_ptr().add(offset).read_volatile() };
        if found != byte_at(offset) {
            WRONG.fetch_add(1, SeqCst);
        }
    }
}

/// Signals a thread that runs `work` over and over, until its handler has
/// touched a map `touches` times.
fn disturb(touches: usize, work: impl Fn(usize) + Send) {
    let stop = AtomicUsize::new(0);
    let started = Barrier::new(2);
    std::thread::scope(|scope| {
        let (tell, told) = std::sync::mpsc::channel();
        let (stop, started) = (&stop, &started);
        scope.spawn(move || {
            // SAFETY: only asks.
            tell.send(unsafe { libc::pthread_self() } as usize).unwrap();
            started.wait();
            let mut round = 0;
            loop {
                work(round);
                round += 1;
                if stop.load(SeqCst) != 0 {
                    break;
                }
            }
        });
        let worker = told.recv().unwrap();
        started.wait();
        let mut sent = TOUCHED.load(SeqCst);
        let end = sent + touches;
        while sent < end {
            // SAFETY: the thread lives: it has not been told to stop.
            unsafe { libc::pthread_kill(worker as libc::pthread_t, libc::SIGUSR1) };
            // The handler of the last signal has run, so none is merged.
            while TOUCHED.load(SeqCst) <= sent {
                std::thread::yield_now();
            }
            sent = TOUCHED.load(SeqCst);
        }
        stop.store(1, SeqCst);
    });
    assert_eq!(WRONG.load(SeqCst), 0);
}

#[test]
fn a_handler_may_touch_maps_at_any_interruption() {
    let test = "a_handler_may_touch_maps_at_any_interruption";
    if child::scenario().is_none() {
        return child::succeeds(test, "disturbed");
    }
    // SAFETY: a deadlock is killed rather than waited for.
    unsafe { libc::alarm(300) };
    let file = made_file("touched", 16 << 20);
    let others: Vec<_> = (0..4)
        .map(|i| made_file(&format!("other{i}"), 2 << 20))
        .collect();
    let engine = files::engine(16 << 20);
    let touched = Box::leak(Box::new(map(&engine, &file)));
    MAP.store(touched, SeqCst);
    install(libc::SIGUSR1, libc::SA_RESTART, touch as *const () as usize);
    const TOUCHES: usize = 1500;
    disturb(TOUCHES, |round| {
        let other = map(&engine, &others[round % 4]);
        check(&other, round * 4097 % other.len());
    });
    let other = map(&engine, &others[0]);
    disturb(TOUCHES, |round| {
        let advice = [Advice::Random, Advice::Normal, Advice::Sequential][round % 3];
        let from = round * PAGE_SIZE % (1 << 20);
        other.advise_range(advice, from, 1 << 19).unwrap();
        check(&other, from);
    });
    disturb(TOUCHES, |round| {
        let from = round * 77_777 % (1 << 20);
        let pinned = other.pin(from..from + 300_000).unwrap();
        assert_eq!(pinned[299_999], byte_at(from + 299_999));
    });
    disturb(TOUCHES, |round| {
        other.invalidate(..).unwrap();
        other.prefetch(..).unwrap();
        check(&other, round * 4099 % other.len());
        engine
            .set_memory((8 << 20) + round % 2 * (4 << 20))
            .unwrap();
    });
    // An engine comes and goes under the budget that the handler's faults need.
    let built = AtomicUsize::new(0);
    disturb(1000, |round| {
        let nested = Engine::builder()
            .allow_kernel_maps(false)
            .memory(MIN_MEMORY)
            .within(&engine);
        if let Ok(nested) = nested.async_reads(AsyncReads::Never).build() {
            built.fetch_add(1, SeqCst);
            let other = map(&nested, &others[round % 4]);
            check(&other, round * 4097 % other.len());
        }
    });
    assert!(built.load(SeqCst) > 0);
    // The handler interrupts faults of the thread itself.
    disturb(TOUCHES, |round| {
        check(touched, round * 1021 * PAGE_SIZE % touched.len())
    });
}

static SEEN: [AtomicUsize; 3] = [const { AtomicUsize::new(0) }; 3];

extern "C" fn previous(signal: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel's arguments of a handler.
    unsafe {
        SEEN[0].store(signal as usize, SeqCst);
        SEEN[1].store((*info).si_code as usize, SeqCst);
        SEEN[2].store((*info).si_addr() as usize, SeqCst);
        if (*info).si_code > 0 {
            // Of a fault: print the answer that the test asks for, and end.
            libc::_exit(if SEEN[2].load(SeqCst) == EXPECTED.load(SeqCst) {
                42
            } else {
                43
            });
        }
    }
}

static EXPECTED: AtomicUsize = AtomicUsize::new(0);

/// A page of a kernel mapping past the end of its file.
fn foreign_page() -> *const u8 {
    let file = made_file("foreign", 3 * PAGE_SIZE);
    // SAFETY: a new mapping.
    let page = unsafe {
        libc::mmap(
            core::ptr::null_mut(),
            3 * PAGE_SIZE,
            libc::PROT_READ,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    assert_ne!(page, libc::MAP_FAILED);
    file.set_len(PAGE_SIZE as u64).unwrap();
    // SAFETY: within the mapping.
    unsafe { page.cast::<u8>().add(PAGE_SIZE + 123) }
}

#[test]
fn a_sigbus_that_is_not_ours_goes_to_the_handler_before() {
    let test = "a_sigbus_that_is_not_ours_goes_to_the_handler_before";
    let served = || {
        let file = made_file("served", 1 << 20);
        check(&map(&engine(), &file), 70_000);
    };
    match child::scenario().as_deref() {
        None => {
            let output = child::run(test, "handler");
            assert_eq!(output.status.code(), Some(42), "not the same address");
            child::dies_of(libc::SIGBUS, test, "default");
            child::dies_of(libc::SIGBUS, test, "ignored");
            child::dies_of(libc::SIGBUS, test, "std");
            child::succeeds(test, "raise");
            child::dies_of(libc::SIGBUS, test, "raise default");
            child::succeeds(test, "raise ignored");
        }
        Some(how @ ("handler" | "default" | "ignored" | "std")) => {
            match how {
                "handler" => install(
                    libc::SIGBUS,
                    libc::SA_SIGINFO,
                    previous as *const () as usize,
                ),
                "default" => install(libc::SIGBUS, 0, libc::SIG_DFL),
                "ignored" => install(libc::SIGBUS, 0, libc::SIG_IGN),
                _ => {}
            }
            served();
            let page = foreign_page();
            EXPECTED.store(page as usize, SeqCst);
            // SAFETY: mapped, past the end of the file: it ends the process.
            unsafe { page.read_volatile() };
            unreachable!();
        }
        Some("raise") => {
            install(
                libc::SIGBUS,
                libc::SA_SIGINFO,
                previous as *const () as usize,
            );
            served();
            // SAFETY: raises a signal in this thread.
            unsafe { libc::raise(libc::SIGBUS) };
            assert_eq!(SEEN[0].load(SeqCst), libc::SIGBUS as usize);
            assert_eq!(SEEN[1].load(SeqCst) as i32, libc::SI_TKILL);
            served();
            // SAFETY: sends this process a signal.
            unsafe { libc::kill(libc::getpid(), libc::SIGBUS) };
            while SEEN[1].load(SeqCst) as i32 != libc::SI_USER {
                std::thread::yield_now();
            }
            served();
        }
        Some("raise default") => {
            install(libc::SIGBUS, 0, libc::SIG_DFL);
            served();
            // SAFETY: raises a signal in this thread.
            unsafe { libc::raise(libc::SIGBUS) };
            unreachable!();
        }
        Some(_) => {
            install(libc::SIGBUS, 0, libc::SIG_IGN);
            served();
            // SAFETY: raises a signal in this thread.
            unsafe { libc::raise(libc::SIGBUS) };
            served();
        }
    }
}

extern "C" fn later(_: i32) {
    // SAFETY: ends the process.
    unsafe { libc::_exit(44) };
}

#[test]
fn a_later_handler_stays_in_front_where_it_is_trusted() {
    let test = "a_later_handler_stays_in_front_where_it_is_trusted";
    if child::scenario().is_none() {
        return child::succeeds(test, "later");
    }
    let file = made_file("later", 1 << 20);
    let trusting = Engine::builder()
        .allow_kernel_maps(false)
        .memory(8 << 20)
        .trust_signal_handlers(true);
    let trusting = trusting.build().unwrap();
    check(&map(&trusting, &file), 0);
    install(libc::SIGBUS, 0, later as *const () as usize);
    let kept = map(&trusting, &file);
    kept.advise(Advice::Random).unwrap();
    assert!(trusting.stats().faults > 0);
    // SAFETY: asks, and fills the structure.
    let now = unsafe {
        let mut now: libc::sigaction = core::mem::zeroed();
        libc::sigaction(libc::SIGBUS, core::ptr::null(), &mut now);
        now.sa_sigaction
    };
    assert_eq!(now, later as *const () as usize);
}

#[test]
fn sigbus_blocked_in_the_thread_is_noticed_at_map() {
    // Where threads serve the faults, it does not matter.
    if std::env::var_os("SOFTFAULT_FAULTS").is_some_and(|how| how == "threads") {
        return;
    }
    let file = made_file("blocked", 1 << 20);
    let engine = engine();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            mask(libc::SIG_BLOCK, &[libc::SIGBUS]);
            // SAFETY: nobody writes to the file.
            let error = unsafe { engine.map(&file) }.unwrap_err();
            assert!(error.to_string().contains("SIGBUS is blocked"), "{error}");
            mask(libc::SIG_UNBLOCK, &[libc::SIGBUS]);
            check(&map(&engine, &file), 5);
        });
    });
}
