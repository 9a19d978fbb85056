//! Tools of the store tests: files whose bytes are a function of the
//! offset, page-aligned frames, and a taker of completions.

#![allow(dead_code)] // Each test crate uses its part.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

use softfault_engine::store::{Complete, Read, Reap, Store, StoreError};

pub const PAGE: usize = 4096;

/// Longer than any read takes: a wait that lasts so long was forgotten.
pub const FOREVER_NS: u64 = 60_000_000_000;

/// A file that goes with its last use.
pub struct Scratch {
    pub file: File,
    pub path: PathBuf,
}

static NEXT: AtomicU64 = AtomicU64::new(0);

impl Scratch {
    /// An empty file on the disk that the build is on.
    pub fn on_disk() -> Self {
        Self::within(Path::new(env!("CARGO_TARGET_TMPDIR")))
    }

    /// An empty file in memory.
    pub fn in_memory() -> Self {
        Self::within(Path::new("/dev/shm"))
    }

    fn within(dir: &Path) -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = dir.join(format!("softfault-store-{}-{number}", std::process::id()));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .expect("a scratch file");
        Self { file, path }
    }

    /// `bytes` of [`byte_at`], on the disk for good.
    pub fn filled(self, bytes: usize) -> Self {
        self.write(0, bytes);
        self.file.sync_all().expect("sync");
        self
    }

    /// Writes the expected bytes at `offset`.
    pub fn write(&self, offset: u64, bytes: usize) {
        let text: Vec<u8> = (offset..offset + bytes as u64).map(byte_at).collect();
        self.file.write_all_at(&text, offset).expect("write");
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The bytes of the tests' files.
pub fn byte_at(offset: u64) -> u8 {
    let mixed = (offset ^ (offset >> 12)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as u8
}

/// Pages to read into, each byte of which is [`Frames::UNTOUCHED`] at first.
pub struct Frames {
    start: *mut u8,
    pages: usize,
}

// SAFETY: plain memory; the tests order its writers.
unsafe impl Send for Frames {}
// SAFETY: as above.
unsafe impl Sync for Frames {}

impl Frames {
    pub const UNTOUCHED: u8 = 0xa5;

    pub fn new(pages: usize) -> Self {
        // SAFETY: a new mapping.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                pages * PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(start, libc::MAP_FAILED);
        let start: *mut u8 = start.cast();
        // SAFETY: just mapped so large.
        unsafe { start.write_bytes(Self::UNTOUCHED, pages * PAGE) };
        Self { start, pages }
    }

    /// The address of a page.
    pub fn page(&self, page: usize) -> *mut u8 {
        assert!(page < self.pages);
        self.start.wrapping_add(page * PAGE)
    }

    /// Bytes from a page on. Nobody may be reading into them.
    pub fn bytes(&self, page: usize, bytes: usize) -> &[u8] {
        assert!(page * PAGE + bytes <= self.pages * PAGE);
        // SAFETY: within the mapping, which lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.page(page), bytes) }
    }

    /// Asserts that the read at `offset` brought `arrived` bytes. The bytes
    /// behind them may be anything.
    #[track_caller]
    pub fn check(&self, page: usize, offset: u64, arrived: usize) {
        for (&byte, at) in self.bytes(page, arrived).iter().zip(offset..) {
            assert_eq!(byte, byte_at(at), "byte {at} of the file");
        }
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        // SAFETY: the whole mapping, used no more.
        unsafe { libc::munmap(self.start.cast(), self.pages * PAGE) };
    }
}

/// Takes completions; the cookie is an index.
pub struct Inbox {
    /// Bytes, an errno below zero, or PENDING.
    results: Vec<AtomicI64>,
    deliveries: Vec<AtomicU32>,
}

const PENDING: i64 = i64::MIN;

impl Inbox {
    pub fn new(reads: usize) -> Self {
        Self {
            results: (0..reads).map(|_| AtomicI64::new(PENDING)).collect(),
            deliveries: (0..reads).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    /// The result of a read, once it is there.
    pub fn result(&self, cookie: u64) -> Option<i64> {
        // Acquire pairs with the Release in `complete`.
        let result = self.results[cookie as usize].load(Ordering::Acquire);
        (result != PENDING).then_some(result)
    }

    /// Reaps until a read is there, in one call unless others lead: a read in
    /// flight is told as over only once it is delivered.
    #[track_caller]
    pub fn wait(&self, store: &dyn Store, cookie: u64) -> i64 {
        let reaped = store.reap(cookie, self, FOREVER_NS);
        assert_eq!(
            reaped,
            Reap::NotInFlight,
            "no thread that waits for {cookie} was woken"
        );
        self.result(cookie).expect("not in flight, so delivered")
    }

    /// How often completions came for reads, together.
    pub fn deliveries(&self) -> u32 {
        self.deliveries
            .iter()
            .map(|count| count.load(Ordering::Relaxed))
            .sum()
    }
}

impl Complete for Inbox {
    fn complete(&self, cookie: u64, result: Result<usize, StoreError>) {
        let result = match result {
            Ok(bytes) => bytes as i64,
            Err(StoreError::Io(errno)) => -i64::from(errno),
            Err(StoreError::Short) => -i64::from(libc::EIO),
        };
        let before = self.deliveries[cookie as usize].fetch_add(1, Ordering::Relaxed);
        assert_eq!(before, 0, "read {cookie} was delivered twice");
        // Release pairs with the Acquire in `result`.
        self.results[cookie as usize].store(result, Ordering::Release);
    }
}

/// Reads of `pages` pages each, one after the other from `offset` on, into
/// frames one after the other; cookies from 0.
pub fn reads(frames: &Frames, count: usize, pages: usize, offset: u64) -> Vec<Read> {
    (0..count)
        .map(|i| Read {
            cookie: i as u64,
            offset: offset + (i * pages * PAGE) as u64,
            buffer: frames.page(i * pages),
            bytes: pages * PAGE,
        })
        .collect()
}

/// Position and flags of an open file.
pub fn position_and_flags(file: &File) -> (i64, i32) {
    // SAFETY: no memory involved.
    unsafe {
        (
            libc::lseek(file.as_raw_fd(), 0, libc::SEEK_CUR),
            libc::fcntl(file.as_raw_fd(), libc::F_GETFL),
        )
    }
}
