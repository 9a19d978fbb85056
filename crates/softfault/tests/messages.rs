//! Faults of the kernel's own that threads of the engine serve ([`Faults::Messages`]), and places that are handed back to
//! the kernel, in processes of their own.

mod child;
mod files;

use files::{byte_at, check, made_file, use_up_numbers};
use softfault::{
    Advice, Engine, Faults, KernelMapping, Mmap, MmapMut, MmapOptions, Reads, Swap, UncheckedAdvice,
};
use softfault_engine::PAGE_SIZE;
use softfault_engine::store::{Store, StoreError};
use std::io::{Read as _, Write};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

const BUDGET: usize = 8 << 20;
const BYTES: usize = 4 * BUDGET + 100;

fn engine(faults: Faults) -> Option<Engine> {
    let builder = Engine::builder().allow_kernel_maps(false).small_maps(0);
    match builder.memory(BUDGET).faults(faults).build() {
        Ok(engine) => Some(engine),
        Err(why) if faults == Faults::Messages => {
            softfault_skip::skipped(
                "messages",
                format_args!("the kernel's faults cannot be served here: {why}"),
            );
            None
        }
        Err(why) => panic!("{why}"),
    }
}

/// Runs `scenario` in a process of its own, and ends it if it hangs.
#[track_caller]
fn alone(test: &str, scenario: fn()) {
    match child::scenario() {
        None => child::succeeds(test, "alone"),
        Some(_) => {
            // SAFETY: a process that hangs is killed rather than waited for.
            unsafe { libc::alarm(300) };
            scenario();
        }
    }
}

#[test]
fn system_calls_wait_for_pages() {
    alone("system_calls_wait_for_pages", || {
        let Some(engine) = engine(Faults::Messages) else {
            return;
        };
        let file = made_file("messages", BYTES);
        // SAFETY: nobody writes to the file.
        let map = unsafe { engine.map(&file) }.unwrap();
        let (mut end, mut other) = std::os::unix::net::UnixStream::pair().unwrap();
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            other.read_to_end(&mut all).unwrap();
            all
        });
        end.write_all(&map).unwrap();
        drop(end);
        let all = reader.join().unwrap();
        assert_eq!(all.len(), BYTES);
        assert!(
            (0..BYTES).all(|at| all[at] == byte_at(at)),
            "the written bytes"
        );
        let stats = engine.stats();
        assert!(stats.evicted > 0 && stats.failed_touches == 0);
        assert!(stats.peak_bytes <= BUDGET as u64);
        // Private memory, into which the kernel writes.
        let mut memory = engine.map_anon(16 * PAGE_SIZE).unwrap();
        let read = std::os::unix::fs::FileExt::read_at(&file, &mut memory, 12345).unwrap();
        assert_eq!(read, memory.len());
        assert!(
            (0..read).all(|at| memory[at] == byte_at(12345 + at)),
            "the read bytes"
        );
    });
}

/// Threads that read a file each, in order, over and over, under an eighth of the size of all files: none of them is passed over. The
/// others' reads meanwhile are counted, and not how long they take. Reads through the page cache are waited for, so that one thread of the engine after the
/// other reads messages, a few at a time.
#[test]
fn every_thread_gets_round() {
    alone("every_thread_gets_round", || {
        const THREADS: usize = 64;
        const EACH: usize = 8 * BUDGET / THREADS;
        let builder = Engine::builder()
            .reads(Reads::Cached)
            .allow_kernel_maps(false);
        let builder = builder.small_maps(0).faults(Faults::Messages);
        let engine = match builder.memory(BUDGET).build() {
            Ok(engine) => engine,
            Err(why) => {
                let why = format_args!("the kernel's faults cannot be served here: {why}");
                return softfault_skip::skipped("messages", why);
            }
        };
        // All are there before the first read: none is passed over while it waits for the disk to have its file.
        let files = [(); THREADS].map(|()| made_file("round", EACH));
        let stop = AtomicBool::new(false);
        let rounds = [const { AtomicUsize::new(0) }; THREADS];
        std::thread::scope(|scope| {
            for (its, file) in rounds.iter().zip(&files) {
                let (engine, stop) = (&engine, &stop);
                scope.spawn(move || {
                    while !stop.load(SeqCst) {
                        // SAFETY: nobody writes to the file.
                        let map = unsafe { engine.map(file) }.unwrap();
                        for offset in (0..EACH).step_by(PAGE_SIZE) {
                            check(&map, offset);
                            if stop.load(SeqCst) {
                                return;
                            }
                        }
                        its.fetch_add(1, SeqCst);
                    }
                });
            }
            // Of the reads of one pass over all files.
            let most = 20 * (THREADS * EACH / PAGE_SIZE) as u64;
            let all = || rounds.iter().all(|its| its.load(SeqCst) > 0);
            while !all() && engine.stats().evicted < most {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            stop.store(true, SeqCst);
        });
        let rounds = rounds.map(|its| its.load(SeqCst));
        assert!(!rounds.contains(&0), "passed over: {rounds:?}");
        assert!(engine.stats().peak_bytes <= BUDGET as u64);
    });
}

/// Threads of this process by name.
fn threads_named(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let its = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm"));
    let names = tasks.map(|task| its(task.unwrap()).unwrap_or_default());
    names.filter(|its| its.trim_end() == name).count()
}

/// Reads past the page cache are under way, and no thread of ours sleeps in one: before, each had a thread to itself.
#[test]
fn many_reads_take_no_thread_each() {
    alone("many_reads_take_no_thread_each", || {
        const THREADS: usize = 32;
        let builder = Engine::builder().allow_kernel_maps(false).small_maps(0);
        let builder = builder.memory(64 << 20).reads(Reads::Direct);
        let engine = builder.faults(Faults::Threads).build().unwrap();
        let file = made_file("reads", THREADS * 64 * PAGE_SIZE);
        // SAFETY: nobody writes to the file.
        let map = unsafe { engine.map(&file) }.unwrap();
        map.advise(Advice::Random).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let map = &map;
                scope.spawn(move || {
                    for page in 0..64 {
                        check(map, (page * THREADS + thread) * PAGE_SIZE);
                    }
                });
            }
        });
        if engine.stats().read_direct_bytes == 0 {
            return softfault_skip::skipped(
                "direct",
                "the temporary directory has no direct reads",
            );
        }
        // A read that has to be waited for after all, as where the device's queue is full, is begun anew by a thread, and counted again.
        const READS: u64 = THREADS as u64 * 64;
        let waited = engine.stats().major_faults - READS;
        assert!(waited < READS / 8, "{waited}");
        assert_eq!(threads_named("softfault-reads"), 1);
        // Two at first, and another one where a fault found none to wait in: that is the scheduler's.
        let serving = threads_named("softfault-serve");
        let most = THREADS / 4 + waited as usize;
        assert!((1..most).contains(&serving), "{serving}, {waited}");
    });
}

/// A thread that writes to a file has the file's lock while it sleeps in a fault on the memory that it writes from. Failed before: the thread that delivers
/// the completions of all reads waited for that lock, to repeat a read of the file that could not be had without it; so the fault's read
/// was never delivered. Or all threads that serve faults waited for the lock, and nobody read the fault's message.
#[test]
fn a_writer_that_sleeps_in_a_fault_holds_no_other_read_up() {
    alone(
        "a_writer_that_sleeps_in_a_fault_holds_no_other_read_up",
        || {
            const PAGES: usize = 2048;
            let builder = Engine::builder().allow_kernel_maps(false).small_maps(0);
            let builder = builder.memory(BUDGET).reads(Reads::Direct);
            let engine = match builder.faults(Faults::Messages).build() {
                Ok(engine) => engine,
                Err(why) => {
                    let why = format_args!("the kernel's faults cannot be served here: {why}");
                    return softfault_skip::skipped("messages", why);
                }
            };
            // Both have the same bytes, so that what is written changes nothing.
            let [source, target] =
                ["source", "target"].map(|name| made_file(name, PAGES * PAGE_SIZE));
            // SAFETY: nobody changes a byte of the files.
            let maps = [&source, &target].map(|file| unsafe { engine.map(file) }.unwrap());
            maps.iter()
                .for_each(|map| map.advise(Advice::Random).unwrap());
            let (from, to) = (&maps[0], &maps[1]);
            let is_over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for at in (0..PAGES * PAGE_SIZE).step_by(PAGE_SIZE) {
                        let page = &from[at..at + PAGE_SIZE];
                        let write = std::os::unix::fs::FileExt::write_all_at;
                        write(&target, page, at as u64).unwrap();
                    }
                    is_over.store(true, SeqCst);
                });
                // Readers of the same pages: one waits for the file, and the others for its page.
                for _ in 0..3 {
                    scope.spawn(|| {
                        let pages = (0..PAGES).rev().take_while(|_| !is_over.load(SeqCst));
                        pages.for_each(|page| check(to, page * PAGE_SIZE));
                    });
                }
            });
            for page in 0..PAGES {
                check(to, page * PAGE_SIZE);
            }
            if engine.stats().read_direct_bytes == 0 {
                softfault_skip::skipped("direct", "the temporary directory has no direct reads");
            }
        },
    );
}

/// A store that cannot be read.
struct Broken;

impl Store for Broken {
    fn len(&self) -> Result<u64, StoreError> {
        Ok(1 << 20)
    }

    unsafe fn read(&self, _: u64, _: *mut u8, _: usize) -> Result<usize, StoreError> {
        Err(StoreError::Io(libc::EIO))
    }
}

static SIGNALS: AtomicUsize = AtomicUsize::new(0);

extern "C" fn count(_: i32) {
    SIGNALS.fetch_add(1, SeqCst);
}

/// A store whose pages cannot be read until a handler has run.
struct Cured;

static IS_CURED: AtomicBool = AtomicBool::new(false);

extern "C" fn cure(_: i32) {
    if IS_CURED.swap(true, SeqCst) {
        // SAFETY: ends the process, to which the kernel refuses the page again.
        unsafe { libc::_exit(3) };
    }
}

impl Store for Cured {
    fn len(&self) -> Result<u64, StoreError> {
        Ok(1 << 20)
    }

    unsafe fn read(&self, _: u64, buffer: *mut u8, bytes: usize) -> Result<usize, StoreError> {
        if !IS_CURED.load(SeqCst) {
            return Err(StoreError::Io(libc::EIO));
        }
        // SAFETY: the caller's promise.
        unsafe { buffer.write_bytes(7, bytes) };
        Ok(bytes)
    }
}

/// Failed before: with no number for the file that tells it, the touch counted as one in a system call, and the kernel refused the page
/// for good.
#[test]
fn a_touch_that_fails_while_no_number_is_left_is_no_system_call() {
    alone(
        "a_touch_that_fails_while_no_number_is_left_is_no_system_call",
        || {
            let Some(engine) = engine(Faults::Messages) else {
                return;
            };
            // SAFETY: what it answers stays the same.
            let map = unsafe { engine.map_store(Arc::new(Cured)) }.unwrap();
            // SAFETY: a function that suits the signal.
            unsafe { libc::signal(libc::SIGBUS, cure as *const () as usize) };
            use_up_numbers();
            assert_eq!(map[5 * PAGE_SIZE], 7);
        },
    );
}

#[test]
fn a_system_call_whose_page_cannot_be_had_fails() {
    alone("a_system_call_whose_page_cannot_be_had_fails", || {
        let Some(engine) = engine(Faults::Messages) else {
            return;
        };
        // SAFETY: it answers nothing.
        let map = unsafe { engine.map_store(Arc::new(Broken)) }.unwrap();
        // SAFETY: a function that suits the signal.
        unsafe { libc::signal(libc::SIGBUS, count as *const () as usize) };
        let (out, _in) = std::os::unix::net::UnixStream::pair().unwrap();
        for page in [0, 5] {
            // SAFETY: bytes of a map.
            let written = unsafe {
                libc::write(
                    out.as_raw_fd(),
                    map.as_ptr().add(page * PAGE_SIZE).cast(),
                    100,
                )
            };
            let why = std::io::Error::last_os_error();
            assert_eq!(
                (written, why.raw_os_error()),
                (-1, Some(libc::EFAULT)),
                "page {page}"
            );
        }
        assert_eq!(
            SIGNALS.load(SeqCst),
            0,
            "no signal for the kernel's own faults"
        );
        assert!(engine.stats().failed_touches >= 2);
    });
}

/// Private memory whose first page a system call could not have, for want of memory. By now there is some.
fn refused_to_a_call(engine: &Engine) -> MmapMut {
    let zeros = std::fs::File::open("/dev/zero").unwrap();
    let memory = engine.map_anon(2 * PAGE_SIZE).unwrap();
    let mut all = engine.map_anon(4 * BUDGET).unwrap();
    let mut pages = all.chunks_mut(PAGE_SIZE);
    let full = pages.find_map(|page| (&zeros).read(page).err());
    assert_eq!(full.unwrap().raw_os_error(), Some(libc::EFAULT));
    let (out, _in) = std::os::unix::net::UnixStream::pair().unwrap();
    // SAFETY: bytes of a map.
    let written = unsafe { libc::write(out.as_raw_fd(), memory.as_ptr().cast(), 100) };
    let why = std::io::Error::last_os_error();
    assert_eq!((written, why.raw_os_error()), (-1, Some(libc::EFAULT)));
    memory
}

/// Failed before: the page counted as zeros that were there, and the copy of it ended the process; or, given up by the program, it
/// raised SIGBUS when it was touched, as the call had left it.
#[test]
fn a_page_that_a_system_call_could_not_have_is_there_later() {
    alone(
        "a_page_that_a_system_call_could_not_have_is_there_later",
        || {
            let Some(engine) = engine(Faults::Messages) else {
                return;
            };
            let memory = refused_to_a_call(&engine);
            let mut bytes = [1; 100];
            assert_eq!(memory.read_at(&mut bytes, 0), Ok(100));
            assert_eq!(bytes, [0; 100]);
            let memory = refused_to_a_call(&engine);
            // SAFETY: no reference to its bytes is used any more.
            unsafe { memory.unchecked_advise(UncheckedAdvice::DontNeed) }.unwrap();
            assert_eq!(memory[..100], [0; 100]);
        },
    );
}

/// Failed before: the call touched the page for ever. It cannot be told of an error where the page is there.
#[test]
fn a_system_call_that_may_not_write_to_a_page_fails() {
    alone("a_system_call_that_may_not_write_to_a_page_fails", || {
        let Some(engine) = engine(Faults::Messages) else {
            return;
        };
        let zeros = std::fs::File::open("/dev/zero").unwrap();
        let mut memory = engine.map_anon(4 * BUDGET).unwrap();
        let page = |number: usize| number * PAGE_SIZE..(number + 1) * PAGE_SIZE;
        // Zeros without memory of their own.
        let last = 4 * BUDGET / PAGE_SIZE - 1;
        assert_eq!(memory[last * PAGE_SIZE], 0);
        let mut fill = |number: usize| (&zeros).read(&mut memory[page(number)]);
        let full = (0..last).find_map(|number| fill(number).err());
        for error in [full.unwrap(), fill(last).unwrap_err()] {
            assert_eq!(error.raw_os_error(), Some(libc::EFAULT));
        }
    });
}

/// Threads that read a window are served by whatever is in its place.
fn handed_back(faults: Faults) {
    let Some(engine) = engine(faults) else { return };
    let file = made_file("handed-back", BYTES);
    // A file that has just been written to is shown by a window for each map.
    std::thread::sleep(std::time::Duration::from_millis(100));
    for _ in 0..20 {
        let mut options = MmapOptions::new();
        // SAFETY: nobody writes to the file.
        let map = |options: &MmapOptions| unsafe { options.map_in(&engine, &file) }.unwrap();
        let whole = map(&options);
        let part = map(options.offset(PAGE_SIZE as u64 * 8).len(BUDGET));
        assert_eq!(
            part.as_ptr() as usize,
            whole.as_ptr() as usize + PAGE_SIZE * 8
        );
        let place = whole.as_ptr() as usize;
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let done = &done;
                scope.spawn(move || {
                    // SAFETY: of a map, and of the kernel's mapping later.
                    let bytes = unsafe { std::slice::from_raw_parts(place as *const u8, BYTES) };
                    let mut at = thread * 1_000_003;
                    while !done.load(SeqCst) {
                        at = (at + 7919 * PAGE_SIZE + 13) % BYTES;
                        check(bytes, at);
                    }
                });
            }
            std::thread::sleep(std::time::Duration::from_millis(2));
            let mapping = KernelMapping {
                addresses: place..place + BYTES.next_multiple_of(PAGE_SIZE),
                protection: libc::PROT_READ,
                sharing: libc::MAP_PRIVATE,
            };
            // SAFETY: all the maps of the window, which nobody asks for anything more.
            unsafe { Mmap::hand_back(vec![whole, part], &[mapping]) }.unwrap();
            std::thread::sleep(std::time::Duration::from_millis(2));
            done.store(true, SeqCst);
        });
        let stats = engine.stats();
        assert_eq!(
            (stats.windows, stats.idle_windows, stats.failed_touches),
            (0, 0, 0)
        );
        let behind = format!("{:x}-", place + BYTES.next_multiple_of(PAGE_SIZE));
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        assert!(!maps.lines().any(|line| line.starts_with(&behind)));
        // It is the program's: it may be written to, and nothing of the engine's throws that away.
        let bytes = BYTES.next_multiple_of(PAGE_SIZE);
        // SAFETY: a private mapping that nobody else uses.
        unsafe {
            assert_eq!(
                libc::mprotect(place as *mut _, bytes, libc::PROT_READ | libc::PROT_WRITE),
                0
            );
            let own = std::slice::from_raw_parts_mut(place as *mut u8, BYTES);
            own[PAGE_SIZE] = 77;
            let again = map(&MmapOptions::new());
            assert!(again.as_ptr() as usize != place);
            for at in (0..BYTES).step_by(PAGE_SIZE) {
                check(&again, at);
            }
            assert_eq!(own[PAGE_SIZE], 77);
            drop(again);
            engine.close_idle();
            assert_eq!(own[PAGE_SIZE], 77);
            libc::munmap(place as *mut _, bytes);
        }
    }
}

#[test]
fn a_window_is_handed_back_under_readers() {
    alone("a_window_is_handed_back_under_readers", || {
        handed_back(Faults::Messages)
    });
}

#[test]
fn a_window_is_handed_back_under_readers_that_signals_serve() {
    alone(
        "a_window_is_handed_back_under_readers_that_signals_serve",
        || {
            handed_back(Faults::Signals);
        },
    );
}

#[test]
fn a_map_with_a_window_of_its_own_reaches_past_the_end() {
    alone(
        "a_map_with_a_window_of_its_own_reaches_past_the_end",
        || {
            let Some(engine) = engine(Faults::Threads) else {
                return;
            };
            let file = made_file("own-window", BYTES);
            // SAFETY: nobody writes to the file.
            let shared = unsafe { engine.map(&file) }.unwrap();
            let mut options = MmapOptions::new();
            let longer = 2 * BYTES;
            options.separate_window(longer as u64).len(longer);
            // SAFETY: as above.
            let own = unsafe { options.map_in(&engine, &file) }.unwrap();
            assert_eq!(own.len(), longer);
            assert_ne!(own.as_ptr(), shared.as_ptr());
            for at in (0..BYTES).step_by(PAGE_SIZE / 2) {
                check(&shared, at);
                check(&own[..BYTES], at);
            }
            assert_eq!(own[BYTES], 0, "the rest of the last page");
            assert!(
                own.pin(BYTES + PAGE_SIZE..BYTES + PAGE_SIZE + 1).is_err(),
                "behind the end"
            );
            drop(own);
            check(&shared, 0);
        },
    );
}

/// The reads of this process, of all its threads: calls of read(2) and its like. `None` where the kernel does not count them.
fn reads() -> Option<u64> {
    let io = std::fs::read_to_string("/proc/self/io").ok()?;
    let line = io.lines().find_map(|line| line.strip_prefix("syscr: "));
    line?.parse().ok()
}

/// A page that is not cached is waited for by one thread while another reads messages on: that one read all descriptors first, of which
/// one had something, and 11 reads were made for a fault.
#[test]
fn a_fault_takes_few_reads() {
    alone("a_fault_takes_few_reads", || {
        let builder = Engine::builder()
            .reads(Reads::Cached)
            .allow_kernel_maps(false);
        let builder = builder.small_maps(0).faults(Faults::Messages);
        let Ok(engine) = builder.memory(BUDGET).build() else {
            softfault_skip::skipped("messages", "the kernel's faults cannot be served here");
            return;
        };
        let file = made_file("few-reads", BYTES);
        // SAFETY: an advice.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        // SAFETY: nobody writes to the file.
        let map = unsafe { engine.map(&file) }.unwrap();
        map.advise(Advice::Random).unwrap();
        let Some(reads_before) = reads() else {
            return softfault_skip::skipped("program", "there is no /proc/self/io");
        };
        let faults_before = engine.stats().faults;
        for touch in 0..1000 {
            check(&map, touch * 37 % (BYTES / PAGE_SIZE) * PAGE_SIZE + 11);
        }
        let faults = engine.stats().faults - faults_before;
        let reads = reads().expect("it was there") - reads_before;
        assert!(faults >= 1000, "{faults} faults");
        // The message, a look into the page cache, the page itself, and some by chance.
        assert!(reads <= 4 * faults, "{reads} reads for {faults} faults");
    });
}

/// The kernel does not say of them whether a device writes to them. They stay for a while, and then the budget holds.
#[test]
fn pages_that_may_not_be_written_to_are_evicted() {
    alone("pages_that_may_not_be_written_to_are_evicted", || {
        let swap = Swap::in_dir(std::env::temp_dir()).bytes(4 * BUDGET as u64);
        let builder = Engine::builder().faults(Faults::Messages).swap(swap);
        let Ok(engine) = builder.memory(BUDGET).build() else {
            softfault_skip::skipped("messages", "the kernel's faults cannot be served here");
            return;
        };
        let mark = |page: usize| page as u8 | 1;
        let filled = || {
            let mut memory = engine.map_anon(BUDGET).unwrap();
            for page in 0..BUDGET / PAGE_SIZE {
                memory[page * PAGE_SIZE] = mark(page);
            }
            memory.make_read_only().unwrap()
        };
        let both = [filled(), filled()];
        for memory in &both {
            for page in 0..BUDGET / PAGE_SIZE {
                assert_eq!(memory[page * PAGE_SIZE], mark(page));
            }
        }
        let stats = engine.stats();
        assert!(stats.peak_bytes <= BUDGET as u64 && stats.failed_touches == 0);
    });
}
