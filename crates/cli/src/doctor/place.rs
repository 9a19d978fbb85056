//! The directory that files are tried in. Files have no name, so none is left behind.

use crate::error::Error;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// Bytes of a page.
pub const PAGE: usize = 4096;
/// Bytes of a tried file: some pages, the last of them partial.
pub const FILE_BYTES: usize = 8 * PAGE + 100;

/// Where to try, and the changes that the command made before it looked. All fields immutable.
pub struct Place {
    pub dir: PathBuf,
    /// The limit on open files that the command was started with.
    pub open_files: Option<u64>,
}

impl Place {
    /// The caller's directory, which must take a file; without one the current directory, or the one for
    /// temporary files.
    pub fn find(dir: Option<&Path>, open_files: Option<u64>) -> Result<Self, Error> {
        let place = |dir: &Path| Self {
            dir: dir.to_owned(),
            open_files,
        };
        if let Some(dir) = dir {
            let place = place(dir);
            return match place.file() {
                Ok(_) => Ok(place),
                Err(e) => Err(Error::input(format_args!(
                    "no file can be made in {}: {e}",
                    dir.display()
                ))),
            };
        }
        let places = [place(Path::new(".")), place(&std::env::temp_dir())];
        let found = places.into_iter().find(|place| place.file().is_ok());
        found.ok_or_else(|| Error::input("no file can be made here: name a directory with --dir"))
    }

    /// A file of [`contents`], open for reading and writing.
    pub fn file(&self) -> io::Result<File> {
        let mut file = tempfile::tempfile_in(&self.dir)?;
        file.write_all(&contents())?;
        Ok(file)
    }
}

/// The contents of a tried file: each byte differs from its neighbours and from those a page away.
pub fn contents() -> Vec<u8> {
    (0..FILE_BYTES).map(|i| (i + i / PAGE * 7) as u8).collect()
}

/// Its name where it cannot be read, without /proc.
pub const UNKNOWN_FILE_SYSTEM: &str = "an unknown file system";

/// The name of the file system that `file` is in.
pub fn file_system(file: &File) -> Option<String> {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).ok()?;
    let mount = info
        .lines()
        .find_map(|line| line.strip_prefix("mnt_id:"))?
        .trim();
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    // `id parent dev root point options [tags] - type source super-options`
    let line = mounts
        .lines()
        .find(|line| line.split(' ').next() == Some(mount))?;
    let (_, what) = line.split_once(" - ")?;
    what.split(' ').next().map(str::to_owned)
}
