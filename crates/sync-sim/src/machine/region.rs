//! The memory of simulated machines: a reservation of the process, whose second half has
//! the state of each line of the first, at the same place.
//!
//! It is handed out by the chunk. A chunk counts the blocks in it, and one for
//! the machine that has it; the last drop of the count gives the chunk's
//! memory back to the system. So values that a run leaves behind (its result, threads
//! that hang) stay valid as long as they are referenced.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};
use std::io;
use std::sync::Mutex;

/// Bytes of a cache line, and of its state.
pub const LINE: usize = 64;
/// Bytes that are reserved for memory, and once more for states.
const SIZE: usize = 8 << 40;
/// Bytes of a chunk.
pub const CHUNK: usize = 1 << 30;
const CHUNKS: usize = SIZE / CHUNK;

static BASE: AtomicUsize = AtomicUsize::new(0);
static STATES: AtomicUsize = AtomicUsize::new(0);
/// Blocks in a chunk, and one for its machine. At nothing the chunk is free.
static BLOCKS: [AtomicU64; CHUNKS] = [const { AtomicU64::new(0) }; CHUNKS];
/// A count: nobody has the chunk, and it is not clean yet.
const CLEANING: u64 = u64::MAX;
/// The run that a chunk was handed to.
static RUNS: [AtomicU64; CHUNKS] = [const { AtomicU64::new(0) }; CHUNKS];
static TAKING: Mutex<()> = Mutex::new(());

/// Makes the reservation, once; or says that the system refuses it.
pub fn reserve() -> io::Result<()> {
    static RESERVING: Mutex<()> = Mutex::new(());
    let _guard = RESERVING
        .lock()
        .unwrap_or_else(|poison| poison.into_inner());
    if base() != 0 {
        return Ok(());
    }
    let both = map(2 * SIZE)?;
    STATES.store(both + SIZE, Relaxed);
    BASE.store(both, Release);
    Ok(())
}

fn map(bytes: usize) -> io::Result<usize> {
    // SAFETY: a new mapping, at an address of the kernel's choice.
    let addr = unsafe {
        libc::mmap(
            core::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    match addr == libc::MAP_FAILED {
        true => Err(io::Error::last_os_error()),
        false => Ok(addr.addr()),
    }
}

/// Where the region begins. Zero as long as there is none.
#[inline]
pub fn base() -> usize {
    BASE.load(Relaxed)
}

/// Where the states of its lines begin.
pub fn states() -> usize {
    STATES.load(Relaxed)
}

/// The place of an address in the region that begins at `base`.
#[inline]
pub fn place(base: usize, addr: usize) -> Option<usize> {
    let place = addr.wrapping_sub(base);
    (base != 0 && place < SIZE).then_some(place)
}

/// Takes so many chunks in a row for a run and returns the place of the first.
pub fn take(chunks: usize, run: u32) -> Option<usize> {
    let _guard = TAKING.lock().unwrap_or_else(|poison| poison.into_inner());
    let mut in_row = 0;
    for (at, blocks) in BLOCKS.iter().enumerate() {
        in_row = match blocks.load(Acquire) {
            0 => in_row + 1,
            _ => 0,
        };
        if in_row == chunks {
            let first = at + 1 - chunks;
            for chunk in first..=at {
                RUNS[chunk].store(u64::from(run), Relaxed);
                BLOCKS[chunk].store(1, Relaxed);
            }
            return Some(first * CHUNK);
        }
    }
    None
}

/// The run that has the chunk at a place.
#[inline]
pub fn run_of(place: usize) -> u32 {
    RUNS[place / CHUNK].load(Relaxed) as u32
}

/// One block more in the chunk at a place.
#[inline]
pub fn count(place: usize) {
    BLOCKS[place / CHUNK].fetch_add(1, Relaxed);
}

/// One block less, or its machine has gone.
#[inline]
pub fn discount(place: usize) {
    let less = |count: u64| Some(if count == 1 { CLEANING } else { count - 1 });
    let count = BLOCKS[place / CHUNK].fetch_update(AcqRel, Acquire, less);
    if count == Ok(1) {
        give_back(place / CHUNK);
    }
}

#[cold]
fn give_back(chunk: usize) {
    clean(chunk * CHUNK, CHUNK);
    BLOCKS[chunk].store(0, Release);
}

/// Makes memory zero, and the states of its lines new.
pub fn clean(place: usize, bytes: usize) {
    for begin in [base(), states()] {
        let addr = core::ptr::without_provenance_mut(begin + place);
        // SAFETY: within a reservation, and nobody uses it.
        unsafe { libc::madvise(addr, bytes, libc::MADV_DONTNEED) };
    }
}
