//! The cost of a scan of a file by each policy of reading, cold and warm:
//!
//! ```text
//! cargo run --release -p softfault --example reads_cost -- FILE [kernel|direct|cached|auto]...
//! ```
//!
//! Each pass is a process of its own that maps the file, adds up all its bytes and ends. Before a cold pass the file
//! is read and dropped from the page cache, so that each finds as much free memory: in a virtual machine, memory that
//! the host has taken back costs more than all else here. Of the kernel, it is memmap2's map of the file.

use softfault::{Engine, Reads};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::time::Instant;

const MEMORY: usize = 256 << 20;

fn main() {
    let mut args = std::env::args().skip(1);
    let path = args.next().expect("a file");
    if path == "--pass" {
        let (path, how) = (args.next().expect("a file"), args.next().expect("a policy"));
        return pass(&path, &how);
    }
    let mut policies: Vec<_> = args.collect();
    if policies.is_empty() {
        policies = ["kernel", "direct", "cached", "auto"]
            .map(str::to_owned)
            .to_vec();
    }
    for round in 1..=3 {
        for how in &policies {
            for temperature in ["cold", "warm"] {
                if temperature == "cold" {
                    drop_cache(&path);
                }
                eprint!("{round} {how:7} {temperature}: ");
                let this = std::env::current_exe().expect("a path");
                let mut command = Command::new(this);
                let status = command.args(["--pass", &path, how]).status();
                assert!(status.expect("a process").success());
            }
        }
    }
}

fn drop_cache(path: &str) {
    let file = File::open(path).expect("opened");
    file.sync_all().expect("synced");
    std::io::copy(&mut &file, &mut std::io::sink()).expect("read");
    // SAFETY: no memory involved.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
}

fn pass(path: &str, how: &str) {
    let file = File::open(path).expect("opened");
    let start = Instant::now();
    let reads = match how {
        "kernel" => {
            // SAFETY: nobody writes to the file meanwhile.
            let map = unsafe { memmap2::Mmap::map(&file) }.expect("mapped");
            let sum = sum(&map);
            return eprintln!("{}; sum {sum:x}", cost(start));
        }
        "direct" => Reads::Direct,
        "cached" => Reads::Cached,
        "auto" => Reads::Auto,
        _ => panic!("kernel, direct, cached or auto, not {how}"),
    };
    let engine = Engine::builder().memory(MEMORY).reads(reads);
    let engine = engine.build().expect("an engine");
    // SAFETY: nobody writes to the file meanwhile.
    let map = unsafe { engine.map(&file) }.expect("mapped");
    let sum = sum(&map);
    let cost = cost(start);
    let stats = engine.stats();
    eprintln!(
        "{cost}; sum {sum:x}; {} MiB through the page cache, {} past it; at most {} MiB in memory",
        stats.read_cached_bytes >> 20,
        stats.read_direct_bytes >> 20,
        stats.peak_bytes >> 20,
    );
}

fn sum(bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(8);
    let words = words.map(|word| u64::from_ne_bytes(word.try_into().expect("eight bytes")));
    words.fold(0, u64::wrapping_add)
}

fn cost(start: Instant) -> String {
    let seconds = start.elapsed().as_secs_f64();
    // SAFETY: zeros are valid.
    let mut usage: libc::rusage = unsafe { core::mem::zeroed() };
    // SAFETY: fills the structure.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    let of = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    let processor = of(usage.ru_utime) + of(usage.ru_stime);
    let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let read = io
        .lines()
        .find_map(|line| line.strip_prefix("read_bytes: "));
    let read: u64 = read.and_then(|bytes| bytes.parse().ok()).unwrap_or(0);
    let disk = read >> 20;
    format!("{seconds:.3} s, {processor:.3} s of processor, {disk} MiB from the disk")
}
