//! Memory that goes to a map as it is, 2 MiB at a time: the bytes, the budget, and the program's calls on such pages.

mod child;
mod files;
mod proc;

use child::{dies_of, forked, scenario, succeeds};
use files::{byte_at, made_file, map};
use softfault::{Engine, Faults, Mmap, Stats};
use std::fs::{File, read_to_string};
use std::ops::Range;
use std::os::fd::AsRawFd;

const PAGE: usize = 4096;
const MIB: usize = 1 << 20;
const ROW: usize = 2 * MIB;
const MEMORY: usize = 96 * MIB;
const FILE: usize = 160 * MIB;

fn engine(faults: Faults) -> Option<Engine> {
    let policies = "map=move".parse().unwrap();
    let builder = Engine::builder().allow_kernel_maps(false).memory(MEMORY);
    let builder = builder.policies(policies);
    match builder.faults(faults).build() {
        Ok(engine) => Some(engine),
        Err(error) if faults == Faults::Messages => {
            softfault_skip::skipped("messages", &error);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// True if the kernel can move huge pages, and this process has more than a few: the kernel gives what it has at the
/// moment. To be asked once they are used.
fn has_huge_pages() -> bool {
    let huge = proc::bytes("/proc/self/smaps_rollup", "AnonHugePages");
    let has = huge.unwrap_or(0) >= 4 * ROW && moves();
    if !has {
        softfault_skip::skipped(
            "kernel",
            format_args!("{huge:?} bytes of huge pages, or no UFFDIO_MOVE"),
        );
    }
    has
}

/// True if the kernel has UFFDIO_MOVE: since Linux 6.8.
fn moves() -> bool {
    let release = read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release
        .split('.')
        .map_while(|part| part.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(8))
}

#[track_caller]
fn check(map: &Mmap, pages: Range<usize>) {
    for page in pages {
        let at = page * PAGE + page % PAGE;
        // SAFETY: within the map; volatile, so that the touch happens here.
        let found = unsafe { map.as_ptr().add(at).read_volatile() };
        assert_eq!(found, byte_at(at), "page {page}");
    }
}

/// Reads in order until rows were moved: a page of the last of them. `None` where there are no huge pages.
fn moved_page(engine: &Engine, map: &Mmap) -> Option<usize> {
    let mut rows = 0;
    for row in 0..FILE / ROW {
        let first = row * ROW / PAGE;
        check(map, first..first + 1);
        let now = engine.stats().thp_moved;
        check(map, first + 1..first + ROW / PAGE);
        if now > rows && row > FILE / ROW / 2 {
            return Some(first + 17);
        }
        rows = now;
    }
    assert!(!has_huge_pages(), "no row was moved: {:?}", engine.stats());
    None
}

#[test]
fn a_scan_shows_the_file_and_keeps_the_budget() {
    const TEST: &str = "a_scan_shows_the_file_and_keeps_the_budget";
    if scenario().is_none() {
        return succeeds(TEST, "alone");
    }
    let file = made_file("scanned", FILE);
    let engine = engine(Faults::Signals).unwrap();
    let map = map(&engine, &file);
    let before = proc::status("RssAnon");
    let mut most = 0;
    for row in 0..FILE / ROW {
        let bytes = row * ROW..(row + 1) * ROW;
        assert!(
            map[bytes.clone()].iter().copied().eq(bytes.map(byte_at)),
            "row {row}"
        );
        most = most.max(proc::status("RssAnon"));
    }
    let Stats {
        thp_moved,
        thp_split,
        peak_bytes,
        ..
    } = engine.stats();
    assert!(peak_bytes as usize <= MEMORY);
    assert!(most <= before + MEMORY, "{before} {most}");
    if has_huge_pages() {
        assert!(thp_moved > 0);
        assert_eq!(thp_split, 0);
    }
}

/// Failed before: the kernel's own mapping came into the place of a window whose pages are protected. After the window was taken over again, the kernel kept a
/// mark of each protected page over its eviction.
#[test]
fn a_window_for_moves_stays_the_engines() {
    const TEST: &str = "a_window_for_moves_stays_the_engines";
    if scenario().is_none() {
        return succeeds(TEST, "alone");
    }
    // In the page cache: the kernel serves such a file where it may.
    let file = made_file("warm", 8 * MIB);
    let file_bytes =
        |at: usize| std::os::unix::fs::FileExt::read_at(&file, &mut [0; MIB], at as u64);
    (0..8).for_each(|at| assert_eq!(file_bytes(at * MIB).unwrap(), MIB));
    let windows_to_kernel = |name: &str| {
        let policies = name.parse().unwrap();
        let builder = Engine::builder().small_maps(0).memory(MEMORY);
        let engine = builder.policies(policies).build().unwrap();
        // Of all engines of the process.
        let before = engine.stats().kernel.switched_to_kernel;
        // A map by a descriptor that is open for writing would be the kernel's from the start.
        let to_read = File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
        let map = map(&engine, &to_read);
        check(&map, 0..8 * MIB / PAGE);
        engine.stats().kernel.switched_to_kernel - before
    };
    if !moves() {
        return softfault_skip::skipped("kernel", "no memory is moved into windows here");
    }
    if windows_to_kernel("map=copy") == 0 {
        return softfault_skip::skipped("kernel", "the kernel serves no file here");
    }
    assert_eq!(windows_to_kernel("map=move"), 0);
}

/// As with the kernel's own mapping: a store into a map that is only read ends the process by SIGSEGV, whatever its pages are, and a
/// system call answers EFAULT.
#[test]
fn a_store_into_a_moved_page_is_sigsegv() {
    const TEST: &str = "a_store_into_a_moved_page_is_sigsegv";
    let Some(scenario) = scenario() else {
        for how in ["signals", "threads", "messages"] {
            for page in ["moved", "missing"] {
                dies_of(libc::SIGSEGV, TEST, &format!("{how} {page}"));
            }
        }
        return;
    };
    let (how, page) = scenario.split_once(' ').unwrap();
    let faults = match how {
        "signals" => Faults::Signals,
        "threads" => Faults::Threads,
        _ => Faults::Messages,
    };
    let Some(engine) = engine(faults) else {
        // It has said why. In this process no other engine was made before, as in the caller's.
        // SAFETY: ends this process, as is expected of it.
        unsafe { libc::raise(libc::SIGSEGV) };
        return;
    };
    let file = made_file("stored", FILE);
    let map = map(&engine, &file);
    let at = match page {
        "moved" => moved_page(&engine, &map),
        _ => None,
    };
    let at = at.unwrap_or(FILE / PAGE - 3);
    let place = map.as_ptr().wrapping_add(at * PAGE).cast_mut();
    // SAFETY: the kernel writes nothing there, and says so.
    let read = unsafe { libc::pread(file.as_raw_fd(), place.cast(), 1, 0) };
    let error = std::io::Error::last_os_error();
    assert_eq!((read, error.raw_os_error()), (-1, Some(libc::EFAULT)));
    if page == "moved" {
        check(&map, at..at + 1);
    }
    // SAFETY: ends the process.
    unsafe { place.write_volatile(1) };
    println!("the store went through");
}

#[test]
fn where_the_program_locks_memory_pages_are_copied() {
    // MLOCK_ONFAULT of mlock2(2): of pages that are missing, too.
    const ON_FAULT: u32 = 1;
    let file = made_file("locked", FILE);
    for (locked, are_moved) in [(FILE, false), (PAGE, true)] {
        let engine = engine(Faults::Signals).unwrap();
        let map = map(&engine, &file);
        check(&map, 0..1);
        let from = map.as_ptr().wrapping_add(FILE - locked).cast();
        // SAFETY: no byte changes.
        if unsafe { libc::mlock2(from, locked, ON_FAULT) } != 0 {
            return softfault_skip::skipped("mlock", std::io::Error::last_os_error());
        }
        for _ in 0..2 {
            check(&map, 0..FILE / PAGE);
        }
        let moved = engine.stats().thp_moved;
        if !are_moved || has_huge_pages() {
            assert_eq!(moved > 0, are_moved, "{moved}");
        }
        // SAFETY: as above.
        unsafe { libc::munlock(from, locked) };
        check(&map, 0..FILE / PAGE);
    }
}

#[test]
fn a_child_reads_memory_that_its_parent_moved_and_the_parent_goes_on() {
    const TEST: &str = "a_child_reads_memory_that_its_parent_moved_and_the_parent_goes_on";
    if scenario().is_none() {
        return succeeds(TEST, "alone");
    }
    let file = made_file("forked", FILE);
    let engine = engine(Faults::Signals).unwrap();
    let map = map(&engine, &file);
    check(&map, 0..FILE / PAGE / 2);
    let before = engine.stats().thp_moved;
    let status = forked(|| {
        check(&map, 0..FILE / PAGE);
        0
    });
    assert_eq!(status, 0);
    check(&map, 0..FILE / PAGE);
    if has_huge_pages() {
        let after = engine.stats().thp_moved;
        assert!(0 < before && before < after, "{before} {after}");
    }
}

/// The kernel keeps pages that it was handed, with their bytes: the memory is not used for other pages of the file.
#[test]
fn a_pipe_has_moved_pages_that_were_evicted() {
    const TEST: &str = "a_pipe_has_moved_pages_that_were_evicted";
    if scenario().is_none() {
        return succeeds(TEST, "alone");
    }
    let file = made_file("spliced", FILE);
    let engine = engine(Faults::Signals).unwrap();
    let map = map(&engine, &file);
    let Some(page) = moved_page(&engine, &map) else {
        return;
    };
    let mut ends = [0; 2];
    let part = libc::iovec {
        iov_base: map.as_ptr().wrapping_add(page * PAGE).cast_mut().cast(),
        iov_len: 4 * PAGE,
    };
    // SAFETY: two descriptors; pages that are there.
    unsafe {
        assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
        assert_eq!(libc::vmsplice(ends[1], &part, 1, 0), 4 * PAGE as isize);
    }
    check(&map, 0..FILE / PAGE);
    check(&map, 0..FILE / PAGE / 2);
    let mut bytes = vec![0_u8; 4 * PAGE];
    // SAFETY: room for the bytes.
    unsafe {
        assert_eq!(
            libc::read(ends[0], bytes.as_mut_ptr().cast(), 4 * PAGE),
            4 * PAGE as isize
        );
        libc::close(ends[0]);
        libc::close(ends[1]);
    }
    let right = (page * PAGE..(page + 4) * PAGE).map(byte_at);
    assert!(bytes.into_iter().eq(right));
}
