//! The memory cgroups of the process: the kernel's files of their limits and their use.

use std::path::{Path, PathBuf};

/// A memory cgroup's files.
pub(crate) struct CgroupFiles {
    /// Each has a number of bytes, or a word for none. The lowest holds.
    pub(crate) limits: Vec<PathBuf>,
    /// The file of its use, page cache included.
    pub(crate) current: PathBuf,
}

/// Where the kernel says of which cgroups a thread is. That of the process says "/" in cgroup v1 once its first thread has ended.
pub(crate) const SAID: &str = "/proc/thread-self/cgroup";

/// All that bound the process, from its own to the root. Some files may not be there.
pub(crate) fn memory_cgroups() -> Vec<CgroupFiles> {
    memory_cgroups_of(&std::fs::read_to_string(SAID).unwrap_or_default())
}

/// The same by what the kernel says.
pub(crate) fn memory_cgroups_of(said: &str) -> Vec<CgroupFiles> {
    let unified = Path::new("/sys/fs/cgroup/unified");
    let unified = match unified.is_dir() {
        true => unified,
        false => Path::new("/sys/fs/cgroup"),
    };
    said.lines()
        .flat_map(|line| cgroups_of(line, unified))
        .collect()
}

/// Those of a line of `/proc/self/cgroup`.
fn cgroups_of(line: &str, unified: &Path) -> Vec<CgroupFiles> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
        return Vec::new();
    };
    let (root, limits, current) = if controllers.is_empty() {
        let limits = &["memory.max", "memory.high"][..];
        (unified, limits, "memory.current")
    } else if controllers.split(',').any(|name| name == "memory") {
        let root = Path::new("/sys/fs/cgroup/memory");
        (
            root,
            &["memory.limit_in_bytes"][..],
            "memory.usage_in_bytes",
        )
    } else {
        return Vec::new();
    };
    let own = root.join(path.trim_start_matches('/'));
    own.ancestors()
        .take_while(|folder| folder.starts_with(root))
        .map(|folder| CgroupFiles {
            limits: limits.iter().map(|name| folder.join(name)).collect(),
            current: folder.join(current),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn from_the_own_to_the_root() {
        let root = Path::new("/sys/fs/cgroup");
        let own = cgroups_of("0::/user.slice/a:b", root);
        let currents: Vec<_> = own.iter().map(|group| group.current.clone()).collect();
        let of = |folder: &str| root.join(folder).join("memory.current");
        assert_eq!(currents, [of("user.slice/a:b"), of("user.slice"), of("")]);
        assert_eq!(own[0].limits.len(), 2);
        let first = cgroups_of("9:cpu,memory:/a", root);
        assert_eq!(first.len(), 2);
        assert!(first[0].limits[0].ends_with("memory/a/memory.limit_in_bytes"));
        assert!(cgroups_of("3:cpu:/a", root).is_empty() && cgroups_of("?", root).is_empty());
    }
}
