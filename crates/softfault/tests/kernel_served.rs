//! Files that the kernel serves by mappings of its own: small ones, and those that the page cache has, in the
//! place of their windows.

mod child;
mod write_scene;

use child::forked;
use core::future::Future;
use core::task::{Context, Waker};
use softfault::{Engine, Faults, MmapOptions, OnTruncate, Reads};
use softfault_oracle::{Finally, Random};
use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Wake;
use std::thread::Thread;
use std::time::{Duration, Instant};
use write_scene::{PAGE, Scratch, alone, read as map};

/// A file of so many pages, of which each has its number at its front and its end.
fn numbered(name: &str, pages: usize) -> Scratch {
    let mut bytes = vec![0; pages * PAGE];
    for (at, page) in bytes.chunks_exact_mut(PAGE).enumerate() {
        page[..8].copy_from_slice(&number(at));
        page[PAGE - 8..].copy_from_slice(&number(at));
    }
    Scratch::of(name, &bytes)
}

fn open(scratch: &Scratch) -> File {
    File::open(&scratch.0).unwrap()
}

/// The file, written to the disk and in the page cache.
fn warm(scratch: &Scratch) -> File {
    let mut file = open(scratch);
    file.sync_all().unwrap();
    std::io::copy(&mut file.by_ref(), &mut std::io::sink()).unwrap();
    file
}

/// The file, written to the disk, and nowhere else but on tmpfs.
fn cold(scratch: &Scratch) -> File {
    let file = open(scratch);
    file.sync_all().unwrap();
    // SAFETY: advice.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    file
}

fn number(page: usize) -> [u8; 8] {
    (page as u64 * 0x9e37_79b9 + 1).to_le_bytes()
}

fn check(map: &[u8], page: usize) {
    let bytes = &map[page * PAGE..][..PAGE];
    assert_eq!(bytes[..8], number(page), "page {page}");
    assert_eq!(bytes[PAGE - 8..], number(page), "the end of page {page}");
}

fn engine(reads: Reads) -> Engine {
    let builder = Engine::builder().memory(16 << 20).reads(reads);
    builder.small_maps(0).build().unwrap()
}

/// True if the page cache tells which pages it has, and there is room here, so that the kernel is asked.
fn is_asked() -> bool {
    // SAFETY: asks of no file.
    let known = unsafe { libc::syscall(451, -1, 0, 0, 0) };
    let errno = std::io::Error::last_os_error().raw_os_error();
    let asked = known < 0 && errno != Some(libc::ENOSYS);
    if !asked {
        softfault_skip::skipped(
            "kernel",
            "there is no cachestat(2): no file is given to the kernel",
        );
    }
    asked
}

#[test]
fn cached_files_are_the_kernels() {
    let _alone = alone();
    let scratch = numbered("warm", 1024);
    let file = warm(&scratch);
    for reads in [Reads::Direct, Reads::Cached, Reads::Auto] {
        let engine = engine(reads);
        let before = engine.stats();
        let map = map(&engine, &file);
        (0..1024).for_each(|page| check(&map, page));
        let after = engine.stats();
        let shown = after.kernel.switched_to_kernel - before.kernel.switched_to_kernel;
        let expected = u64::from(reads == Reads::Auto && is_asked());
        assert_eq!(shown, expected, "{reads}");
        assert_eq!(after.faults == 0, shown == 1, "{reads}: {}", after.faults);
        assert!(map.is_managed());
        // The same bytes by calls, from a thread that holds it as it is.
        let mut bytes = vec![0; 3 * PAGE];
        assert_eq!(map.read_at(&mut bytes, 7 * PAGE).unwrap(), 3 * PAGE);
        assert_eq!(bytes, &map[7 * PAGE..10 * PAGE]);
        map.fault_in_many(&[0..PAGE, 100 * PAGE..200 * PAGE])
            .wait()
            .into_iter()
            .for_each(|answer| answer.unwrap());
        map.prefetch(..).unwrap();
        map.advise(softfault::Advice::Random).unwrap();
        map.advise(softfault::Advice::PopulateRead).unwrap();
        map.invalidate(..).unwrap();
        check(&map, 1023);
    }
}

/// Why a test of files that are not in memory does not run.
const IN_MEMORY: &str = "the temporary directory is in memory, or cachestat(2) is not known";

#[test]
fn pages_that_it_lacks_are_the_engines() {
    let _alone = alone();
    let scratch = numbered("cold", 1024);
    let file = cold(&scratch);
    if cached(&file, 1024) > 0 {
        return softfault_skip::skipped("kernel", IN_MEMORY);
    }
    let engine = engine(Reads::Auto);
    let before = engine.stats().kernel.switched_to_kernel;
    let map = map(&engine, &file);
    assert_eq!(engine.stats().kernel.switched_to_kernel, before);
    (0..8).for_each(|page| check(&map, page * 100));
    assert!(engine.stats().faults > 0);
}

/// Read here and there, with less memory than the file takes: the other pages are brought into the page cache, and the
/// kernel serves all of it.
#[test]
fn scattered_reads_bring_the_file_in_as_a_whole() {
    let _alone = alone();
    const PAGES: usize = 16 << 10;
    let scratch = numbered("scattered", PAGES);
    let file = cold(&scratch);
    if cached(&file, PAGES) > 0 || !is_asked() {
        return softfault_skip::skipped("kernel", IN_MEMORY);
    }
    let engine = engine(Reads::Auto);
    let before = engine.stats().kernel.switched_to_kernel;
    let map = map(&engine, &file);
    assert_eq!(engine.stats().kernel.switched_to_kernel, before);
    // All pages are touched twice, in no order. It waits for the thread, but not for ever.
    let deadline = Instant::now() + Duration::from_secs(300);
    let mut touched = 0;
    while engine.stats().kernel.switched_to_kernel == before && Instant::now() < deadline {
        check(&map, touched * 7919 % PAGES);
        touched += 1;
        if touched > 2 * PAGES {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    assert_eq!(
        engine.stats().kernel.switched_to_kernel,
        before + 1,
        "{touched} touches"
    );
    // The page cache has the pages that nobody touched, too: no touch of it is a fault of ours.
    let faults = engine.stats().faults;
    (0..PAGES).for_each(|page| check(&map, page));
    assert_eq!(engine.stats().faults, faults);
    println!("shown after {touched} touches of {PAGES} pages");
}

/// The thread that fills a file waits for the device, and reads more than anybody touches: of another file, which the kernel serves
/// meanwhile, it is not said that it reads in vain.
#[test]
fn a_fill_is_no_touch_of_the_program() {
    let _alone = alone();
    // So large that it takes several looks at the memory there is.
    const PAGES: usize = 64 << 10;
    let scratch = Scratch::of("filled", &vec![0; PAGES * PAGE]);
    let file = cold(&scratch);
    if cached(&file, PAGES) > 0 || !is_asked() {
        return softfault_skip::skipped("kernel", IN_MEMORY);
    }
    // Which waits are none of touches all engines of the process know.
    let (engine, another) = (engine(Reads::Auto), engine(Reads::Auto));
    let other = numbered("beside", 1024);
    let beside = map(&another, &warm(&other));
    let before = engine.stats().kernel;
    let map = map(&engine, &file);
    let mut random = Random::new(1);
    let deadline = Instant::now() + Duration::from_secs(300);
    while engine.stats().kernel.switched_to_kernel == before.switched_to_kernel
        && Instant::now() < deadline
    {
        assert_eq!(map[random.below(PAGES) * PAGE], 0);
    }
    let after = engine.stats().kernel;
    assert_eq!(after.switched_to_kernel, before.switched_to_kernel + 1);
    assert_eq!(after.switched_to_engine, before.switched_to_engine);
    (0..1024).for_each(|page| check(&beside, page));
}

/// Pages of a file that are in the page cache.
fn cached(file: &File, pages: usize) -> usize {
    // SAFETY: a fresh mapping, asked for and dropped here.
    unsafe {
        let start = libc::mmap(
            core::ptr::null_mut(),
            pages * PAGE,
            libc::PROT_READ,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        );
        assert_ne!(start, libc::MAP_FAILED);
        let mut there = vec![0_u8; pages];
        assert_eq!(libc::mincore(start, pages * PAGE, there.as_mut_ptr()), 0);
        assert_eq!(libc::munmap(start, pages * PAGE), 0);
        there.iter().filter(|page| **page & 1 != 0).count()
    }
}

/// With `Advice::Random`, the touched pages are read, and no page more.
#[test]
fn random_is_random() {
    let _alone = alone();
    const PAGES: usize = 16 << 10;
    const TOUCHED: usize = 200;
    let scratch = numbered("advised", PAGES);
    let file = cold(&scratch);
    if cached(&file, PAGES) > 0 || !is_asked() {
        return softfault_skip::skipped("kernel", IN_MEMORY);
    }
    let engine = engine(Reads::Auto);
    let before = engine.stats().kernel.switched_to_kernel;
    let map = map(&engine, &file);
    assert_eq!(engine.stats().kernel.switched_to_kernel, before);
    map.advise(softfault::Advice::Random).unwrap();
    // In no order: a stride would be read ahead.
    let mut random = Random::new(1);
    let mut touch = || (0..TOUCHED).for_each(|_| check(&map, random.below(PAGES)));
    touch();
    assert!(cached(&file, PAGES) <= TOUCHED, "{}", cached(&file, PAGES));
    // `Normal` takes the advice back: neighbours are read again, though not around each page.
    map.advise(softfault::Advice::Normal).unwrap();
    let mut touched = TOUCHED;
    while cached(&file, PAGES) <= 2 * touched && touched < PAGES / 4 {
        touch();
        touched += TOUCHED;
    }
    let there = cached(&file, PAGES);
    assert!(
        there > 2 * touched,
        "{there} pages, {touched} touched: {:?}",
        engine.stats()
    );
}

/// Ten thousand changes with `SOFTFAULT_SWITCHES=10000`.
#[test]
fn it_changes_under_readers() {
    let _alone = alone();
    let rounds = std::env::var("SOFTFAULT_SWITCHES").ok();
    let rounds = rounds.map_or(300, |rounds| rounds.parse::<usize>().unwrap());
    // Larger than the budget: pages that the engine brings in are evicted, too.
    const PAGES: usize = 6000;
    let scratch = numbered("changes", PAGES);
    let file = warm(&scratch);
    let engine = engine(Reads::Auto);
    let map = map(&engine, &file);
    let (stop, checked) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let _stop = Finally(|| stop.store(true, Ordering::Relaxed));
        for reader in 0..4 {
            let (map, stop, checked) = (&map, &stop, &checked);
            scope.spawn(move || {
                let mut random = Random::new(reader);
                let mut at = 0;
                while !stop.load(Ordering::Relaxed) {
                    // Runs, of which some are pinned, and others touched as they are.
                    at = match random.below(16) {
                        0 => random.below(PAGES),
                        _ => (at + 1) % PAGES,
                    };
                    match random.below(64) {
                        1 => {
                            let pinned = map.pin(at * PAGE..(at + 1) * PAGE).unwrap();
                            assert_eq!(pinned[..8], number(at));
                        }
                        2 => {
                            let mut bytes = [0; 8];
                            map.read_at(&mut bytes, at * PAGE).unwrap();
                            assert_eq!(bytes, number(at));
                        }
                        3 => map.prefetch(at * PAGE..).unwrap(),
                        4 => {
                            let wanted = [at * PAGE..(at + 1) * PAGE, 0..PAGE];
                            let answers = map.fault_in_many(&wanted).wait();
                            answers.into_iter().for_each(|answer| answer.unwrap());
                        }
                        _ => check(map, at),
                    }
                    checked.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        // Windows that are given back meanwhile do not make the engine forget the one that changes.
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                drop(engine.map_anon(64 << 10).unwrap());
            }
        });
        let before = engine.stats().kernel;
        let mut changes = 0;
        // Not while a reader keeps it as it is.
        while changes < rounds || checked.load(Ordering::Relaxed) == 0 {
            let kernel = changes % 2 == 0;
            changes += usize::from(map.change_server(kernel).unwrap());
            changes += usize::from(map.change_server(!kernel).unwrap());
            check(&map, changes % PAGES);
            std::thread::yield_now();
        }
        let after = engine.stats().kernel;
        println!(
            "{changes} changes, {} reads",
            checked.load(Ordering::Relaxed)
        );
        let counted = |stats: softfault::KernelStats| {
            (stats.switched_to_kernel + stats.switched_to_engine) as usize
        };
        assert!(counted(after) >= counted(before) + changes);
    });
    assert!(checked.load(Ordering::Relaxed) > 0);
    let peak = engine.stats().peak_bytes;
    assert!(peak <= 16 << 20, "{peak}");
}

/// By either server: in a child of fork the kernel does.
#[test]
fn a_child_of_fork_reads_on_under_either_server() {
    let _alone = alone();
    let scratch = numbered("forked", 1024);
    let file = warm(&scratch);
    let engine = engine(Reads::Auto);
    let map = map(&engine, &file);
    for kernel in [true, false, true] {
        let _ = map.change_server(kernel);
        check(&map, 5);
        let status = forked(|| {
            (0..1024).for_each(|page| check(&map, page));
            0
        });
        assert_eq!(status, 0, "{kernel}");
        check(&map, 6);
    }
}

/// A plain map of the kernel's is the child's as it is the parent's: each call on it works, and it goes when it is dropped.
#[test]
fn a_child_of_fork_calls_on_plain_maps() {
    let _alone = alone();
    let scratch = numbered("forked-small", 16);
    let engine = Engine::builder().memory(16 << 20).build().unwrap();
    let file = open(&scratch);
    let small = map(&engine, &file);
    assert!(!small.is_managed());
    let status = forked(move || {
        check(&small, 5);
        let mut copy = vec![0; PAGE];
        assert_eq!(small.read_at(&mut copy, 5 * PAGE), Ok(PAGE));
        assert_eq!(copy, small[5 * PAGE..6 * PAGE]);
        drop(small.pin(0..PAGE).unwrap());
        small.lock().unwrap();
        small.unlock().unwrap();
        small.advise(softfault::Advice::Random).unwrap();
        assert_eq!(
            small.fault_in_many(std::slice::from_ref(&(0..1))).wait(),
            [Ok(())]
        );
        let written = small.write_to(.., &mut Vec::new()).unwrap();
        assert_eq!(written, 16 * PAGE as u64);
        let (at, mut seen) = (small.as_ptr() as usize, 0);
        drop(small);
        // SAFETY: asks, of a page that may be there or not.
        let is_there = unsafe { libc::mincore(at as *mut _, PAGE, &mut seen) };
        assert_eq!(is_there, -1, "it is unmapped");
        0
    });
    assert_eq!(status, 0);
}

#[test]
fn a_held_window_stays_with_its_server() {
    let _alone = alone();
    let scratch = numbered("kept", 1024);
    let file = warm(&scratch);
    let engine = engine(Reads::Auto);
    let map = map(&engine, &file);
    map.change_server(false).unwrap();
    let pinned = map.pin(0..PAGE).unwrap();
    assert!(!map.change_server(true).unwrap(), "pages are pinned");
    drop(pinned);
    assert!(map.change_server(true).unwrap());
    let pinned = map.pin(0..PAGE).unwrap();
    assert!(
        !map.change_server(false).unwrap(),
        "somebody may look at them"
    );
    // Of a system call, too.
    let mut sink = File::options().write(true).open("/dev/null").unwrap();
    std::io::Write::write_all(&mut sink, &pinned).unwrap();
    drop(pinned);
    // Locked pages stay in memory: that is the engine's to promise.
    map.lock().unwrap();
    assert!(!map.change_server(true).unwrap());
    (0..1024).for_each(|page| check(&map, page));
    assert_eq!(map.residency(..).unwrap().mapped, 1024);
    map.unlock().unwrap();
    assert!(map.change_server(true).unwrap());
    // A map that goes while the kernel serves it leaves nothing behind.
    drop(map);
    engine.close_idle();
    assert_eq!(engine.stats().windows, 0);
}

/// Unparks the thread that waits for a future.
struct Unpark(Thread, AtomicBool);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.1.store(true, Ordering::SeqCst);
        self.0.unpark();
    }
}

/// Failed before: the window was held until the program polled again.
#[test]
fn a_future_that_nobody_polls_holds_no_window() {
    let _alone = alone();
    let scratch = numbered("parked", 1024);
    let file = warm(&scratch);
    let engine = engine(Reads::Auto);
    let map = map(&engine, &file);
    for kernel in [true, false] {
        let _ = map.change_server(kernel).unwrap();
        let mut parked = Box::pin(map.fault_in(..));
        let woken = Arc::new(Unpark(std::thread::current(), AtomicBool::new(false)));
        let waker = Waker::from(woken.clone());
        let polled = parked.as_mut().poll(&mut Context::from_waker(&waker));
        // One that is done already has left, too.
        while polled.is_pending() && !woken.1.load(Ordering::SeqCst) {
            std::thread::park();
        }
        // The thread that watches the memory may be changing it now, or may have done so.
        let is_changed = || {
            map.change_server(!kernel).unwrap();
            check(&map, 0);
            (map.residency(..).unwrap().mapped > 0) == kernel
        };
        let mut tries = 0..1000;
        while !is_changed() {
            assert!(tries.next().is_some(), "{kernel}");
            std::thread::sleep(Duration::from_millis(10));
        }
        drop(parked);
    }
}

/// As any value may be: no call of the program runs then.
#[test]
fn forgotten_pins_hold_a_window_no_longer_than_its_map() {
    let _alone = alone();
    let scratch = numbered("forgotten", 1024);
    let file = warm(&scratch);
    let engine = engine(Reads::Auto);
    for kernel in [false, true, false] {
        let first = map(&engine, &file);
        first.change_server(kernel).unwrap();
        core::mem::forget(first.pin(0..PAGE).unwrap());
        assert!(!first.change_server(!kernel).unwrap(), "pages are pinned");
        drop(first);
        // The window is the same one, which was idle.
        let again = map(&engine, &file);
        assert!(again.change_server(kernel).unwrap() || again.change_server(!kernel).unwrap());
        let pinned = again.pin(0..PAGE).unwrap();
        check(&pinned, 0);
        drop(pinned);
        (0..1024).for_each(|page| check(&again, page));
    }
    // A writable map of the kernel's is waited for, and comes at once.
    let first = map(&engine, &file);
    first.change_server(false).unwrap();
    core::mem::forget(first.pin(0..PAGE).unwrap());
    drop(first);
    let first = map(&engine, &file);
    let both = File::options().read(true).write(true).open(&scratch.0);
    let both = both.unwrap();
    // SAFETY: nobody else writes to the file, and the maps are read as volatile bytes.
    let mut written = unsafe { engine.map_mut(&both) }.unwrap();
    written[PAGE] = 0x5a;
    // SAFETY: within the map.
    assert_eq!(unsafe { first[PAGE..].as_ptr().read_volatile() }, 0x5a);
}

#[test]
fn behind_the_end_of_the_file_is_an_error_under_either_server() {
    let _alone = alone();
    let scratch = numbered("end", 1024);
    let file = warm(&scratch);
    let engine = engine(Reads::Auto);
    for kernel in [true, false] {
        let map = map(&engine, &file);
        map.change_server(kernel).unwrap();
        let shorter = File::options().write(true).open(&scratch.0).unwrap();
        shorter.set_len(512 * PAGE as u64).unwrap();
        map.invalidate(..).unwrap();
        check(&map, 511);
        assert!(map.pin(600 * PAGE..601 * PAGE).is_err());
        assert!(
            map.advise_range(softfault::Advice::PopulateRead, 600 * PAGE, PAGE)
                .is_err()
        );
        drop(map);
        let again = numbered("end", 1024);
        core::mem::forget(again);
    }
}

#[test]
fn small_files_are_the_kernels_up_to_an_eighth_of_the_budget() {
    let _alone = alone();
    let small = numbered("small", 256);
    let large = numbered("not-small", 257);
    let engine = Engine::builder()
        .memory(16 << 20)
        .reads(Reads::Auto)
        .build()
        .unwrap();
    let before = engine.stats().kernel;
    let (first, second) = (map(&engine, &open(&small)), map(&engine, &open(&small)));
    assert!(!first.is_managed() && !second.is_managed());
    let third = map(&engine, &open(&small));
    assert!(third.is_managed(), "two MiB are an eighth of the budget");
    assert!(map(&engine, &open(&large)).is_managed());
    // A part of a large file is not small.
    // SAFETY: nobody writes to it.
    let part = unsafe { MmapOptions::new().len(PAGE).map_in(&engine, &open(&large)) };
    assert!(part.unwrap().is_managed());
    for map in [&first, &second, &third] {
        (0..256).for_each(|page| check(map, page));
        let pinned = map.pin(0..PAGE).unwrap();
        check(&pinned, 0);
    }
    let after = engine.stats();
    assert_eq!(after.kernel.small_maps - before.small_maps, 2);
    assert_eq!(after.kernel.small_bytes - before.small_bytes, 2 << 20);
    assert_eq!(after.small_map_bytes, 2 << 20);
    drop((first, second));
    assert_eq!(engine.stats().small_map_bytes, 0);
    assert!(!map(&engine, &open(&small)).is_managed());
}

#[test]
fn small_files_are_the_engines_where_that_was_asked() {
    let _alone = alone();
    let small = numbered("asked", 16);
    let none = Engine::builder()
        .small_maps(0)
        .memory(16 << 20)
        .build()
        .unwrap();
    let never = Engine::builder()
        .memory(16 << 20)
        .allow_kernel_maps(false)
        .build()
        .unwrap();
    let direct = Engine::builder()
        .memory(16 << 20)
        .reads(Reads::Direct)
        .build()
        .unwrap();
    let zeros = Engine::builder()
        .memory(16 << 20)
        .on_truncate(OnTruncate::Zeros)
        .build()
        .unwrap();
    for engine in [none, never, direct, zeros] {
        let map = map(&engine, &open(&small));
        assert!(map.is_managed(), "{engine:?}");
        (0..16).for_each(|page| check(&map, page));
        assert_eq!(engine.stats().small_map_bytes, 0);
    }
    assert_eq!(Faults::default(), Faults::Signals, "as all of these");
}
