//! The cost of the kernel beneath real page faults.

use super::cpus::pin;
use super::memory::{Memory, PAGE};
use super::sample::{each, median, middle, whole};
use super::{Failure, Watch, uffd};
use std::hint::{black_box, spin_loop};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

/// Pages of a sample.
const PAGES: usize = 256;
/// Pages of a run, as a proven sequence maps them at a time.
const RUN: usize = 16;
/// Ranges that one call zaps.
const BATCH: usize = 128;
/// Shootdowns of a sample.
const SHOOTDOWNS: usize = 50;
/// Tries of a sample that somebody else came between.
const TRIES: usize = 20;

/// A fault that is served by the thread that has it; picoseconds.
pub struct Served {
    /// The signal and its return, without the copy.
    pub signal: u64,
    /// The copy, without its pages.
    pub copy: u64,
    /// Each page of it.
    pub copy_page: u64,
}

/// The userfaultfd of the handler.
static FD: AtomicI32 = AtomicI32::new(-1);
static FROM: AtomicUsize = AtomicUsize::new(0);
static WINDOW: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];

extern "C" fn serve(_: libc::c_int, about: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel gives a siginfo_t.
    let addr = unsafe { (*about).si_addr() }.addr();
    let page = addr & !(PAGE - 1);
    let window = WINDOW[0].load(Ordering::Relaxed)..WINDOW[1].load(Ordering::Relaxed);
    let (fd, from) = (FD.load(Ordering::Relaxed), FROM.load(Ordering::Relaxed));
    // SAFETY: a page of the window, which is registered, and a page to copy.
    if !window.contains(&addr) || unsafe { uffd::copy(fd, page, from, PAGE) }.is_err() {
        // SAFETY: without a page the touch would fault for ever.
        unsafe { libc::abort() };
    }
}

/// The signal and the copies; or why userfaultfd cannot be had.
pub fn served(watch: &mut Watch) -> Result<Result<Served, String>, Failure> {
    let (window, source) = (
        Memory::map(PAGES * PAGE, false)?,
        Memory::map(RUN * PAGE, false)?,
    );
    source.touch();
    let fd = match uffd::over(&window) {
        Ok(fd) => fd,
        Err(e) => return Ok(Err(format!("userfaultfd: {e}"))),
    };
    let copies = |watch: &mut Watch, what: &str, run: usize| {
        median(watch, what, || {
            let mut failed = Ok(());
            let picoseconds = each(PAGES / run, || {
                for at in (0..PAGES).step_by(run) {
                    let (to, from) = (window.page(at).addr(), source.at(0).addr());
                    // SAFETY: pages of the window, and as many to copy.
                    let done = unsafe { uffd::copy(fd.as_raw_fd(), to, from, run * PAGE) };
                    failed = std::mem::replace(&mut failed, Ok(())).and(done);
                }
            });
            window.drop_pages()?;
            failed?;
            Ok(picoseconds)
        })
    };
    let one = copies(watch, "a copy of a page", 1)?;
    let run = copies(watch, "a copy of a run", RUN)?;
    FD.store(fd.as_raw_fd(), Ordering::Relaxed);
    FROM.store(source.at(0).addr(), Ordering::Relaxed);
    WINDOW[0].store(window.at(0).addr(), Ordering::Relaxed);
    WINDOW[1].store(window.at(0).addr() + window.bytes(), Ordering::Relaxed);
    let before = install()?;
    let touches = median(watch, "a served fault", || {
        let picoseconds = each(PAGES, || window.touch());
        window.drop_pages()?;
        Ok(picoseconds)
    });
    // SAFETY: the action that there was before.
    unsafe { libc::sigaction(libc::SIGBUS, &before, std::ptr::null_mut()) };
    let touched = touches?;
    let page = ((run - one) / (RUN - 1) as f64).max(0.0);
    Ok(Ok(Served {
        signal: whole(touched - one),
        copy: whole(one - page),
        copy_page: whole(page),
    }))
}

/// Installs the handler; returns the old action.
fn install() -> io::Result<libc::sigaction> {
    // SAFETY: zeros are an action with an empty mask.
    let (mut action, mut before): (libc::sigaction, libc::sigaction) =
        unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    action.sa_sigaction = serve as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // All other signals are masked, as in the library's handler.
    // SAFETY: live structures.
    match unsafe {
        libc::sigfillset(&mut action.sa_mask);
        libc::sigaction(libc::SIGBUS, &action, &mut before)
    } {
        0 => Ok(before),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Unmapping pages; picoseconds.
pub struct Zaps {
    /// A batch.
    pub batch: u64,
    /// Each page of it.
    pub page: u64,
}

/// Unmaps, by one call for many ranges where the kernel allows it on oneself.
struct Zapper(Option<OwnedFd>);

impl Zapper {
    fn new() -> Self {
        // SAFETY: makes a file descriptor.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0) };
        // SAFETY: the descriptor is new, so it is nobody else's.
        Self((fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd as i32) }))
    }

    fn zap(&self, ranges: &[libc::iovec]) -> io::Result<()> {
        if let Some(process) = &self.0 {
            // SAFETY: ranges of memory of ours, to which nobody has a reference.
            let done = unsafe {
                libc::syscall(
                    libc::SYS_process_madvise,
                    process.as_raw_fd(),
                    ranges.as_ptr(),
                    ranges.len(),
                    libc::MADV_DONTNEED,
                    0,
                )
            };
            if done > 0 {
                return Ok(());
            }
        }
        for range in ranges {
            // SAFETY: as above.
            if unsafe { libc::madvise(range.iov_base, range.iov_len, libc::MADV_DONTNEED) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    }
}

/// Every second page of `memory`: ranges that cannot be joined.
fn ranges(memory: &Memory) -> Vec<libc::iovec> {
    let pages = (0..memory.pages()).step_by(2);
    let range = |at| libc::iovec {
        iov_base: memory.page(at).cast(),
        iov_len: PAGE,
    };
    pages.map(range).collect()
}

/// One page, and a batch of them, on one CPU.
pub fn zaps(watch: &mut Watch) -> Result<Zaps, Failure> {
    let memory = Memory::map(2 * BATCH * PAGE, false)?;
    let (zapper, ranges) = (Zapper::new(), ranges(&memory));
    let mut batches = |what: &str, size: usize| {
        median(watch, what, || {
            memory.touch();
            let begin = Instant::now();
            for batch in ranges.chunks(size) {
                zapper.zap(batch)?;
            }
            Ok(begin.elapsed().as_nanos() as f64 * 1e3 / (BATCH / size) as f64)
        })
    };
    let one = batches("unmapping a page", 1)?;
    let all = batches("unmapping a batch", BATCH)?;
    let page = ((all - one) / (BATCH - 1) as f64).max(0.0);
    Ok(Zaps {
        batch: whole(one - page),
        page: whole(page),
    })
}

/// Mapping or unmapping a window: half of both.
pub fn map(watch: &mut Watch) -> Result<u64, Failure> {
    let picoseconds = median(watch, "mapping a window", || {
        let mut failed = Ok(());
        let picoseconds = each(2 * PAGES, || {
            for _ in 0..PAGES {
                if let Err(e) = bare_map(PAGES * PAGE) {
                    failed = Err(e);
                }
            }
        });
        failed?;
        Ok(picoseconds)
    })?;
    Ok(whole(picoseconds))
}

/// Maps and unmaps, without any advice.
fn bare_map(bytes: usize) -> io::Result<()> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let null = std::ptr::null_mut();
    // SAFETY: a new mapping, which is gone before anybody knows of it.
    unsafe {
        let start = libc::mmap(null, bytes, libc::PROT_READ, flags, -1, 0);
        if start == libc::MAP_FAILED || libc::munmap(start, bytes) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Turns a nanosecond of the other CPU's loop while nobody interrupts it.
fn alone_speed(spins: &AtomicU64) -> f64 {
    let (turns, begin) = (spins.load(Ordering::Relaxed), Instant::now());
    while begin.elapsed().as_micros() < 200 {
        spin_loop();
    }
    let ns = begin.elapsed().as_nanos() as f64;
    (spins.load(Ordering::Relaxed) - turns) as f64 / ns
}

/// The cost of a shootdown for the sender beyond the zap, and for the other CPU, which
/// runs a thread of the process all the while.
pub fn interrupts(watch: &mut Watch, pair: [usize; 2]) -> Result<(u64, u64), Failure> {
    let memory = Memory::map(2 * SHOOTDOWNS * PAGE, false)?;
    let (zapper, ranges) = (Zapper::new(), ranges(&memory));
    let (stop, ready) = (AtomicBool::new(false), AtomicBool::new(false));
    let spins = AtomicU64::new(0);
    pin(pair[0])?;
    // Time, and turns of the other CPU's loop, of a sample.
    let sample = || -> io::Result<(f64, f64)> {
        memory.touch();
        let turns = spins.load(Ordering::Relaxed);
        let begin = Instant::now();
        for range in ranges.chunks(1) {
            zapper.zap(range)?;
        }
        let ns = begin.elapsed().as_nanos() as f64;
        Ok((ns, (spins.load(Ordering::Relaxed) - turns) as f64))
    };
    let alone = median(watch, "unmapping alone", || Ok(sample()?.0))?;
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            pin(pair[1])?;
            ready.store(true, Ordering::Release);
            while !stop.load(Ordering::Relaxed) {
                // A few dozen nanoseconds of work between two looks.
                (0..32).for_each(|at| _ = black_box(at));
                spins.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        });
        let result = (|| {
            while !ready.load(Ordering::Acquire) && !other.is_finished() {
                spin_loop();
            }
            let mut lost = Vec::new();
            let both = median(watch, "a shootdown", || {
                // Its CPU may be somebody else's at the moment: then nobody is
                // interrupted, and it tells nothing.
                let (mut ns, mut turns, mut speed) = (0.0, 0.0, 1.0);
                for _ in 0..TRIES {
                    speed = alone_speed(&spins);
                    (ns, turns) = sample()?;
                    if speed > 0.0 && turns > 0.0 {
                        break;
                    }
                }
                lost.push((ns - turns / speed.max(1e-9)).max(0.0));
                Ok(ns)
            })?;
            let each = 1e3 / SHOOTDOWNS as f64;
            let send = whole((both - alone).max(0.0) * each);
            Ok((send, whole(middle(lost) * each)))
        })();
        stop.store(true, Ordering::Relaxed);
        let ran: Result<(), Failure> = other.join().expect("it does not panic");
        ran.and(result)
    })
}
