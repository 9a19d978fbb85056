//! The `read_ahead_kb` of the disk that a directory is on.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A setting that is put back when this is dropped.
pub struct ReadAhead {
    path: PathBuf,
    before: String,
}

impl ReadAhead {
    /// Its present value, if that is known.
    pub fn now(dir: &Path) -> String {
        let said = file(dir).and_then(|path| fs::read_to_string(path).ok());
        said.map_or("not known".to_owned(), |kb| kb.trim().to_owned())
    }

    pub fn set(dir: &Path, kb: u32) -> Result<Self, String> {
        let path = file(dir).ok_or("the disk of the directory has no read_ahead_kb")?;
        let fail = |error| format!("{}: {error} (it takes root)", path.display());
        let before = fs::read_to_string(&path).map_err(fail)?;
        fs::write(&path, kb.to_string()).map_err(fail)?;
        Ok(Self { path, before })
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        let _ = fs::write(&self.path, self.before.trim());
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
