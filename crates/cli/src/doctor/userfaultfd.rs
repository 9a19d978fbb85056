//! userfaultfd: whether one can be had, and whether it has the mode that maps need.

use super::check::{Check, Tried, Whereabouts};
use super::machine;
use super::place::PAGE;
use softfault_sim::calibrate::memory::Memory;
use softfault_sim::calibrate::uffd;
use std::io;

/// userfaultfd(2) for faults of user mode, which needs no privilege (Linux 5.11).
pub const OPENED: Check = Check {
    name: "userfaultfd",
    costs: "no map can be served; Fallback::Kernel maps with the kernel's mmap, without a budget, and \
            Builder::build_soft serves calls",
    run: |_| match uffd::open() {
        Ok(_) => Tried::ok(format!("opened for faults of user mode{}", sysctl())),
        Err(e) => refused(&e),
    },
    whereabouts: Whereabouts::Child,
};

/// The value of the sysctl, which most guides name and which does not matter here.
fn sysctl() -> String {
    machine::sysctl("vm.unprivileged_userfaultfd").map_or_else(String::new, |value| {
        format!("; vm.unprivileged_userfaultfd = {value}, which is not needed")
    })
}

/// The meaning of a refusal, and its remedy.
fn refused(error: &io::Error) -> Tried {
    let mend = match error.raw_os_error() {
        Some(libc::EINVAL) => machine::newer_kernel(5, 11),
        Some(libc::ENOSYS) if !machine::is_filtered() => {
            "boot a kernel built with CONFIG_USERFAULTFD=y".to_owned()
        }
        Some(libc::EPERM | libc::ENOSYS) if machine::is_filtered() => {
            machine::open_call("userfaultfd")
        }
        Some(libc::EPERM | libc::EACCES) => {
            "let the security module allow it (SELinux: class anon_inode, permission create)"
                .to_owned()
        }
        Some(libc::EMFILE) => "ulimit -n 65536".to_owned(),
        Some(libc::ENFILE) => "sysctl -w fs.file-max=1000000".to_owned(),
        _ => "free memory for the kernel".to_owned(),
    };
    Tried::missing(format!("refused: {error}"), mend)
}

/// userfaultfd's SIGBUS mode: the faulting thread serves itself (Linux 4.14).
pub const SIGBUS_MODE: Check = Check {
    name: "sigbus-mode",
    costs: "no map can be served",
    run: |_| {
        let fd = match uffd::open() {
            Ok(fd) => fd,
            Err(e) => return refused(&e),
        };
        let registered = uffd::enable(&fd, uffd::FEATURE_SIGBUS)
            .and_then(|()| Memory::map(4 * PAGE, false))
            .and_then(|memory| uffd::register(&fd, &memory));
        match registered {
            Ok(()) => Tried::ok("a missing page raises SIGBUS in the thread that touches it"),
            Err(e) => Tried::missing(format!("refused: {e}"), machine::newer_kernel(5, 11)),
        }
    },
    whereabouts: Whereabouts::Child,
};

/// Whether the call is allowed for faults of user mode.
pub fn is_allowed() -> bool {
    uffd::open().is_ok()
}
