//! The speed of the disk: direct reads of a file of its own.

use super::memory::{Memory, PAGE};
use super::sample::{middle, whole};
use super::{Failure, Watch};
use softfault::clock::thread_cpu_ns;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use sync::topology::{Disk, SchedulerCosts};

/// Bytes of the file.
const FILE: u64 = 256 << 20;
/// The same in a hurry.
const SMALL_FILE: u64 = 32 << 20;
/// Bytes of a read for the bandwidth.
const LARGE: usize = 1 << 20;
/// Threads that read at a time, to find how many the disk works for.
const DEPTHS: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
/// Threads for the bandwidth.
const READERS: usize = 4;
/// The share that counts as all of the disk's speed.
const ENOUGH: f64 = 0.9;

/// Measures, or says why this directory tells nothing. The readers may run on any CPU.
pub fn measure(
    watch: &mut Watch,
    dir: &Path,
    scheduler: &SchedulerCosts,
) -> Result<Result<Disk, String>, Failure> {
    let bytes = if watch.quick { SMALL_FILE } else { FILE };
    let file = make(watch, dir, bytes)?;
    let direct = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECT)
        .open(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let direct = match direct {
        Ok(direct) => direct,
        Err(e) => return Ok(Err(format!("no direct reads in {}: {e}", dir.display()))),
    };
    let page = Memory::map(PAGE, false)?;
    if let Err(e) = read(&direct, &page, 0) {
        return Ok(Err(format!("no direct reads in {}: {e}", dir.display())));
    }
    let span = Duration::from_millis(if watch.quick { 30 } else { 300 });
    let alone = many(watch, &direct, bytes, PAGE, 1, span)?;
    let mut runs = Vec::new();
    for depth in DEPTHS {
        runs.push((depth, many(watch, &direct, bytes, PAGE, depth, span)?));
    }
    let best = runs.iter().map(|(_, run)| run.rate()).fold(0.0, f64::max);
    // The last one is as good as any.
    let enough = runs
        .iter()
        .position(|(_, run)| run.rate() >= ENOUGH * best)
        .unwrap_or(runs.len() - 1);
    let (depth, deep) = &runs[enough];
    let large = many(watch, &direct, bytes, LARGE, READERS, span)?;
    let bandwidth = large.rate() * LARGE as f64;
    // Of a thread among many: alone, a thread's time has the wake-up of an idle virtual CPU in it.
    let call = deep.cpu_ns as f64 * 1e3 / deep.latencies.len().max(1) as f64;
    // A read was timed with the processor time of its call and with the wake-up at its end. The model adds both to the
    // latency, and to `submit` a call for the submission and one for the sleep.
    let latency = middle(alone.latencies) * 1e3 - call - scheduler.wake_latency as f64;
    let request = 1e12 / best - PAGE as f64 * 1e12 / bandwidth;
    Ok(Ok(Disk {
        latency: whole(latency),
        bandwidth: whole(bandwidth),
        depth: *depth as u32,
        request: request.max(0.0).round() as u64,
        submit: whole(call - 2.0 * scheduler.call as f64),
    }))
}

/// A file without a name, with data in all of its blocks.
fn make(watch: &mut Watch, dir: &Path, bytes: u64) -> Result<File, Failure> {
    let cannot =
        |e: io::Error| Failure::Failed(format!("cannot make a file in {}: {e}", dir.display()));
    let mut file = tempfile::tempfile_in(dir).map_err(cannot)?;
    let mut block = vec![0u8; LARGE];
    let mut state = 1u32;
    for at in 0..bytes / LARGE as u64 {
        watch.tell("writing a file to read")?;
        // Data that no disk compresses away.
        for byte in &mut block {
            state = state
                .wrapping_mul(1_664_525)
                .wrapping_add(1_013_904_223 + at as u32);
            *byte = (state >> 24) as u8;
        }
        file.write_all(&block).map_err(cannot)?;
    }
    file.sync_all().map_err(cannot)?;
    Ok(file)
}

/// Reads as much as `memory` has, at `offset`.
fn read(file: &File, memory: &Memory, offset: u64) -> io::Result<()> {
    let (to, bytes) = (memory.at(0).cast(), memory.bytes());
    // SAFETY: the memory is writable for its length.
    let done = unsafe { libc::pread(file.as_raw_fd(), to, bytes, offset as i64) };
    match done {
        done if done as usize == bytes => Ok(()),
        done if done < 0 => Err(io::Error::last_os_error()),
        done => Err(io::Error::other(format!(
            "a read of {bytes} bytes gave {done}"
        ))),
    }
}

struct Run {
    reads: u64,
    seconds: f64,
    /// Nanoseconds of each read of the first thread.
    latencies: Vec<f64>,
    /// Processor time of the first thread.
    cpu_ns: u64,
}

impl Run {
    /// Reads a second.
    fn rate(&self) -> f64 {
        self.reads as f64 / self.seconds
    }
}

/// Random reads of `size` by `threads` for `span`, each of which reads once at least; on a busy machine until one has.
fn many(
    watch: &mut Watch,
    file: &File,
    bytes: u64,
    size: usize,
    threads: usize,
    span: Duration,
) -> Result<Run, Failure> {
    let (reads, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let reader = |seed: usize| {
            let (reads, stop) = (&reads, &stop);
            move || -> io::Result<(Vec<f64>, u64)> {
                let memory = Memory::map(size, false)?;
                memory.touch();
                let mut state = seed as u64 + 1;
                let mut latencies = Vec::new();
                let cpu = thread_cpu_ns();
                loop {
                    state = state
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1);
                    let offset = (state >> 33) % (bytes / size as u64) * size as u64;
                    let begin = Instant::now();
                    read(file, &memory, offset)?;
                    latencies.push(begin.elapsed().as_nanos() as f64);
                    reads.fetch_add(1, Ordering::Relaxed);
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                }
                Ok((latencies, thread_cpu_ns() - cpu))
            }
        };
        let readers: Vec<_> = (0..threads).map(|seed| scope.spawn(reader(seed))).collect();
        let mut watched = Ok(());
        let none_yet = || {
            // A read that failed is the last of its thread.
            reads.load(Ordering::Relaxed) == 0 && !readers.iter().all(|one| one.is_finished())
        };
        while (begin.elapsed() < span || none_yet()) && watched.is_ok() {
            watched = watch.tell("the disk");
            std::thread::sleep(Duration::from_millis(10));
        }
        stop.store(true, Ordering::Relaxed);
        let (reads, seconds) = (reads.load(Ordering::Relaxed), begin.elapsed().as_secs_f64());
        let mut first = None;
        for reader in readers {
            let done = reader.join().expect("it does not panic")?;
            first.get_or_insert(done);
        }
        watched?;
        let (latencies, cpu_ns) = first.expect("at least one thread");
        Ok(Run {
            reads,
            seconds,
            latencies,
            cpu_ns,
        })
    })
}
