//! Which call each thread makes, in a file that survives the process.

use super::{ACTORS, acts};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Says where it is.
pub const PATH: &str = "SOFTFAULT_CHAOS_JOURNAL";
const BYTES: usize = 4096;
const ACT_BITS: u32 = 8;

pub struct Journal {
    path: PathBuf,
    words: &'static [AtomicU64; ACTORS],
}

impl Journal {
    pub fn create(path: &Path) -> Self {
        File::create(path)
            .expect("a journal")
            .set_len(BYTES as u64)
            .expect("its size");
        Self::at(path)
    }

    pub fn open() -> Self {
        Self::at(Path::new(&std::env::var_os(PATH).expect("a journal")))
    }

    fn at(path: &Path) -> Self {
        let file = File::options()
            .read(true)
            .write(true)
            .open(path)
            .expect("a journal");
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, shared and never taken away, larger than the words, which are
        // used as atomics only.
        let words = unsafe {
            let start = libc::mmap(
                core::ptr::null_mut(),
                BYTES,
                protection,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            );
            assert_ne!(start, libc::MAP_FAILED);
            &*start.cast()
        };
        Self {
            path: path.to_owned(),
            words,
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn remove(&self) {
        let _ = std::fs::remove_file(&self.path);
    }

    pub fn note(&self, actor: usize, step: u64, act: usize) {
        self.words[actor].store(step << ACT_BITS | act as u64, Relaxed);
    }

    /// The calls that were made last.
    pub fn last(&self) -> String {
        let line = |(actor, word): (usize, &AtomicU64)| {
            let word = word.load(Relaxed);
            let act = acts::ACTS[(word & ((1 << ACT_BITS) - 1)) as usize].name;
            format!("thread {actor}, call {}: {act}\n", word >> ACT_BITS)
        };
        self.words.iter().enumerate().map(line).collect()
    }
}
