//! Files for tests.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::fs::{self, File};
use std::path::PathBuf;

/// The name of a file, which loses it when this goes.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new(bytes: &[u8]) -> Self {
        // Tests of one program run side by side.
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("softfault-unit-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::write(&path, bytes).unwrap();
        Self(path)
    }

    /// Opens it for reading.
    pub fn to_read(&self) -> File {
        File::open(&self.0).unwrap()
    }

    /// Opens it for reading and writing.
    pub fn to_write(&self) -> File {
        let mut options = File::options();
        options.read(true).write(true).open(&self.0).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
