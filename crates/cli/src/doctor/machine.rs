//! The kernel's release, and the machine's own settings: sysctls, limits, the container. The abilities of a kernel
//! are tried, not told from its name; only its page has to be ours.

use super::check::{Check, Tried, Whereabouts};
use super::place::PAGE;
use crate::figure::figure;
use std::fs;
use std::path::Path;

/// Which kernel this is. Its features are tried, not told from its name; only its page has to be ours.
pub const KERNEL: Check = Check {
    name: "kernel",
    costs: "no map can be served: softfault's pages are of 4096 bytes",
    run: |_| {
        let mut found = format!("Linux {} on {}", release(), std::env::consts::ARCH);
        if let Some(program) = container() {
            found += &format!(", in a {program} container");
        }
        if is_filtered() {
            found += ", under a seccomp filter";
        }
        // SAFETY: asks for a number only.
        match unsafe { libc::sysconf(libc::_SC_PAGESIZE) } {
            bytes if bytes == PAGE as libc::c_long => Tried::ok(found),
            bytes => Tried::missing(
                format!("{found}, pages of {bytes} bytes"),
                "boot a kernel with pages of 4096 bytes (CONFIG_ARM64_4K_PAGES=y)",
            ),
        }
    },
    whereabouts: Whereabouts::Child,
};

/// The remedy where files of `/proc` are missing.
pub const MOUNT_PROC: &str = "mount -t proc proc /proc";

/// The kernel's release as it names itself, such as `6.18.4-arch1`.
pub fn release() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease")
        .map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}

/// Whether the release is at least `major.minor`; `None` if it cannot be read.
pub fn is_at_least(major: u32, minor: u32) -> Option<bool> {
    Some(version(&release())? >= (major, minor))
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// How to get a kernel feature of `major.minor`.
pub fn newer_kernel(major: u32, minor: u32) -> String {
    format!("boot Linux {major}.{minor} or newer")
}

/// A sysctl's value, named as sysctl(8) does; `None` where the kernel has none of that name.
pub fn sysctl(name: &str) -> Option<String> {
    let path = format!("/proc/sys/{}", name.replace('.', "/"));
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

/// Whether a seccomp filter is on this process.
pub fn is_filtered() -> bool {
    figure("/proc/self/status", "Seccomp:") == Some(2)
}

/// Whether this process is root, here.
pub fn is_root() -> bool {
    // SAFETY: asks for a number only.
    unsafe { libc::geteuid() == 0 }
}

/// The program that runs this container, if it left its sign.
pub fn container() -> Option<&'static str> {
    let signs = [("/.dockerenv", "docker"), ("/run/.containerenv", "podman")];
    let found = signs.iter().find(|(sign, _)| Path::new(sign).exists());
    found.map(|(_, name)| *name)
}

/// How to open a system call that a filter closes.
pub fn open_call(call: &str) -> String {
    match container() {
        Some(program) => {
            format!("{program} run --security-opt seccomp=unconfined ..., or a profile with {call}")
        }
        None => format!("allow {call} in the seccomp filter (systemd: SystemCallFilter=)"),
    }
}

/// The type of a limit's name, which is signed with musl.
#[cfg(target_env = "musl")]
type Resource = libc::c_int;
#[cfg(not(target_env = "musl"))]
type Resource = libc::__rlimit_resource_t;

/// A limit of this process: soft and hard; `None` is unlimited.
pub fn limit(which: Resource) -> (Option<u64>, Option<u64>) {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: fills the structure; fails only for a resource that there is none of.
    unsafe { libc::getrlimit(which, &mut limit) };
    let known = |value| (value != libc::RLIM_INFINITY).then_some(value);
    (known(limit.rlim_cur), known(limit.rlim_max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        assert_eq!(version("6.18.44-fc-v669"), Some((6, 18)));
        assert_eq!(version("5.4"), Some((5, 4)));
        assert_eq!(version("6.1-rc3"), Some((6, 1)));
        assert_eq!(version("unknown"), None);
        assert_eq!(is_at_least(2, 6), Some(true));
        assert_eq!(is_at_least(999, 0), Some(false));
    }

    #[test]
    fn a_missing_file_is_none() {
        assert_eq!(sysctl("vm.no_such_thing"), None);
    }
}
