//! Memory cgroups, of either version. Only root can make them.

#![allow(dead_code)]

use std::fs;
use std::path::{Path, PathBuf};

/// A memory cgroup of this test's; goes with its last use.
pub struct Group(pub PathBuf);

impl Group {
    /// `None` where none can be made.
    pub fn new(name: &str, limit: usize) -> Option<Self> {
        let name = format!("softfault-{}-{name}", std::process::id());
        ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"]
            .iter()
            .find_map(|root| {
                let folder = Path::new(root).join(&name);
                fs::create_dir(&folder).ok()?;
                let group = Self(folder);
                set_limit(&group.0, limit).then_some(group)
            })
    }

    /// True if pages were taken, or refused, because of it. Of either version.
    pub fn met_its_limit(&self) -> bool {
        let read = |file| fs::read_to_string(self.0.join(file)).unwrap_or_default();
        let (failures, events) = (read("memory.failcnt"), read("memory.events"));
        let mut words = events.lines().map(|line| line.split_once(' '));
        let times = words.find_map(|line| line.filter(|(name, _)| *name == "max"));
        let times = times.map_or(failures.trim(), |(_, times)| times);
        times.parse::<u64>().is_ok_and(|times| times > 0)
    }
}

/// Of either version.
pub fn set_limit(group: &Path, limit: usize) -> bool {
    ["memory.limit_in_bytes", "memory.max"]
        .iter()
        .filter(|file| group.join(file).exists())
        .any(|file| fs::write(group.join(file), limit.to_string()).is_ok())
}

/// Takes the limit of a memory cgroup away.
pub fn lift_limit(group: &Path) -> bool {
    [("memory.limit_in_bytes", "-1"), ("memory.max", "max")]
        .iter()
        .filter(|(file, _)| group.join(file).exists())
        .any(|(file, none)| fs::write(group.join(file), none).is_ok())
}

impl Drop for Group {
    fn drop(&mut self) {
        // Pages left in the page cache go to its parent.
        let _ = fs::remove_dir(&self.0);
    }
}
