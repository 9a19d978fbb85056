//! The server of a file's window: settings that forbid the kernel to be it, locks beside it, and advice that ends with the map.

mod child;
mod proc;
mod write_scene;

use child::{assert_exit, forked};
use softfault::{Advice, Builder, Coherence, Engine, MmapOptions, OnTruncate, Reads};
use softfault_oracle::Finally;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::time::Duration;
use write_scene::{PAGE, Scratch, alone, byte, read};

const PAGES: usize = 512;

fn scratch(name: &str, pages: usize) -> Scratch {
    let scratch = Scratch::of(name, &vec![7; pages * PAGE]);
    scratch.open().sync_all().unwrap();
    // A tick of the clock of its stamps: before, the next map does not find its window.
    std::thread::sleep(Duration::from_millis(50));
    scratch
}

fn builder() -> Builder {
    Engine::builder().memory(16 << 20).small_maps(0)
}

/// Failed before: after a map that writes to the file, the window was the kernel's, and in no budget.
#[test]
fn a_map_that_writes_gives_no_window_to_a_kernel_that_may_not_serve() {
    let _alone = alone();
    let forbidden = builder().allow_kernel_maps(false);
    let direct = builder().reads(Reads::Direct);
    let zeros = builder().on_truncate(OnTruncate::Zeros);
    for builder in [forbidden, direct, zeros] {
        let engine = builder.build().unwrap();
        let file = scratch("forbidden", PAGES);
        let map = read(&engine, &file.open());
        assert_eq!(map[PAGE], 7);
        let before = engine.stats().kernel.switched_to_kernel;
        // SAFETY: nobody else writes to the file.
        let mut writer = unsafe { engine.map_mut(&file.open()) }.unwrap();
        writer[5 * PAGE] = 8;
        drop(writer);
        assert_eq!(
            engine.stats().kernel.switched_to_kernel,
            before,
            "{engine:?}"
        );
        assert_eq!(map[5 * PAGE], 8);
        let mapped = map.residency(..).unwrap().mapped;
        assert!(mapped > 0, "the engine's: {mapped}");
    }
}

/// Failed before: a database that maps its file to read it, and commits by write(2), lost nearly all that it wrote.
#[test]
fn a_program_sees_at_once_what_it_writes_by_calls() {
    let _alone = alone();
    let scratch = scratch("by-calls", PAGES);
    let file = scratch.open();
    let map_by = |engine: &Engine, file: &File| {
        // SAFETY: changes are a part of the test.
        unsafe { engine.map(file) }.unwrap()
    };
    let engine = builder().build().unwrap();
    let before = engine.stats().kernel.shared_maps;
    let map = map_by(&engine, &file);
    for (page, byte_of) in (0..PAGES).zip((0..u8::MAX).cycle()) {
        assert_eq!(byte(&map, page * PAGE), 7);
        file.write_all_at(&[byte_of], (page * PAGE) as u64).unwrap();
        assert_eq!(byte(&map, page * PAGE), byte_of);
    }
    assert!(!map.is_managed());
    assert_eq!(engine.stats().kernel.shared_maps, before + 1);
    // The engine has it where the kernel may not, or is not to, and by a descriptor that nobody can write by.
    assert!(map_by(&engine, &File::open(&scratch.0).unwrap()).is_managed());
    let forbidden = builder().allow_kernel_maps(false).build().unwrap();
    assert!(map_by(&forbidden, &file).is_managed());
    let over_engine = builder().coherence(Coherence::Engine).build().unwrap();
    assert!(map_by(&over_engine, &file).is_managed());
}

/// Failed before: its file was open for writing for another half a minute, and a program that a linker had written so could not be
/// executed (ETXTBSY).
#[test]
fn a_written_file_is_let_go_with_its_last_map() {
    let _alone = alone();
    let scratch = scratch("let-go", PAGES);
    let engine = builder().coherence(Coherence::Engine).build().unwrap();
    // SAFETY: this test alone has the file.
    let mut map = unsafe { engine.map_mut(&scratch.open()) }.unwrap();
    map[PAGE] = 1;
    drop(map);
    assert_eq!(std::fs::read(&scratch.0).unwrap()[PAGE], 1);
    assert_eq!(
        (engine.stats().windows, engine.stats().idle_windows),
        (0, 0)
    );
}

/// Failed before: a window takes a descriptor, and the program has no more of them.
#[test]
fn without_descriptors_the_kernel_maps() {
    let _alone = alone();
    let scratch = scratch("without", 4);
    let maps_all = |builder: Builder| {
        forked(|| {
            let engine = builder.clone().build().unwrap();
            let limit = libc::rlimit {
                rlim_cur: 64,
                rlim_max: 64,
            };
            // SAFETY: of this child.
            unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
            let mut maps = Vec::new();
            for number in 0..100 {
                let path = format!("{}-{number}", scratch.0.display());
                std::fs::copy(&scratch.0, &path).unwrap();
                let file = File::open(&path).unwrap();
                std::fs::remove_file(&path).unwrap();
                // SAFETY: nobody writes to it.
                match unsafe { engine.map(&file) } {
                    Ok(map) => maps.push(map),
                    Err(error) => return error.raw_os_error().unwrap_or(1),
                }
            }
            i32::from(!maps.iter().all(|map| byte(map, PAGE) == 7))
        })
    };
    assert_exit(maps_all(builder()), 0);
    assert_exit(maps_all(builder().allow_kernel_maps(false)), libc::EMFILE);
}

/// Failed before: memory for the window took a descriptor, so it stayed the kernel's.
#[test]
fn without_descriptors_a_window_is_taken_over() {
    let _alone = alone();
    let scratch = scratch("taken-over", PAGES);
    let status = forked(|| {
        let engine = builder().build().unwrap();
        let maps = [0, 1].map(|_| {
            let mut options = MmapOptions::new();
            options.separate_window((PAGES * PAGE) as u64);
            // SAFETY: nobody writes to it.
            unsafe { options.map_in(&engine, &scratch.open()) }.unwrap()
        });
        if maps.iter().any(|map| map.change_server(true).is_err()) {
            return 1;
        }
        let [none, some] = [0, 64].map(|most| libc::rlimit {
            rlim_cur: most,
            rlim_max: 64,
        });
        for (map, limit) in maps.iter().zip([none, some]) {
            // SAFETY: of this child.
            unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
            if !matches!(map.change_server(false), Ok(true)) {
                return 2;
            }
        }
        i32::from(!maps.iter().all(|map| byte(map, PAGE) == 7)) * 3
    });
    assert_exit(status, 0);
}

fn has_flag(at: usize, flag: &str) -> bool {
    proc::mapping(at).expect("it is mapped").has_flag(flag)
}

/// Failed before: `lock` returned Ok, and nothing was locked.
#[test]
fn a_lock_beside_a_pin_of_the_kernels_pages_is_the_kernels() {
    let _alone = alone();
    let file = scratch("locked", PAGES);
    let engine = builder().build().unwrap();
    let (map, other) = (read(&engine, &file.open()), read(&engine, &file.open()));
    assert_eq!(map.as_ptr(), other.as_ptr(), "one window");
    map.change_server(true).unwrap();
    let pinned = map.pin(0..PAGE).unwrap();
    let at = map.as_ptr() as usize + 9 * PAGE;
    map.lock().unwrap();
    other.lock().unwrap();
    assert!(has_flag(at, "lo"));
    // Locks of two maps of a window are of the same pages.
    other.unlock().unwrap();
    assert!(has_flag(at, "lo"));
    map.unlock().unwrap();
    assert!(!has_flag(at, "lo"));
    drop(pinned);
    assert!(map.change_server(false).unwrap());
    assert_eq!(map[9 * PAGE], 7);
}

/// Failed before: the kernel's mapping read around each page of a file that is read at random.
#[test]
fn advice_about_the_order_goes_to_the_kernel_too() {
    let _alone = alone();
    let file = scratch("random", PAGES);
    let engine = builder().build().unwrap();
    let map = read(&engine, &file.open());
    map.change_server(false).unwrap();
    map.advise(Advice::Random).unwrap();
    assert!(map.change_server(true).unwrap());
    assert!(has_flag(map.as_ptr() as usize, "rr"));
    map.change_server(false).unwrap();
    map.advise(Advice::Normal).unwrap();
    assert!(map.change_server(true).unwrap());
    assert!(!has_flag(map.as_ptr() as usize, "rr"));
}

/// Failed before: the kernel's mapping kept the advice, for the next map of the file.
#[test]
fn advice_to_the_kernel_ends_with_the_map() {
    let _alone = alone();
    let file = scratch("advised-kernel", PAGES);
    let engine = builder().build().unwrap();
    // When a map goes, a few idle windows are looked at, and those without pages go: here the four that were idle first, which have some.
    let names = ["idle-0", "idle-1", "idle-2", "idle-3", "idle-4"];
    let others = names.map(|name| scratch(name, PAGES));
    for other in &others {
        let map = read(&engine, &other.open());
        map.change_server(false).unwrap();
        assert_eq!(map[PAGE], 7);
    }
    let map = read(&engine, &file.open());
    map.change_server(true).unwrap();
    map.advise(Advice::Random).unwrap();
    assert!(has_flag(map.as_ptr() as usize, "rr"));
    let at = map.as_ptr();
    drop(map);
    let map = read(&engine, &file.open());
    assert_eq!(map.as_ptr(), at, "the window of the one before");
    assert!(!has_flag(at as usize, "rr"));
}

/// Failed before: SIGSEGV in the child.
#[test]
fn advice_about_children_ends_with_the_map() {
    let _alone = alone();
    let file = scratch("advised", PAGES);
    let engine = builder().reads(Reads::Direct).build().unwrap();
    let map = read(&engine, &file.open());
    map.advise(Advice::DontFork).unwrap();
    // A window without pages would not be kept.
    assert_eq!(map[PAGE], 7);
    let at = map.as_ptr();
    drop(map);
    let map = read(&engine, &file.open());
    assert_eq!(map.as_ptr(), at, "the window of the one before");
    assert_exit(forked(|| i32::from(byte(&map, PAGE) != 7)), 0);
}

fn cached(file: &File, pages: usize) -> usize {
    // SAFETY: a mapping of the whole file, asked about and unmapped.
    unsafe {
        let (bytes, descriptor) = (pages * PAGE, file.as_raw_fd());
        let at = libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ,
            libc::MAP_SHARED,
            descriptor,
            0,
        );
        assert_ne!(at, libc::MAP_FAILED);
        let mut there = vec![0u8; pages];
        assert_eq!(libc::mincore(at, bytes, there.as_mut_ptr()), 0);
        libc::munmap(at, bytes);
        there.iter().filter(|&&page| page & 1 == 1).count()
    }
}

/// Of a file whose window is too small for the kernel to serve. Failed before: 32 pages and more for each touch.
#[test]
fn random_is_random_in_small_windows() {
    const PAGES: usize = 200;
    let _alone = alone();
    let scratch = scratch("random", PAGES);
    let file = scratch.open();
    // SAFETY: advice.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    if cached(&file, PAGES) > 0 {
        return softfault_skip::skipped("tmpfs", "the file is always in memory");
    }
    let engine = builder().reads(Reads::Auto).build().unwrap();
    let map = read(&engine, &file);
    map.advise(Advice::Random).unwrap();
    assert!([3, 70, 140].iter().all(|page| map[page * PAGE] == 7));
    assert!(cached(&file, PAGES) <= 3, "{}", cached(&file, PAGES));
    map.advise(Advice::Normal).unwrap();
    assert_eq!(map[190 * PAGE], 7);
}

/// Locks all memory to come, until the result is dropped; `None` where that is not allowed.
fn lock_memory_to_come() -> Option<Finally<fn()>> {
    // SAFETY: locks memory.
    if unsafe { libc::mlockall(libc::MCL_FUTURE) } != 0 {
        softfault_skip::skipped("kernel", "memory cannot be locked");
        return None;
    }
    Some(Finally(|| {
        // SAFETY: as it was.
        unsafe { libc::munlockall() };
    }))
}

/// `mlockall(MCL_FUTURE)` fills new memory at once: a window that is open for a moment before it is registered would be filled with zeros.
#[test]
fn locked_memory_shows_no_zeros_while_it_changes() {
    let _alone = alone();
    let file = scratch("filled", PAGES);
    let engine = builder().build().unwrap();
    let map = read(&engine, &file.open());
    let Some(_unlock) = lock_memory_to_come() else {
        return;
    };
    for round in 0..40 {
        for kernel in [false, true] {
            // Refused where so much may not be locked: it stays as it is.
            let _ = map.change_server(kernel);
            assert!((round..PAGES).step_by(17).all(|page| map[page * PAGE] == 7));
        }
    }
}

/// And a file is not brought in as a whole within the change, which calls on the map wait for. Failed before.
#[test]
fn locked_memory_is_not_filled_by_a_change_of_server() {
    let _alone = alone();
    let scratch = scratch("cold", PAGES);
    let file = scratch.open();
    let engine = builder().build().unwrap();
    let map = read(&engine, &file);
    let _ = map.change_server(false);
    let Some(_unlock) = lock_memory_to_come() else {
        return;
    };
    file.sync_all().unwrap();
    // SAFETY: advice.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    if in_memory(&file, PAGES) > 0 {
        return softfault_skip::skipped("kernel", "the temporary directory is in memory");
    }
    for kernel in [true, false] {
        // Refused where so much may not be locked: it stays as it is.
        let _ = map.change_server(kernel);
        assert_eq!(in_memory(&file, PAGES), 0, "to the kernel: {kernel}");
    }
    assert_eq!(map[300 * PAGE], 7);
}

/// Pages of a file that are in the page cache, by cachestat(2), which makes no mapping; on kernels without it no pages.
fn in_memory(file: &File, pages: usize) -> usize {
    let (part, mut counts) = ([0_u64, (pages * PAGE) as u64], [0_u64; 5]);
    // SAFETY: reads the one, and fills the other.
    unsafe { libc::syscall(451, file.as_raw_fd(), &raw const part, &raw mut counts, 0) };
    counts[0] as usize
}
