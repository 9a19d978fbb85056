//! Files read past the kernel's page cache, through it, and by the memory that there is: the bytes that come from the disk,
//! the pages that stay in the page cache, and that bytes are the same.

mod cgroup;
mod child;
mod files;
mod proc;

use cgroup::Group;
use child::{command, scenario};
use files::{byte_at, check, made_file, map, path};
use proc::machine;
use softfault::{AsyncReads, Engine, Reads};
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const PAGE: usize = 4096;
const MIB: usize = 1 << 20;
const BUDGET: usize = 16 << 20;
const ALL: [Reads; 3] = [Reads::Direct, Reads::Cached, Reads::Auto];

fn engine(reads: Reads) -> Engine {
    let builder = Engine::builder()
        .allow_kernel_maps(false)
        .memory(BUDGET)
        .reads(reads);
    builder.build().expect("an engine")
}

/// A file of known bytes, with a name for other processes, and nothing of it in the page cache.
struct Named {
    path: PathBuf,
}

impl Named {
    fn new(name: &str, bytes: usize) -> Self {
        let path = path(name);
        let text: Vec<u8> = (0..bytes).map(byte_at).collect();
        fs::write(&path, text).expect("written");
        let made = Self { path };
        made.drop_cache();
        made
    }

    fn open(&self) -> File {
        File::open(&self.path).expect("opened")
    }

    fn drop_cache(&self) {
        let file = self.open();
        file.sync_all().expect("synced");
        // SAFETY: no memory involved.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Bytes of a file that are in the page cache; `None` where the kernel does not tell.
fn cached(file: &File) -> Option<usize> {
    Some(cachestat(file)?[0] as usize * PAGE)
}

/// Pages of a file that are in the page cache, that are dirty, are written, were evicted, and were evicted of late.
fn cachestat(file: &File) -> Option<[u64; 5]> {
    const CACHESTAT: i64 = 451;
    let (range, mut found) = ([0u64; 2], [0u64; 5]);
    let (from, into) = (range.as_ptr(), found.as_mut_ptr());
    // SAFETY: reads and fills the given bytes.
    let answer = unsafe { libc::syscall(CACHESTAT, file.as_raw_fd(), from, into, 0) };
    (answer == 0).then_some(found)
}

/// Bytes that this process has had from the disk.
fn from_disk() -> Option<usize> {
    let io = fs::read_to_string("/proc/self/io").ok()?;
    let line = io
        .lines()
        .find_map(|line| line.strip_prefix("read_bytes: "))?;
    line.parse().ok()
}

/// True if the file's disk is one, and counts.
fn counts(file: &Named) -> bool {
    let before = from_disk();
    let mut page = [0; PAGE];
    file.open().read_exact_at(&mut page, 0).expect("read");
    let counted = before.zip(from_disk()).is_some_and(|(a, b)| b > a);
    file.drop_cache();
    counted && cached(&file.open()) == Some(0)
}

fn named(name: &str) -> Reads {
    match name {
        "direct" => Reads::Direct,
        "cached" => Reads::Cached,
        "auto" => Reads::Auto,
        _ => panic!("{name}"),
    }
}

/// In a child: joins a memory cgroup if there is one to join, maps a file, touches all of it and prints the
/// bytes read and the engine's peak.
fn scan_in_child(scenario: &str) {
    let mut words = scenario.split(' ');
    let mut word = || words.next().expect("a word");
    let (reads, path, group) = (named(word()), word(), word());
    if group != "-" {
        fs::write(Path::new(group).join("cgroup.procs"), "0").expect("joined");
    }
    let file = File::open(path).expect("opened");
    let engine = engine(reads);
    let map = map(&engine, &file);
    // After the page cache had all that the program itself needs.
    let before = from_disk().expect("counted");
    (0..map.len()).step_by(PAGE).for_each(|at| check(&map, at));
    let disk = from_disk().expect("counted") - before;
    let stats = engine.stats();
    println!("disk={disk} peak={}", stats.peak_bytes);
    println!("cached={}", stats.read_cached_bytes);
    println!("direct={}", stats.read_direct_bytes);
}

/// The output of a child that scans.
struct Scanned {
    disk: usize,
    peak: usize,
    cached: usize,
    direct: usize,
}

fn scan(test: &str, how: &str, file: &Named, group: Option<&Group>) -> Scanned {
    let group = group.map_or("-".into(), |group| group.0.display().to_string());
    let scenario = format!("{how} {} {group}", file.path.display());
    said(command(test, &scenario))
}

fn said(mut command: Command) -> Scanned {
    let output = command.output().expect("a child");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    let number = |name: &str| {
        let mut words = text.split_whitespace();
        let number = words.find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        number.and_then(|number| number.parse().ok()).expect(name)
    };
    Scanned {
        disk: number("disk"),
        peak: number("peak"),
        cached: number("cached"),
        direct: number("direct"),
    }
}

/// Free memory is there for `bytes`.
fn has_room(bytes: usize) -> bool {
    machine("MemFree") > machine("MemTotal") / 16 + bytes || machine("MemAvailable") / 16 > bytes
}

/// Pages of the page cache are the kernel's to take at any time, a few of them or all: memory is short, a virtual machine
/// gives pages back to its host that nobody has used for a while, somebody drops them. A run that fails is run again if the
/// kernel counts such pages; not if it took them for the limit of the test's own group, which the test forbids.
fn undisturbed(files: &[&Named], group: Option<&Group>, run: impl Fn()) {
    for again in (0..20).rev() {
        let before = taken();
        let Err(why) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(&run)) else {
            return;
        };
        let evicted = files.iter().any(|file| evicted(&file.open()));
        let disturbed = evicted || taken() > before;
        if again == 0 || !disturbed || group.is_some_and(Group::met_its_limit) {
            std::panic::resume_unwind(why);
        }
        println!("once more: the kernel took pages meanwhile");
    }
}

/// True if the kernel has taken pages of the file to have their memory; forgotten as they are read again.
fn evicted(file: &File) -> bool {
    cachestat(file).is_some_and(|found| found[3] > 0)
}

/// The machine's counts of pages that were taken: those that were read again, and the times that all were dropped.
fn taken() -> u64 {
    let counts = fs::read_to_string("/proc/vmstat").expect("readable");
    let count = |name: &str| -> u64 {
        let mut lines = counts.lines();
        let count = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        count.map_or(0, |count| count.parse().expect("a number"))
    };
    count("workingset_refault_file") + count("drop_pagecache")
}

/// Failed before: every process began cold.
#[test]
fn a_second_process_reads_nothing_from_the_disk() {
    const TEST: &str = "a_second_process_reads_nothing_from_the_disk";
    const BYTES: usize = 48 * MIB;
    if let Some(scenario) = scenario() {
        return scan_in_child(&scenario);
    }
    let file = Named::new("second", BYTES);
    if !counts(&file) {
        return softfault_skip::skipped("kernel", "reads from this disk are not counted");
    }
    undisturbed(&[&file], None, || twice(TEST, &file, BYTES));
}

fn twice(test: &str, file: &Named, bytes: usize) {
    for how in ["direct", "cached", "auto"] {
        if how == "auto" && !has_room(bytes) {
            softfault_skip::skipped("kernel", "memory is short");
            continue;
        }
        file.drop_cache();
        let first = scan(test, how, file, None);
        let second = scan(test, how, file, None);
        let stays = cached(&file.open()).expect("its owner may ask");
        println!(
            "{how}: {} and {} from the disk, {stays} stay",
            first.disk, second.disk
        );
        assert!(first.disk >= bytes, "{how}");
        assert!(
            first.disk <= bytes + bytes / 20,
            "{how}: read twice: {}",
            first.disk
        );
        assert!(first.peak.max(second.peak) <= BUDGET, "{how}");
        match how {
            "direct" => {
                assert!(second.disk >= bytes && stays == 0);
                assert_eq!(second.cached, 0);
                assert!(second.direct >= bytes);
            }
            _ => {
                assert_eq!((second.disk, stays), (0, bytes), "{how}");
                assert_eq!(second.direct, 0);
                assert!(second.cached >= bytes);
            }
        }
    }
}

/// A file that does not fit goes past the page cache, and other programs' pages there stay; a file that fits is left there.
#[test]
fn a_memory_cgroup_bounds_the_page_cache() {
    const TEST: &str = "a_memory_cgroup_bounds_the_page_cache";
    if let Some(scenario) = scenario() {
        return scan_in_child(&scenario);
    }
    let Some(group) = Group::new("bounds", 96 * MIB) else {
        return softfault_skip::skipped("root", "no memory cgroup can be made");
    };
    let (large, small) = (
        Named::new("large", 160 * MIB),
        Named::new("small", 24 * MIB),
    );
    if !counts(&large) || !has_room(24 * MIB) {
        return softfault_skip::skipped(
            "kernel",
            "reads from this disk are not counted, or memory is short",
        );
    }
    let files = [&large, &small];
    undisturbed(&files, Some(&group), || {
        bounded(TEST, &large, &small, &group)
    });
}

fn bounded(test: &str, large: &Named, small: &Named, group: &Group) {
    let stays = |file: &Named| cached(&file.open()).expect("its owner may ask");
    large.drop_cache();
    small.drop_cache();

    let fits = scan(test, "auto", small, Some(group));
    assert_eq!((fits.direct, stays(small)), (0, 24 * MIB), "it fits");
    let first = scan(test, "auto", large, Some(group));
    println!("{} of the large file stay", stays(large));
    assert!(
        first.disk >= 160 * MIB && first.disk <= 168 * MIB,
        "{}",
        first.disk
    );
    assert!(stays(large) <= 2 * MIB, "{} stay", stays(large));
    assert_eq!(stays(small), 24 * MIB, "another's pages went");
    let again = scan(test, "auto", small, Some(group));
    assert_eq!(again.disk, 0);

    // Pages that are there are taken from there, whether the file would fit or not, and stay.
    large.drop_cache();
    let text = fs::read(&large.path).expect("read");
    drop(text);
    assert_eq!(stays(large), 160 * MIB);
    let warm = scan(test, "auto", large, Some(group));
    println!(
        "warm: {} from the disk, {} past the page cache",
        warm.disk, warm.direct
    );
    assert_eq!(stays(large), 160 * MIB);
    if takes_without_keeping(large) {
        assert_eq!((warm.disk, warm.direct), (0, 0));
    }
    // And Cached leaves it to the kernel, within the limit.
    large.drop_cache();
    scan(test, "cached", large, Some(group));
    println!("cached: {} stay", stays(large));
    assert!(stays(large) > 8 * MIB && stays(large) <= 96 * MIB);
}

/// True if the kernel and the file system know RWF_DONTCACHE.
fn takes_without_keeping(file: &Named) -> bool {
    let mut byte = 0u8;
    let part = libc::iovec {
        iov_base: (&raw mut byte).cast(),
        iov_len: 1,
    };
    let file = file.open();
    // SAFETY: one part, of one byte.
    unsafe { libc::preadv2(file.as_raw_fd(), &raw const part, 1, 0, 0x80) == 1 }
}

/// In order, and by several threads in no order.
#[test]
fn bytes_are_the_same_by_each() {
    let file = made_file("same", 40 * MIB + 1234);
    let bytes = 40 * MIB + 1234;
    for reads in ALL {
        for how in [AsyncReads::Auto, AsyncReads::IoUring, AsyncReads::Never] {
            let builder = Engine::builder()
                .allow_kernel_maps(false)
                .memory(BUDGET)
                .reads(reads);
            let engine = match builder.async_reads(how).build() {
                Ok(engine) => engine,
                Err(error) => {
                    assert_eq!(how, AsyncReads::IoUring, "{error}");
                    softfault_skip::skipped("kernel", error);
                    continue;
                }
            };
            let map = map(&engine, &file);
            // In order, then by several threads in no order.
            (0..bytes).step_by(PAGE / 2).for_each(|at| check(&map, at));
            std::thread::scope(|scope| {
                for seed in 1..=4u64 {
                    let map = &map;
                    scope.spawn(move || {
                        let mut state = seed;
                        for _ in 0..3000 {
                            state = state
                                .wrapping_mul(6_364_136_223_846_793_005)
                                .wrapping_add(seed);
                            check(map, (state >> 33) as usize % bytes);
                        }
                    });
                }
            });
            check(&map, bytes - 1);
            let stats = engine.stats();
            assert!(stats.peak_bytes <= BUDGET as u64, "{reads:?} {how:?}");
            assert_eq!((stats.read_errors, stats.failed_touches), (0, 0));
            let through = stats.read_cached_bytes > 0;
            assert!(reads != Reads::Direct || !through, "{reads:?} {how:?}");
            assert!(reads != Reads::Cached || through, "{reads:?} {how:?}");
        }
    }
}

/// A page that is read after a write shows the bytes that read(2) would see, written back or not.
#[test]
fn a_write_is_seen_when_the_page_is_read_again() {
    for reads in ALL {
        let file = made_file("written", 4 * MIB);
        let engine = engine(reads);
        let map = map(&engine, &file);
        (0..4 * MIB).step_by(PAGE).for_each(|at| check(&map, at));
        for at in (0..4 * MIB).step_by(64 * PAGE) {
            file.write_all_at(&[!byte_at(at)], at as u64)
                .expect("written");
            map.invalidate(at..at + PAGE).expect("forgotten");
            // SAFETY: within the map; volatile, so that the touch happens here.
            let found = unsafe { map.as_ptr().add(at).read_volatile() };
            assert_eq!(found, !byte_at(at), "{reads:?} at {at}");
        }
    }
}

/// A file system without a disk, and a file that is mostly holes.
#[test]
fn files_without_a_disk_and_with_holes() {
    for reads in ALL {
        let path = Path::new("/dev/shm").join(format!("softfault-reads-{}", std::process::id()));
        let text: Vec<u8> = (0..2 * MIB + 5).map(byte_at).collect();
        fs::write(&path, text).expect("written");
        let in_memory = File::open(&path).expect("opened");
        fs::remove_file(&path).expect("removed");
        let engine = engine(reads);
        let shown = map(&engine, &in_memory);
        (0..2 * MIB + 5)
            .step_by(PAGE)
            .for_each(|at| check(&shown, at));
        check(&shown, 2 * MIB + 4);

        let sparse = made_file("sparse", 64 * PAGE);
        sparse.set_len(1 << 40).expect("longer");
        let shown = map(&engine, &sparse);
        (0..64 * PAGE)
            .step_by(PAGE)
            .for_each(|at| check(&shown, at));
        assert_eq!((shown[1 << 39], shown[(1 << 40) - 1]), (0, 0));
    }
}

/// Reads that were started and that nobody came for: the engine goes all the same, and so does a map of
/// another file.
#[test]
fn prefetched_pages_are_left_behind() {
    for reads in ALL {
        let files: Vec<_> = (0..4).map(|_| made_file("left", 8 * MIB)).collect();
        for _ in 0..3 {
            let engine = engine(reads);
            for file in &files {
                let map = map(&engine, file);
                // Enough to be read ahead of.
                (0..64 * PAGE).step_by(PAGE).for_each(|at| check(&map, at));
                drop(map);
            }
            engine.close_idle();
            let map = map(&engine, &files[0]);
            (0..8 * MIB).step_by(PAGE).for_each(|at| check(&map, at));
        }
    }
}

/// `SOFTFAULT_READS` is for engines that do not say it.
#[test]
fn the_environment_says_how_to_read() {
    const TEST: &str = "the_environment_says_how_to_read";
    if scenario().is_some() {
        let file = made_file("said", MIB);
        let builder = || Engine::builder().allow_kernel_maps(false).memory(BUDGET);
        let engine = match builder().build() {
            Ok(engine) => engine,
            Err(error) => {
                assert!(builder().reads(Reads::Direct).build().is_ok());
                return println!("refused: {error}");
            }
        };
        let map = map(&engine, &file);
        (0..MIB).step_by(PAGE).for_each(|at| check(&map, at));
        return println!(
            "through the page cache: {}",
            engine.stats().read_cached_bytes > 0
        );
    }
    let with = |value: &str| {
        let output = command(TEST, "child")
            .env("SOFTFAULT_READS", value)
            .output();
        let output = output.expect("a child");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(with("cached").contains("through the page cache: true"));
    assert!(with("direct").contains("through the page cache: false"));
    assert!(with("auto").contains("through the page cache: "));
    assert!(
        with("no")
            .contains("refused: SOFTFAULT_READS=no: the value must be direct, cached or auto")
    );
}
