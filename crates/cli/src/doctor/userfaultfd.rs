//! userfaultfd(2) for faults of user mode, which needs no privilege (Linux 5.11).

use super::check::{Check, Tried, Whereabouts};
use super::{machine, uffd};
use std::io;

pub const CHECK: Check = Check {
    name: "userfaultfd",
    costs: "no map can be served; Fallback::Kernel maps with the kernel's mmap, without a budget, and \
            Builder::build_soft serves calls",
    run: |_| match uffd::open() {
        Ok(_) => Tried::ok(format!("opened for faults of user mode{}", sysctl())),
        Err(e) => refused(&e),
    },
    whereabouts: Whereabouts::Child,
};

/// What the sysctl is, which most guides name and which does not matter here.
fn sysctl() -> String {
    machine::sysctl("vm.unprivileged_userfaultfd").map_or_else(String::new, |value| {
        format!("; vm.unprivileged_userfaultfd = {value}, which is not needed")
    })
}

/// What a refusal means, and what mends it.
pub fn refused(error: &io::Error) -> Tried {
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
