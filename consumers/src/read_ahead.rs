//! The `read_ahead_kb` of the disk that a directory is on.

use crate::interrupt;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// A setting that is put back when this is dropped.
pub struct ReadAhead {
    /// Open and locked.
    setting: File,
    before: String,
}

impl ReadAhead {
    /// Its present value, if that is known.
    pub fn now(dir: &Path) -> String {
        let said = file(dir).and_then(|path| fs::read_to_string(path).ok());
        said.map_or("not known".to_owned(), |kb| kb.trim().to_owned())
    }

    /// Sets it. Waits for a run of `softfault lab` that has changed it: both lock the file, and each puts back what it found.
    pub fn set(dir: &Path, kb: u32) -> Result<Self, String> {
        let path = file(dir).ok_or("the disk of the directory has no read_ahead_kb")?;
        let fail = |error| format!("{}: {error} (it takes root)", path.display());
        let mut setting = File::options()
            .read(true)
            .write(true)
            .open(&path)
            .map_err(fail)?;
        loop {
            interrupt::check()?;
            match setting.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(50)),
                Err(TryLockError::Error(error)) => return Err(fail(error)),
            }
        }
        let mut before = String::new();
        setting.read_to_string(&mut before).map_err(fail)?;
        // From here on dropping it restores.
        let set = Self { setting, before };
        set.write(&kb.to_string()).map_err(fail)?;
        Ok(set)
    }

    fn write(&self, text: &str) -> io::Result<()> {
        self.setting.write_all_at(text.as_bytes(), 0)
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        // The lock goes with the file, afterwards.
        let _ = self.write(&self.before);
    }
}

/// Of a disk, or of the disk that a partition is on.
fn file(dir: &Path) -> Option<PathBuf> {
    let device = fs::metadata(dir).ok()?.dev();
    let device = format!(
        "/sys/dev/block/{}:{}",
        libc::major(device),
        libc::minor(device)
    );
    let places = [format!("{device}/queue"), format!("{device}/../queue")];
    let mut files = places
        .iter()
        .map(|place| Path::new(place).join("read_ahead_kb"));
    files.find(|file| file.exists())
}
