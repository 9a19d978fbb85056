//! A memory cgroup for one run: version 2 or 1, whichever is there. Needs root.

use std::fs;
use std::path::{Path, PathBuf};

/// Goes when it is dropped.
pub struct Cgroup {
    dir: PathBuf,
    limit: &'static str,
    peak: &'static str,
}

impl Cgroup {
    /// True if there can be one.
    pub fn is_there() -> bool {
        Self::new(1 << 30).is_ok()
    }

    pub fn new(bytes: u64) -> Result<Self, String> {
        let v2 = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
        let (root, limit, peak) = match v2 {
            true => ("/sys/fs/cgroup", "memory.max", "memory.peak"),
            false => (
                "/sys/fs/cgroup/memory",
                "memory.limit_in_bytes",
                "memory.max_usage_in_bytes",
            ),
        };
        let dir = Path::new(root).join(format!("softfault-consumers-{}", std::process::id()));
        let _ = fs::remove_dir(&dir);
        fs::create_dir(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        let group = Self { dir, limit, peak };
        group.set(bytes)?;
        Ok(group)
    }

    /// Sets its limit.
    pub fn set(&self, bytes: u64) -> Result<(), String> {
        let path = self.dir.join(self.limit);
        fs::write(&path, bytes.to_string()).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// The most that it had: anonymous memory, the kernel's, and the page cache's. `None` where the kernel does not say.
    pub fn peak(&self) -> Option<u64> {
        let said = fs::read_to_string(self.dir.join(self.peak)).ok()?;
        said.trim().parse().ok()
    }

    /// Where a process writes 0 to be in it.
    pub fn tasks(&self) -> PathBuf {
        self.dir.join("cgroup.procs")
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.dir);
    }
}
