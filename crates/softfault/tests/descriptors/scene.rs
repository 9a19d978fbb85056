//! A map of bytes that are known, and private memory most of which is in swap: both over
//! stores that have no descriptors, so that only those of the page tables are closed.

use crate::files::byte_at;
use softfault::{Advice, Engine, Mmap, MmapMut};
use softfault_engine::store::{Store, StoreError};
use softfault_engine::swap::SwapDevice;
use std::sync::Arc;

pub const PAGE: usize = 4096;
pub const BUDGET: usize = 8 << 20;
/// Four times the budget, of each.
pub const PAGES: usize = 4 * BUDGET / PAGE;

/// The bytes of a made file.
struct Made;

impl Store for Made {
    fn len(&self) -> Result<u64, StoreError> {
        Ok((PAGES * PAGE) as u64)
    }

    unsafe fn read(&self, offset: u64, buffer: *mut u8, bytes: usize) -> Result<usize, StoreError> {
        for at in 0..bytes {
            // SAFETY: the caller's promise.
            unsafe { buffer.add(at).write(byte_at(offset as usize + at)) };
        }
        Ok(bytes)
    }
}

/// A swap device in memory that children of fork share.
struct Shared(usize);

/// Slots of it, in bytes.
const SWAP: usize = 2 * PAGES * PAGE;

impl Shared {
    fn new() -> Arc<Self> {
        Arc::new(Self(shared(SWAP)))
    }
}

/// Memory that children of fork share, of zeros.
pub fn shared(bytes: usize) -> usize {
    let (protection, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    // SAFETY: a new mapping.
    let addr = unsafe {
        let none = core::ptr::null_mut();
        libc::mmap(none, bytes, protection, kind | libc::MAP_ANONYMOUS, -1, 0)
    };
    assert_ne!(addr, libc::MAP_FAILED);
    addr as usize
}

impl Store for Shared {
    fn len(&self) -> Result<u64, StoreError> {
        Ok(SWAP as u64)
    }

    unsafe fn read(&self, offset: u64, buffer: *mut u8, bytes: usize) -> Result<usize, StoreError> {
        let source = (self.0 + offset as usize) as *const u8;
        // SAFETY: within the device; the caller vouches for the buffer.
        unsafe { core::ptr::copy_nonoverlapping(source, buffer, bytes) };
        Ok(bytes)
    }
}

impl SwapDevice for Shared {
    unsafe fn write(&self, offset: u64, pages: &[*const u8]) -> Result<(), StoreError> {
        for (at, &page) in pages.iter().enumerate() {
            let target = (self.0 + offset as usize + at * PAGE) as *mut u8;
            // SAFETY: within the device; the caller vouches for the pages.
            unsafe { core::ptr::copy_nonoverlapping(page, target, PAGE) };
        }
        Ok(())
    }
}

/// The memory that is touched.
pub struct Scene {
    pub engine: Engine,
    pub map: Mmap,
    pub private: MmapMut,
}

impl Scene {
    pub fn new() -> Self {
        let builder = Engine::builder().allow_kernel_maps(false).memory(BUDGET);
        // SAFETY: the device gives back the bytes written to it.
        let engine = unsafe { builder.swap_device(Shared::new()) }
            .build()
            .unwrap();
        // SAFETY: the store answers the same each time.
        let map = unsafe { engine.map_store(Arc::new(Made)) }.unwrap();
        map.advise(Advice::Random).unwrap();
        let mut private = engine.map_anon(PAGES * PAGE).unwrap();
        write(&mut private, 1);
        Self {
            engine,
            map,
            private,
        }
    }

    /// For a child, which has nowhere to swap to.
    pub fn all_fits(&self) {
        self.engine.set_memory(16 * BUDGET).unwrap();
    }

    /// Looks at every `step`th page of both.
    pub fn check(&self, step: usize) {
        self.check_map(step);
        check(&self.private, 1, step);
    }

    /// Looks at every `step`th page of the map.
    pub fn check_map(&self, step: usize) {
        for page in (0..PAGES).step_by(step) {
            crate::files::check(&self.map, page * PAGE + page % PAGE);
        }
    }
}

fn word(page: usize, round: u64) -> u64 {
    (page as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ round
}

/// Writes to all pages.
pub fn write(memory: &mut [u8], round: u64) {
    for page in 0..memory.len() / PAGE {
        memory[page * PAGE..page * PAGE + 8].copy_from_slice(&word(page, round).to_ne_bytes());
    }
}

/// Fails if pages do not have the words of that round.
#[track_caller]
pub fn check(memory: &[u8], round: u64, step: usize) {
    for page in (0..memory.len() / PAGE).step_by(step) {
        let found = memory[page * PAGE..page * PAGE + 8].try_into().unwrap();
        let found = u64::from_ne_bytes(found);
        assert_eq!(found, word(page, round), "page {page}, round {round}");
    }
}
