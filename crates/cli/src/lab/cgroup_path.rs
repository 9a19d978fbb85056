//! Where this process's memory cgroup lies in the file system, from /proc/self/mountinfo and
//! /proc/self/cgroup (proc(5), cgroups(7)).

use std::path::{Component, Path, PathBuf};

/// The two hierarchies there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// The memory controller mounted by itself.
    V1,
    /// The unified hierarchy.
    V2,
}

impl Version {
    /// The file that holds a group's hard limit.
    pub fn limit_file(self) -> &'static str {
        match self {
            Self::V1 => "memory.limit_in_bytes",
            Self::V2 => "memory.max",
        }
    }
}

/// One mounted hierarchy: which part of it (`root`) is seen where (`point`).
struct Mount<'a> {
    root: &'a str,
    point: &'a str,
}

/// This process's group in the hierarchy that has the memory controller: v1 if that is mounted with it,
/// v2 otherwise.
pub fn memory_group(mountinfo: &str, cgroup: &str) -> Option<(Version, PathBuf)> {
    let v1 = own_path(cgroup, |controllers| {
        controllers.split(',').any(|c| c == "memory")
    })
    .zip(find_mount(mountinfo, "cgroup", Some("memory")));
    if let Some((own, mount)) = v1 {
        return Some((Version::V1, beneath(&mount, own)?));
    }
    let own = own_path(cgroup, str::is_empty)?;
    let mount = find_mount(mountinfo, "cgroup2", None)?;
    Some((Version::V2, beneath(&mount, own)?))
}

/// Lines are `id:controllers:path`; v2's has no controllers.
fn own_path(cgroup: &str, wanted: impl Fn(&str) -> bool) -> Option<&str> {
    cgroup.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        wanted(controllers).then_some(path)
    })
}

/// Lines are `id parent dev root point options [tags] - type source super-options`.
fn find_mount<'a>(mountinfo: &'a str, kind: &str, option: Option<&str>) -> Option<Mount<'a>> {
    mountinfo.lines().find_map(|line| {
        let (place, what) = line.split_once(" - ")?;
        let mut what = what.split(' ');
        let right_kind = what.next()? == kind;
        let options = what.nth(1)?;
        let right_option = option.is_none_or(|o| options.split(',').any(|have| have == o));
        let mut place = place.split(' ').skip(3);
        let (root, point) = (place.next()?, place.next()?);
        (right_kind && right_option).then_some(Mount { root, point })
    })
}

/// `own` as seen through the mount; `None` if it lies outside (another cgroup namespace).
fn beneath(mount: &Mount, own: &str) -> Option<PathBuf> {
    let inner = Path::new(own).strip_prefix(mount.root).ok()?;
    let plain = |c: Component| matches!(c, Component::Normal(_));
    inner
        .components()
        .all(plain)
        .then(|| Path::new(mount.point).join(inner))
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &str = "\
30 25 0:26 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw
33 30 0:29 / /sys/fs/cgroup/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
35 30 0:31 / /sys/fs/cgroup/memory rw,relatime shared:11 - cgroup cgroup rw,memory
42 30 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw";
    const V2: &str = "\
30 25 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate";
    const CONTAINER: &str = "\
30 25 0:26 /docker/ab12 /sys/fs/cgroup ro - cgroup2 cgroup rw";

    #[test]
    fn v1_goes_before_a_v2_without_controllers() {
        let own = "4:memory:/a/b\n3:cpu,cpuacct:/\n0::/elsewhere";
        let expected = (Version::V1, PathBuf::from("/sys/fs/cgroup/memory/a/b"));
        assert_eq!(memory_group(V1, own), Some(expected));
    }

    #[test]
    fn v2_is_found_by_its_line_without_controllers() {
        let own = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/a b.scope";
        let expected = Path::new("/sys/fs/cgroup").join(&own[4..]);
        assert_eq!(memory_group(V2, own), Some((Version::V2, expected)));
    }

    #[test]
    fn a_mount_may_show_only_a_part() {
        let inside = memory_group(CONTAINER, "0::/docker/ab12/x");
        assert_eq!(inside, Some((Version::V2, "/sys/fs/cgroup/x".into())));
        assert_eq!(memory_group(CONTAINER, "0::/docker/other"), None);
        assert_eq!(memory_group(V2, "0::/../elsewhere"), None);
    }

    #[test]
    fn no_memory_controller_is_no_group() {
        assert_eq!(memory_group("", "0::/"), None);
        assert_eq!(memory_group(V2, ""), None);
        let cpu_only = "33 30 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu";
        assert_eq!(memory_group(cpu_only, "3:cpu:/\n4:memory:/"), None);
    }
}
