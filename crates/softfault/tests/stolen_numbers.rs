//! The program puts other files in the place of our descriptors, while maps and swap are
//! read: no byte of another file is seen, and no other file is written to.

mod child;
mod files;

use files::{byte_at, made_file};
use softfault::{AsyncReads, Compression, Engine, Swap};
use softfault_oracle::Random;
use std::collections::HashSet;
use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const BUDGET: usize = 16 << 20;
const BYTES: usize = 32 << 20;
const PAGE: usize = 4096;
const FOREIGN: u8 = 0xA5;
/// Numbers to steal, at least.
const THEFTS: u64 = 60;

/// Numbers of regular files that are not in `own`.
fn others(own: &HashSet<RawFd>) -> Vec<RawFd> {
    let numbers = std::fs::read_dir("/proc/self/fd").unwrap();
    let numbers = numbers.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let is_other = |fd: &RawFd| {
        let place = format!("/proc/self/fd/{fd}");
        let regular = std::fs::metadata(place).is_ok_and(|found| found.is_file());
        *fd > 2 && !own.contains(fd) && regular
    };
    numbers.filter(is_other).collect()
}

/// A file of other bytes, as large as ours.
fn foreign() -> File {
    let file = made_file("foreign", 0);
    let bytes = vec![FOREIGN; 1 << 20];
    for at in 0..(2 * BYTES) >> 20 {
        file.write_all_at(&bytes, (at as u64) << 20).unwrap();
    }
    file
}

#[track_caller]
fn is_unchanged(foreign: &File) {
    assert_eq!(foreign.metadata().unwrap().len(), 2 * BYTES as u64);
    let mut bytes = vec![0; 1 << 20];
    for at in 0..(2 * BYTES) >> 20 {
        foreign
            .read_exact_at(&mut bytes, (at as u64) << 20)
            .unwrap();
        assert!(bytes.iter().all(|&byte| byte == FOREIGN), "at {at} MiB");
    }
}

/// Puts `foreign` in the place of each number of ours, or closes it, until there were
/// enough, while `reads` go on.
fn steal(own: &[&File], foreign: &File, reads: &AtomicU64, over: &AtomicBool) {
    let own: HashSet<_> = own.iter().map(|file| file.as_raw_fd()).collect();
    let mut stolen = HashSet::new();
    let (mut thefts, mut round, mut nothing) = (0, 0, 0);
    // Beside other programs the readers may find what they need for a while without a number.
    while thefts < THEFTS && nothing < 400 {
        let found = others(&own);
        // No number is made any more, at last: all goes through the table.
        nothing = if found.is_empty() { nothing + 1 } else { 0 };
        for fd in found {
            if stolen.contains(&fd) {
                continue;
            }
            // SAFETY: numbers that the program does not know, as any program may.
            assert_eq!(unsafe { libc::dup2(foreign.as_raw_fd(), fd) }, fd);
            stolen.insert(fd);
            thefts += 1;
        }
        // Some reads by the stolen numbers, then they are free to be taken again.
        let seen = reads.load(Ordering::Relaxed);
        while reads.load(Ordering::Relaxed) < seen + 20 {
            std::thread::yield_now();
        }
        round += 1;
        for fd in stolen.drain() {
            // SAFETY: the number that was just put there.
            unsafe { libc::close(fd) };
        }
    }
    println!("{thefts} thefts in {round} rounds");
    // The readers end, too, where this fails.
    over.store(true, Ordering::Relaxed);
    assert!(thefts > 20, "there was nothing to steal");
}

fn maps(how: AsyncReads) {
    let engine = Engine::builder()
        .allow_kernel_maps(false)
        .memory(BUDGET)
        .async_reads(how);
    let engine = engine.build().unwrap();
    let (file, foreign) = (made_file("data", BYTES), foreign());
    // SAFETY: nobody writes to it.
    let (map, copy) = unsafe { (engine.map(&file).unwrap(), engine.map_copy(&file).unwrap()) };
    let (reads, over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for number in 0..3u64 {
            let (map, copy, reads, over) = (&map, &copy, &reads, &over);
            scope.spawn(move || {
                let mut random = Random::new(number);
                while !over.load(Ordering::Relaxed) {
                    let at = random.below(BYTES);
                    match number {
                        0 => files::check(copy, at),
                        // A few in a row are read ahead.
                        _ => (at..(at + 8 * PAGE).min(BYTES))
                            .step_by(PAGE)
                            .for_each(|at| files::check(map, at)),
                    }
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        steal(&[&file, &foreign], &foreign, &reads, &over);
    });
    is_unchanged(&foreign);
}

/// Failed before: bytes of the other file.
#[test]
fn maps_show_their_files() {
    let test = "maps_show_their_files";
    match child::scenario().as_deref() {
        None => {
            child::succeeds(test, "io_submit");
            child::succeeds(test, "io_uring");
        }
        Some("io_submit") => maps(AsyncReads::Auto),
        Some(_) => maps(AsyncReads::IoUring),
    }
}

fn swaps(compression: Compression) {
    let swap = Swap::in_dir(env!("CARGO_TARGET_TMPDIR")).bytes(2 * BYTES as u64);
    let swap = swap.compression(compression);
    let engine = Engine::builder()
        .allow_kernel_maps(false)
        .memory(BUDGET)
        .swap(swap);
    let engine = engine.build().unwrap();
    let foreign = foreign();
    let mut memory = engine.map_anon(BYTES).unwrap();
    let (reads, over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for (number, part) in memory.chunks_mut(BYTES / 2).enumerate() {
            let (reads, over) = (&reads, &over);
            scope.spawn(move || {
                let expected = |page: usize, round: u8| byte_at(page * PAGE + 7) ^ round;
                let pages = part.len() / PAGE;
                let mut rounds = vec![0u8; pages];
                let mut random = Random::new(number as u64);
                for page in 0..pages {
                    part[page * PAGE + 7] = expected(page, 0);
                }
                while !over.load(Ordering::Relaxed) {
                    let page = random.below(pages);
                    let byte = &mut part[page * PAGE + 7];
                    assert_eq!(*byte, expected(page, rounds[page]), "page {page}");
                    rounds[page] = rounds[page].wrapping_add(1);
                    *byte = expected(page, rounds[page]);
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        steal(&[&foreign], &foreign, &reads, &over);
    });
    drop(memory);
    is_unchanged(&foreign);
}

/// Failed before: the other file was written to.
#[test]
fn swap_is_swap() {
    let test = "swap_is_swap";
    match child::scenario().as_deref() {
        None => {
            child::succeeds(test, "plain");
            child::succeeds(test, "lz4");
        }
        Some("plain") => swaps(Compression::None),
        Some(_) => swaps(Compression::Lz4),
    }
}

/// A child of fork whose parent has memory in swap and a private map of a file: all
/// descriptors that it inherits are closed, other files opened in their place.
#[test]
fn a_child_reads_inherited_memory() {
    let test = "a_child_reads_inherited_memory";
    if child::scenario().is_none() {
        return child::succeeds(test, "alone");
    }
    let swap = Swap::in_dir(env!("CARGO_TARGET_TMPDIR")).bytes(2 * BYTES as u64);
    let engine = Engine::builder()
        .allow_kernel_maps(false)
        .memory(BUDGET)
        .swap(swap)
        .build()
        .unwrap();
    let (file, foreign) = (made_file("data", BYTES), foreign());
    // SAFETY: nobody writes to it.
    let copy = unsafe { engine.map_copy(&file) }.unwrap();
    let mut memory = engine.map_anon(BYTES).unwrap();
    for at in (0..BYTES).step_by(PAGE) {
        memory[at] = byte_at(at);
    }
    let status = child::forked(|| {
        let own = [file.as_raw_fd(), foreign.as_raw_fd()].into();
        let stolen = others(&own);
        // SAFETY: numbers that the program does not know, as any program may.
        let put = stolen
            .iter()
            .map(|&fd| unsafe { libc::dup2(foreign.as_raw_fd(), fd) });
        assert!(put.count() >= 2, "swap, and the file");
        for at in (0..BYTES).step_by(PAGE) {
            assert_eq!(memory[at], byte_at(at), "at {at}");
            assert_eq!(copy[at + 9], byte_at(at + 9), "at {at}");
        }
        0
    });
    assert_eq!(status, 0);
    is_unchanged(&foreign);
    for at in (0..BYTES).step_by(PAGE) {
        assert_eq!(memory[at], byte_at(at), "at {at}");
    }
}
