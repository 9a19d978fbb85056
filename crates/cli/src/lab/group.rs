//! Memory cgroups: one for each run, made beneath (or, on v2, beside) the command's own group, so that
//! whatever limits the command itself still holds.
//!
//! ```text
//!   v1  <own>/softfault-lab-PID-N                   memory.limit_in_bytes, memory.max_usage_in_bytes
//!   v2  <own>/softfault-lab-PID-N                   where <own> hands the memory controller down,
//!       <parent of own>/softfault-lab-PID-N         else where the parent does and is ours to write,
//!       <own>/softfault-lab-PID-N                   else after moving ourselves to a leaf beneath <own>
//! ```
//! v2 gives memory.high = the limit and memory.max = 1.2 times it, as document 000 does; v1 has no high.

use super::cgroup_path::{Version, memory_group};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process;
use std::time::Duration;

/// How every group's name begins; the maker's process id follows.
const PREFIX: &str = "softfault-lab-";

/// Where groups can be made. All fields immutable.
#[derive(Debug)]
pub struct Groups {
    version: Version,
    parent: PathBuf,
    /// v2: the leaf that this process moved to, undone on drop.
    moved: Option<Moved>,
}

#[derive(Debug)]
struct Moved {
    own: PathBuf,
    leaf: PathBuf,
}

/// One run's group, removed on drop; its processes must have ended. All fields immutable.
#[derive(Debug)]
pub struct Group {
    version: Version,
    path: PathBuf,
}

impl Groups {
    /// The place for this process's groups, or why there is none.
    pub fn find() -> Result<Self, String> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").map_err(|e| e.to_string())?;
        let own = fs::read_to_string("/proc/self/cgroup").map_err(|e| e.to_string())?;
        let (version, own) = memory_group(&mounts, &own).ok_or("no memory cgroup is mounted")?;
        match version {
            Version::V1 => {
                let groups = Self::at(version, own);
                groups.try_out().map(|()| groups)
            }
            Version::V2 => Self::find_v2(own),
        }
        .inspect(Self::sweep)
        .map_err(|e| format!("no memory cgroup can be made: {e}"))
    }

    fn find_v2(own: PathBuf) -> Result<Self, io::Error> {
        let beneath = Self::at(Version::V2, own.clone());
        let refused = match beneath.try_out() {
            Ok(()) => return Ok(beneath),
            Err(e) => e,
        };
        if let Some(parent) = own.parent() {
            let beside = Self::at(Version::V2, parent.to_owned());
            if beside.try_out().is_ok() {
                return Ok(beside);
            }
        }
        let leaf = own.join(format!("{PREFIX}{}-self", process::id()));
        fs::create_dir(&leaf)?;
        let mut groups = beneath;
        let moved = fs::write(leaf.join("cgroup.procs"), "0");
        // From here on dropping `groups` undoes the move.
        groups.moved = Some(Moved {
            own: own.clone(),
            leaf,
        });
        moved?;
        fs::write(own.join("cgroup.subtree_control"), "+memory").map_err(|_| refused)?;
        groups.try_out()?;
        Ok(groups)
    }

    /// Removes groups of labs that were killed. One that has processes stays: rmdir refuses.
    fn sweep(&self) {
        let Ok(entries) = fs::read_dir(&self.parent) else {
            return;
        };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let maker = name
                .to_str()
                .and_then(|name| name.strip_prefix(PREFIX)?.split('-').next());
            if maker.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
                let _ = fs::remove_dir(entry.path());
            }
        }
    }

    fn at(version: Version, parent: PathBuf) -> Self {
        Self {
            version,
            parent,
            moved: None,
        }
    }

    /// Makes a group, sees that it has a limit to set, and moves this process in and back out.
    fn try_out(&self) -> Result<(), io::Error> {
        let own = fs::read_to_string("/proc/self/cgroup")?;
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let (_, home) = memory_group(&mounts, &own).ok_or(io::ErrorKind::NotFound)?;
        let group = self.create("trial")?;
        group.write(group.version.limit_file(), &(1u64 << 40).to_string())?;
        group.write("cgroup.procs", "0")?;
        fs::write(home.join("cgroup.procs"), "0")
    }

    /// Makes a group of its own for run `name`.
    pub fn create(&self, name: &str) -> Result<Group, io::Error> {
        let path = self
            .parent
            .join(format!("{PREFIX}{}-{name}", process::id()));
        fs::create_dir(&path)?;
        Ok(Group {
            version: self.version,
            path,
        })
    }

    /// Whether a limit comes with a softer one below it.
    pub fn has_high(&self) -> bool {
        self.version == Version::V2
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        if let Some(Moved { own, leaf }) = &self.moved {
            // Best effort: the controller cannot be taken back while a group beneath still has it.
            let _ = fs::write(own.join("cgroup.subtree_control"), "-memory");
            let _ = fs::write(own.join("cgroup.procs"), "0");
            remove(leaf);
        }
    }
}

impl Group {
    /// Limits the group to `bytes`, and as many of swap as it likes.
    pub fn limit_but_swap(&self, bytes: u64) -> Result<(), io::Error> {
        let limit = self.version.limit_file();
        self.write(limit, &bytes.to_string())?;
        match self.version {
            // A group that inherits 0 would never swap.
            Version::V1 => self.write("memory.swappiness", "60"),
            // Without the softer limit: to be slowed down below the hard one would be less memory.
            Version::V2 => self.write("memory.swap.max", "max"),
        }
    }

    /// Limits the group to `bytes`, without swap.
    pub fn limit(&self, bytes: u64) -> Result<(), io::Error> {
        match self.version {
            Version::V1 => {
                self.write("memory.limit_in_bytes", &bytes.to_string())?;
                // Memory and swap together; absent where swap is not accounted.
                let _ = self.write("memory.memsw.limit_in_bytes", &bytes.to_string());
            }
            Version::V2 => {
                self.write("memory.high", &bytes.to_string())?;
                self.write("memory.max", &(bytes + bytes / 5).to_string())?;
                let _ = self.write("memory.swap.max", "0");
            }
        }
        Ok(())
    }

    /// Takes the limit away, so that a process that is stuck in reclaim can die.
    pub fn raise(&self) {
        // Best effort: dying only takes longer otherwise.
        let _ = match self.version {
            Version::V1 => {
                let _ = self.write("memory.memsw.limit_in_bytes", "-1");
                self.write("memory.limit_in_bytes", "-1")
            }
            Version::V2 => {
                let _ = self.write("memory.max", "max");
                self.write("memory.high", "max")
            }
        };
    }

    /// Moves process `pid` in.
    pub fn add(&self, pid: u32) -> Result<(), io::Error> {
        self.write("cgroup.procs", &pid.to_string())
    }

    /// The most bytes that were ever charged to the group: all of its memory, page cache and page tables
    /// included. `None` on v2 before Linux 5.19.
    pub fn peak(&self) -> Option<u64> {
        let file = match self.version {
            Version::V1 => "memory.max_usage_in_bytes",
            Version::V2 => "memory.peak",
        };
        fs::read_to_string(self.path.join(file))
            .ok()?
            .trim()
            .parse()
            .ok()
    }

    fn write(&self, file: &str, text: &str) -> Result<(), io::Error> {
        fs::write(self.path.join(file), text)
            .map_err(|e| io::Error::new(e.kind(), format!("{}/{file}: {e}", self.path.display())))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.version == Version::V1 {
            // Cached pages charged to the group would keep it alive as a zombie.
            let _ = self.write("memory.force_empty", "0");
        }
        remove(&self.path);
    }
}

/// Removes an empty group; a process that was just reaped may keep it busy for a moment.
fn remove(path: &Path) {
    for _ in 0..200 {
        match fs::remove_dir(path) {
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) => {
                std::thread::sleep(Duration::from_millis(10));
            }
            _ => return,
        }
    }
}
