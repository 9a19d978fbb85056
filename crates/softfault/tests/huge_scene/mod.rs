//! Huge memory of each kind, and a pool for it where the machine lets us have one.

#![allow(dead_code)]

use softfault::{HugeBacking, HugeMap, HugeMapOptions, HugeMemory, HugeSize};
use std::fs::File;
use std::os::fd::AsRawFd;

/// A huge page.
pub const PAGE: usize = 2 << 20;

const KIND: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";

/// A figure of the pool, in pages.
pub fn figure(name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(format!("{KIND}/{name}")).ok()?;
    text.trim().parse().ok()
}

/// Pages that the pool could promise now.
pub fn available() -> u64 {
    let of = |name| figure(name).unwrap_or(0);
    of("free_hugepages").saturating_sub(of("resv_hugepages"))
}

/// The pool, for one test at a time, in all processes. The pages by which it was enlarged go with this.
pub struct Pool {
    before: Option<u64>,
    _lock: File,
}

impl Pool {
    /// Nobody else changes the pool as long as this is.
    pub fn locked() -> Self {
        let path = std::env::temp_dir().join("softfault-huge-pool.lock");
        let lock = File::options().create(true).append(true).open(&path);
        // It may be another user's, and is locked all the same.
        let lock = lock.or_else(|_| File::open(&path)).unwrap();
        // SAFETY: waits for a lock of the file.
        assert_eq!(unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX) }, 0);
        Self {
            before: None,
            _lock: lock,
        }
    }

    /// A pool of which so many pages are to be had; without, says so.
    pub fn with(pages: u64) -> Option<Self> {
        let mut pool = Self::locked();
        let missing = pages.saturating_sub(available());
        let total = figure("nr_hugepages");
        if missing > 0 {
            pool.before = total;
            let wanted = format!("{}", total.unwrap_or(0) + missing);
            let _ = std::fs::write(format!("{KIND}/nr_hugepages"), wanted);
        }
        if available() < pages {
            softfault_skip::skipped(
                "hugetlb",
                format_args!("no pool of {pages} huge pages is to be had here"),
            );
            return None;
        }
        Some(pool)
    }

    /// Maps that have all that is to be had reserved, so that nobody else gets any.
    pub fn emptied(&self) -> HugeMap {
        let memory = HugeMemory::builder().backing(HugeBacking::Hugetlb);
        let memory = memory.create(available() * PAGE as u64).unwrap();
        let hog = memory.map().unwrap();
        assert_eq!(available(), 0);
        hog
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            let _ = std::fs::write(format!("{KIND}/nr_hugepages"), before.to_string());
        }
    }
}

/// Memory of this many pages and this kind.
pub fn memory(backing: HugeBacking, pages: usize) -> HugeMemory {
    let builder = HugeMemory::builder().page_size(HugeSize::TwoMiB);
    let memory = builder.backing(backing).create((pages * PAGE) as u64);
    let memory = memory.unwrap();
    assert_eq!(memory.backing(), backing);
    memory
}

/// Runs `test` with each kind that is to be had here, of which the pool has `pages` at least.
pub fn each(pages: u64, test: impl Fn(HugeBacking)) {
    test(HugeBacking::BasePages);
    test(HugeBacking::TransparentHuge);
    if let Some(_pool) = Pool::with(pages) {
        test(HugeBacking::Hugetlb);
    }
}

/// A map that has nothing reserved.
pub fn unreserved(memory: &HugeMemory) -> HugeMap {
    HugeMapOptions::new().no_reserve(true).map(memory).unwrap()
}

/// A byte, touched.
pub fn touch(map: &HugeMap, at: usize) -> u8 {
    assert!(at < map.len());
    // SAFETY: within the map.
    unsafe { map.as_ptr().add(at).read_volatile() }
}

/// A byte, written.
pub fn write(map: &HugeMap, at: usize, byte: u8) {
    assert!(at < map.len());
    // SAFETY: within the map.
    unsafe { map.as_mut_ptr().add(at).write_volatile(byte) };
}
