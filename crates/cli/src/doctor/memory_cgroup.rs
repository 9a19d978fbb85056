//! Memory cgroups: whether one can be made here, as the lab does for the kernel's rows, and the limits that
//! this process has already.

use super::check::{Check, Tried, Whereabouts};
use super::machine;
use crate::lab::cgroup_path::{Version, memory_group};
use crate::lab::group::Groups;
use crate::size;
use std::fs;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};

pub const CHECK: Check = Check {
    name: "memory-cgroup",
    costs: "lab and tour: the kernel's rows run without a limit; maps need no cgroup",
    run: |_| {
        let group = own();
        let found = match &group {
            None => "no memory controller to be seen".to_owned(),
            Some((version, path)) => {
                let version_name = match version {
                    Version::V1 => "v1",
                    Version::V2 => "v2",
                };
                match limit(*version, path) {
                    Some(bytes) => format!("{version_name}, here limited to {}", size::show(bytes)),
                    None => format!("{version_name}, here without a limit"),
                }
            }
        };
        // A half-made group would stay behind.
        let unmade = without_signals(|| Groups::find().map(drop)).err();
        match unmade {
            None => Tried::ok(format!("{found}; one was made and removed")),
            Some(why) => Tried::missing(
                format!("{found}; {why}"),
                mend(group.map(|(version, _)| version)),
            ),
        }
    },
    // A child could not do it where the parent has to leave the group first.
    whereabouts: Whereabouts::Here,
};

fn own() -> Option<(Version, PathBuf)> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    memory_group(&mounts, &own)
}

/// The least limit of a group and those above it, as far as they can be seen.
fn limit(version: Version, path: &Path) -> Option<u64> {
    let limits = path.ancestors().filter_map(|group| {
        let text = fs::read_to_string(group.join(version.limit_file())).ok()?;
        text.trim().parse::<u64>().ok()
    });
    // v1 says no limit by a number near the largest.
    limits.min().filter(|&bytes| bytes < 1 << 60)
}

fn mend(version: Option<Version>) -> String {
    match (version, machine::container(), machine::is_root()) {
        (None, None, _) => {
            "mount -t cgroup2 none /sys/fs/cgroup (or boot with cgroup_enable=memory)"
        }
        (Some(Version::V2), None, false) => {
            "systemd-run --user --scope -p Delegate=yes softfault lab run ..."
        }
        (Some(_), _, false) => "as root: softfault lab run ...",
        (Some(_), None, true) => "mount -o remount,rw /sys/fs/cgroup",
        (_, Some(program), _) => {
            return format!("{program} run --privileged --cgroupns=private ...");
        }
    }
    .to_owned()
}

/// Runs `work` with all signals that can be held back held back.
fn without_signals<T>(work: impl FnOnce() -> T) -> T {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the first call fills `all`, the second `before`.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
    }
    let result = work();
    // SAFETY: `before` was filled above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    result
}
