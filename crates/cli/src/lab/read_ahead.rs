//! The read-ahead of the block device that a file lies on: its present value, and another one for as long as a row
//! of the kernel's runs.
//!
//! ```text
//!   st_dev = MAJ:MIN ─► /sys/class/bdi/MAJ:MIN/read_ahead_kb            the page cache's own setting
//!                       /sys/dev/block/MAJ:MIN/queue/read_ahead_kb      else the disk's
//!                       /sys/dev/block/MAJ:MIN/../queue/read_ahead_kb   a partition's is its disk's
//! ```
//! An open file keeps the read-ahead that its device had when it was opened: a row's child opens the file
//! after it was set. The setting is the whole machine's, so one lab at a time may have changed it (flock on
//! the setting), and the one before comes back when `Changed` is dropped. Whoever kills this process
//! outright leaves it changed.

use crate::error::Error;
use crate::interrupt::Interrupt;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The binary logarithm of how many pages the kernel swaps in at a time; `None` where it does not tell.
pub fn page_cluster() -> Option<u32> {
    let text = fs::read_to_string("/proc/sys/vm/page-cluster").ok()?;
    text.trim().parse().ok()
}

/// A device that reads ahead. Immutable.
#[derive(Debug)]
pub struct Device {
    /// Its read_ahead_kb.
    setting: PathBuf,
}

impl Device {
    /// The device that the file or directory `path` lies on; `None` where there is none, as in tmpfs.
    pub fn of(path: &Path) -> Option<Self> {
        Self::numbered(fs::metadata(path).ok()?.dev())
    }

    /// The device that an open file lies on.
    pub fn of_file(file: &File) -> Option<Self> {
        Self::numbered(file.metadata().ok()?.dev())
    }

    /// The device of this number, as stat(2) has it.
    pub fn numbered(device: u64) -> Option<Self> {
        let number = format!("{}:{}", libc::major(device), libc::minor(device));
        let places = [
            format!("/sys/class/bdi/{number}/read_ahead_kb"),
            format!("/sys/dev/block/{number}/queue/read_ahead_kb"),
            format!("/sys/dev/block/{number}/../queue/read_ahead_kb"),
        ];
        let setting = places
            .into_iter()
            .map(PathBuf::from)
            .find(|path| path.exists())?;
        Some(Self { setting })
    }

    /// The present setting, in KiB.
    pub fn read_ahead_kb(&self) -> Option<u32> {
        fs::read_to_string(&self.setting).ok()?.trim().parse().ok()
    }

    /// Whether this process may set it; the error is one line.
    pub fn may_set(&self) -> Result<(), String> {
        self.open().map(drop)
    }

    /// Sets it to `kb` KiB until the returned value is dropped. Waits for another lab that has changed it.
    pub fn set(&self, kb: u32, interrupt: &Interrupt) -> Result<Changed, Error> {
        let mut setting = self.open().map_err(Error::failed)?;
        loop {
            interrupt.check()?;
            match setting.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(50)),
                Err(TryLockError::Error(e)) => return Err(Error::failed(self.cannot_set(&e))),
            }
        }
        let mut before = String::new();
        let read = setting.read_to_string(&mut before);
        read.map_err(|e| Error::failed(self.cannot_set(&e)))?;
        // From here on dropping it restores.
        let changed = Changed { setting, before };
        let written = changed.write(&format!("{kb}\n"));
        written.map_err(|e| Error::failed(self.cannot_set(&e)))?;
        Ok(changed)
    }

    fn open(&self) -> Result<File, String> {
        let file = File::options().read(true).write(true).open(&self.setting);
        file.map_err(|e| self.cannot_set(&e))
    }

    fn cannot_set(&self, error: &io::Error) -> String {
        let root = match error.kind() {
            io::ErrorKind::PermissionDenied => ": it takes root",
            _ => "",
        };
        format!("cannot set {}: {error}{root}", self.setting.display())
    }
}

/// A read-ahead that is not the device's own. Immutable.
#[derive(Debug)]
pub struct Changed {
    /// Open and locked.
    setting: File,
    /// The former setting.
    before: String,
}

impl Changed {
    fn write(&self, text: &str) -> io::Result<()> {
        self.setting.write_all_at(text.as_bytes(), 0)
    }
}

impl Drop for Changed {
    fn drop(&mut self) {
        // Best effort: nobody is left to act on an error. The lock goes with the file, afterwards.
        let _ = self.write(&self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    /// A setting of the test's own.
    fn device(dir: &Path, text: &str) -> Device {
        let setting = dir.join("read_ahead_kb");
        fs::write(&setting, text).unwrap();
        Device { setting }
    }

    #[test]
    fn a_panic_and_an_ordinary_end_restore_the_setting() {
        let dir = tempfile::tempdir().unwrap();
        let device = device(dir.path(), "8192\n");
        let interrupt = Interrupt::catch().unwrap();
        let changed = device.set(4096, &interrupt).unwrap();
        assert_eq!(device.read_ahead_kb(), Some(4096));
        drop(changed);
        assert_eq!(device.read_ahead_kb(), Some(8192));
        let panic = catch_unwind(AssertUnwindSafe(|| {
            let _changed = device.set(1024, &interrupt).unwrap();
            assert_eq!(device.read_ahead_kb(), Some(1024));
            panic!("a row's own");
        }));
        assert!(panic.is_err());
        assert_eq!(device.read_ahead_kb(), Some(8192));
    }

    #[test]
    fn a_second_lab_waits_and_finds_the_devices_own() {
        let dir = tempfile::tempdir().unwrap();
        let device = device(dir.path(), "8192\n");
        let interrupt = Interrupt::catch().unwrap();
        let first = device.set(4096, &interrupt).unwrap();
        std::thread::scope(|scope| {
            let second = scope.spawn(|| device.set(1024, &interrupt).unwrap().before.clone());
            std::thread::yield_now();
            assert_eq!(device.read_ahead_kb(), Some(4096), "it waits");
            drop(first);
            assert_eq!(second.join().unwrap(), "8192\n");
        });
        assert_eq!(device.read_ahead_kb(), Some(8192));
    }

    #[test]
    fn the_device_of_a_directory_is_that_of_its_files() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR"));
        let of_dir = Device::of(dir).map(|device| device.setting);
        let file = File::open(dir.join("Cargo.toml")).unwrap();
        assert_eq!(Device::of_file(&file).map(|device| device.setting), of_dir);
        match of_dir {
            Some(setting) => assert!(setting.ends_with("read_ahead_kb")),
            None => eprintln!("skipped: {} lies on no block device", dir.display()),
        }
        assert!(Device::of(Path::new("/proc")).is_none());
        assert!(Device::of(Path::new("/no such directory")).is_none());
    }

    /// Every disk's and partition's number leads to the read-ahead of the disk.
    #[test]
    fn the_device_of_a_number() {
        let disks = fs::read_dir("/sys/block").into_iter().flatten().flatten();
        for disk in disks {
            let queue = fs::read_to_string(disk.path().join("queue/read_ahead_kb"));
            let parts = fs::read_dir(disk.path()).into_iter().flatten().flatten();
            let parts = parts.filter(|entry| entry.path().join("partition").exists());
            let all = parts.map(|part| part.path()).chain([disk.path()]);
            for numbered in all {
                let Ok(number) = fs::read_to_string(numbered.join("dev")) else {
                    continue;
                };
                let (major, minor) = number.trim().split_once(':').unwrap();
                let number = libc::makedev(major.parse().unwrap(), minor.parse().unwrap());
                let device = Device::numbered(number);
                assert_eq!(device.is_some(), queue.is_ok(), "{}", numbered.display());
            }
        }
    }

    #[test]
    fn an_invalid_setting_is_an_error_of_one_line() {
        let setting = PathBuf::from("/proc/self/no such setting");
        let why = Device { setting }.may_set().unwrap_err();
        assert!(why.starts_with("cannot set /proc/self/no such") && why.lines().count() == 1);
    }
}
