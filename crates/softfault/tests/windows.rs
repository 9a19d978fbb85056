//! Windows: kept for the next map, shared by the maps of a file, and cheap
//! however large the file is.

mod child;
mod files;
mod proc;

use files::{byte_at, check, made_file, map, path};
use proc::status;
use softfault::{Engine, Mmap};
use std::fs::File;
use std::os::unix::fs::FileExt;

const PAGE: usize = 4096;

fn engine(megabytes: usize) -> Engine {
    files::engine(megabytes << 20)
}

fn check_all(map: &Mmap) {
    for offset in (0..map.len()).step_by(PAGE) {
        check(map, offset);
    }
}

/// A file's stamps tell its changes apart only after a tick of their clock.
fn let_stamps_age() {
    std::thread::sleep(std::time::Duration::from_millis(60));
}

#[test]
fn the_next_map_of_an_unchanged_file_finds_its_pages() {
    let file = made_file("again", 4 << 20);
    let_stamps_age();
    let engine = engine(16);
    let first = map(&engine, &file);
    check_all(&first);
    let (addr, read) = (first.as_ptr(), engine.stats().bytes_read);
    assert_eq!(read, 4 << 20);
    drop(first);
    assert_eq!(
        (engine.stats().windows, engine.stats().idle_windows),
        (0, 1)
    );
    let faults = engine.stats().faults;
    let again = map(&engine, &file.try_clone().unwrap());
    check_all(&again);
    assert_eq!(again.as_ptr(), addr);
    assert_eq!(engine.stats().bytes_read, read);
    assert_eq!(engine.stats().faults, faults, "all pages were still mapped");
    assert_eq!(
        (engine.stats().windows, engine.stats().idle_windows),
        (1, 0)
    );
}

#[test]
fn the_next_map_of_a_changed_file_does_not() {
    let file = made_file("changed", 1 << 20);
    let_stamps_age();
    let engine = engine(16);
    check_all(&map(&engine, &file));
    file.write_all_at(&[byte_at(77) ^ 1], 77).unwrap();
    let after = map(&engine, &file);
    assert_eq!(after[77], byte_at(77) ^ 1);
    check(&after, 78);
    drop(after);
    // Younger than a tick: it cannot be told whether it changed once more.
    file.write_all_at(&[5], 77).unwrap();
    assert_eq!(map(&engine, &file)[77], 5);
    file.write_all_at(&[6], 77).unwrap();
    assert_eq!(map(&engine, &file)[77], 6);
    // Stale windows are not kept.
    assert!(engine.stats().idle_windows <= 1, "{:?}", engine.stats());
}

#[test]
fn two_maps_of_a_file_share_a_window() {
    let file = made_file("share", 2 << 20);
    let_stamps_age();
    let engine = engine(16);
    let one = map(&engine, &file);
    check_all(&one);
    let other = map(&engine, &file);
    assert_eq!(one.as_ptr(), other.as_ptr());
    drop(one);
    let faults = engine.stats().faults;
    check_all(&other);
    assert_eq!(engine.stats().faults, faults);
    assert_eq!(engine.stats().windows, 1);
    let elsewhere = self::engine(8);
    let third = map(&elsewhere, &file);
    assert_ne!(third.as_ptr(), other.as_ptr(), "another engine");
    check_all(&third);
}

#[test]
fn many_files_come_and_go() {
    const FILES: usize = 400;
    // A quarter of them may be those of idle windows.
    const OPEN_FILES: u64 = 1200;
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: reads the limit, and lowers it for whoever asks later.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit), 0);
        limit.rlim_cur = OPEN_FILES.min(limit.rlim_max);
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &limit), 0);
    }
    let most_idle = limit.rlim_cur / 4;
    let make = |number: usize| {
        let place = path(&format!("many-{number}"));
        std::fs::write(&place, vec![number as u8; PAGE + number]).unwrap();
        let file = File::open(&place).unwrap();
        std::fs::remove_file(&place).unwrap();
        file
    };
    let files: Vec<_> = (0..FILES).map(make).collect();
    let_stamps_age();
    let engine = engine(16);
    for _ in 0..2 {
        let maps: Vec<_> = files.iter().map(|file| map(&engine, file)).collect();
        for (number, map) in maps.iter().enumerate() {
            assert_eq!(map.len(), PAGE + number);
            assert!(map.iter().step_by(97).all(|&byte| byte == number as u8));
        }
        assert_eq!(engine.stats().windows, FILES as u64);
        drop(maps);
        let stats = engine.stats();
        assert_eq!(stats.windows, 0);
        assert_eq!(stats.idle_windows, most_idle.min(FILES as u64), "{stats:?}");
    }
    assert!(engine.stats().peak_bytes <= 16 << 20);
}

#[test]
fn idle_windows_go_when_the_budget_is_needed() {
    let (one, other) = (made_file("idle", 4 << 20), made_file("busy", 32 << 20));
    let_stamps_age();
    let engine = engine(8);
    check_all(&map(&engine, &one));
    let busy = map(&engine, &other);
    check_all(&busy);
    let stats = engine.stats();
    assert!(stats.peak_bytes <= 8 << 20, "{stats:?}");
    let back = map(&engine, &one);
    let left = back.residency(..).unwrap();
    assert!(left.mapped + left.cached < 100, "{left:?}");
    check_all(&back);
}

fn memory_kib() -> usize {
    (status("VmRSS") + status("VmPTE")) >> 10
}

fn sparse_file(name: &str, bytes: u64) -> File {
    let file = made_file(name, 0);
    file.set_len(bytes).unwrap();
    file
}

#[test]
fn a_map_of_a_terabyte_costs_next_to_nothing() {
    let test = "a_map_of_a_terabyte_costs_next_to_nothing";
    if child::scenario().is_none() {
        return child::succeeds(test, "alone");
    }
    let file = sparse_file("terabyte", 1 << 40);
    let engine = engine(16);
    // The memory that the first map of a process costs is not this file's.
    check_all(&map(&engine, &made_file("warm-up", 1 << 20)));
    let (memory, charged) = (memory_kib(), engine.stats().resident_bytes);
    let map = map(&engine, &file);
    let cost = memory_kib().saturating_sub(memory);
    assert!(cost < 1024, "{cost} KiB");
    // A page table of the second level for each GiB is paid for when it is mapped.
    let upper = (1 << 40 >> 30) * PAGE as u64;
    assert!(engine.stats().resident_bytes - charged <= upper + (64 << 10));
    assert_eq!(map.len(), 1 << 40);
    assert_eq!(map[(1 << 40) - 1] | map[0] | map[1 << 39], 0);
    drop(map);
    assert!(memory_kib().saturating_sub(memory) < 1024);
}

/// Whether the kernel frees a page table all of whose pages are zapped (CONFIG_PT_RECLAIM).
fn tables_go_with_their_pages() -> bool {
    const SPANS: usize = 64;
    let memory = memmap2::MmapMut::map_anon(SPANS << 21).unwrap();
    memory.advise(memmap2::Advice::NoHugePage).unwrap();
    let before = status("VmPTE");
    for span in 0..SPANS {
        // SAFETY: within the map, which is this function's.
        unsafe { memory.as_ptr().cast_mut().add(span << 21).write_volatile(1) };
    }
    let touched = status("VmPTE");
    // SAFETY: zaps pages that nobody uses.
    unsafe { memory.unchecked_advise(memmap2::UncheckedAdvice::DontNeed) }.unwrap();
    assert!(touched - before >= SPANS / 2 * PAGE);
    touched - status("VmPTE") >= SPANS / 2 * PAGE
}

#[test]
fn one_page_in_every_two_megabytes_stays_in_the_budget() {
    let test = "one_page_in_every_two_megabytes_stays_in_the_budget";
    if child::scenario().is_none() {
        return child::succeeds(test, "alone");
    }
    // Page tables alone would be eight times the budget.
    const BUDGET: usize = 32 << 20;
    let file = sparse_file("every", 1 << 37);
    let engine = files::engine(BUDGET);
    let before = memory_kib();
    let map = map(&engine, &file);
    let mut most = 0;
    for table in 0..1 << 16 {
        // SAFETY: within the map.
        let found = unsafe { map.as_ptr().add((table << 21) + 12_345).read_volatile() };
        assert_eq!(found, 0);
        if table % 2048 == 0 {
            most = most.max(memory_kib().saturating_sub(before));
        }
    }
    let stats = engine.stats();
    println!(
        "{} of {} KiB at most; {} bytes charged",
        most,
        BUDGET >> 10,
        stats.peak_bytes
    );
    assert!(stats.peak_bytes <= BUDGET as u64, "{stats:?}");
    assert!(stats.evicted > 0, "{stats:?}");
    assert!(most > 20 << 10, "{most} KiB: the touches were not seen");
    if !tables_go_with_their_pages() {
        let why = "page tables of evicted pages stay: before Linux 6.14, or not x86-64";
        return softfault_skip::skipped("kernel", why);
    }
    assert!(most <= (BUDGET >> 10) + (16 << 10), "{most} KiB");
}

#[test]
fn islands_of_data_in_a_sparse_file() {
    // Starts and lengths, in bytes: not of blocks, across blocks, and the end.
    let islands = [
        (0, 1),
        (5 * PAGE, PAGE),
        (16 * PAGE - 10, 20),
        ((1 << 20) + 7, 200_000),
        ((7 << 30) + (15 * PAGE), 3 * PAGE),
        ((8 << 30) - 5, 5),
    ];
    let file = sparse_file("islands", 8 << 30);
    let mut pages = 0;
    for (start, len) in islands {
        let bytes: Vec<u8> = (start..start + len).map(|at| byte_at(at) | 1).collect();
        file.write_all_at(&bytes, start as u64).unwrap();
        pages += (start + len).div_ceil(PAGE) - start / PAGE;
    }
    file.sync_all().unwrap();
    let engine = engine(8);
    let map = map(&engine, &file);
    let expected = |at: usize| {
        let data = islands
            .iter()
            .any(|&(start, len)| (start..start + len).contains(&at));
        if data { byte_at(at) | 1 } else { 0 }
    };
    for (start, len) in islands {
        let around = start.saturating_sub(40 * PAGE)..(start + len + 40 * PAGE).min(map.len());
        for at in around.step_by(61).chain([start, start + len - 1]) {
            assert_eq!(map[at], expected(at), "byte {at}");
        }
    }
    for step in 0..4096usize {
        let at = step * 2_097_143 % map.len();
        assert_eq!(map[at], expected(at), "byte {at}");
    }
    let stats = engine.stats();
    // ext4 may have allocated a little more than was written.
    assert!(stats.bytes_read <= (3 * pages * PAGE) as u64, "{stats:?}");
    assert!(
        stats.zero_pages > 0 && stats.peak_bytes <= 8 << 20,
        "{stats:?}"
    );
}
