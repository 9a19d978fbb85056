//! A file that a map writes to over an engine.

#![allow(dead_code)]

use softfault::{Coherence, Engine, Mmap, MmapMut};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub const PAGE: usize = 4096;

/// Counts are the whole process's: one test at a time.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file that goes with this.
pub struct Scratch(pub PathBuf);

impl Scratch {
    /// Each word of it says where it is.
    pub fn new(name: &str, bytes: usize) -> Self {
        let words = (0..bytes.div_ceil(8)).flat_map(|word| word_of(word).to_le_bytes());
        let mut content: Vec<u8> = words.collect();
        content.truncate(bytes);
        Self::of(name, &content)
    }

    pub fn of(name: &str, content: &[u8]) -> Self {
        let path = std::env::temp_dir().join(format!("softfault-w-{name}-{}", std::process::id()));
        std::fs::write(&path, content).unwrap();
        Self(path)
    }

    pub fn open(&self) -> File {
        File::options()
            .read(true)
            .write(true)
            .open(&self.0)
            .unwrap()
    }

    pub fn content(&self) -> Vec<u8> {
        std::fs::read(&self.0).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

pub fn word_of(word: usize) -> u64 {
    (word as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

pub fn engine(bytes: usize) -> Engine {
    let builder = Engine::builder().memory(bytes).small_maps(0);
    builder.coherence(Coherence::Engine).build().unwrap()
}

pub fn write(engine: &Engine, file: &File) -> MmapMut {
    // SAFETY: written bytes are looked for.
    let map = unsafe { engine.map_mut(file) }.unwrap();
    assert!(map.is_managed());
    map
}

/// A map of the file, by a descriptor that is open for reading only: others may be the kernel's to map.
pub fn read(engine: &Engine, file: &File) -> Mmap {
    let to_read = File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
    // SAFETY: as above.
    unsafe { engine.map(&to_read) }.unwrap()
}

/// The byte as the map has it now.
pub fn byte(map: &[u8], at: usize) -> u8 {
    // SAFETY: a byte of the map.
    unsafe { map.as_ptr().add(at).read_volatile() }
}

pub fn in_file(file: &File, at: usize) -> u8 {
    let mut byte = [0];
    file.read_exact_at(&mut byte, at as u64).unwrap();
    byte[0]
}
