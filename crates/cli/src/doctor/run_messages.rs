//! Whether `softfault run` can take the kernel's faults too, as messages, for this user. Its library asks in the same way.

use super::check::{Check, Tried, Whereabouts};
use super::machine;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

/// One of three is enough, and `/proc/self/mem`, by which an engine looks at pages.
pub const CHECK: Check = Check {
    name: "run-messages",
    costs: "softfault run serves faults by signals: system calls on memory that is not there work by the C library alone, \
            and a Go program is declined",
    run: |_| match messages() {
        Ok(found) => Tried::ok(found),
        Err((found, mend)) => Tried::slower(found, mend),
    },
    whereabouts: Whereabouts::Child,
};

/// Why there are no messages, and how to allow them; `None`: there are.
pub fn no_messages() -> Option<(String, String)> {
    messages().err()
}

/// The permission that allows messages; or the reason why there are none, and the remedy.
fn messages() -> Result<&'static str, (String, String)> {
    let found = match (by_call(), by_device()) {
        (Ok(_), _) if is_for_all() => "userfaultfd(2) is for all: vm.unprivileged_userfaultfd = 1",
        (Ok(_), _) => "userfaultfd(2) may be called for the kernel's faults: CAP_SYS_PTRACE",
        (_, Ok(_)) => "/dev/userfaultfd may be opened",
        (Err(call), Err(device)) => return Err(refused(&call, &device)),
    };
    match File::open("/proc/self/mem") {
        Ok(_) => Ok(found),
        Err(why) => Err((
            format!("/proc/self/mem: {why}"),
            "mount proc on /proc".to_owned(),
        )),
    }
}

fn is_for_all() -> bool {
    machine::sysctl("vm.unprivileged_userfaultfd").is_some_and(|value| value.trim() == "1")
}

/// Needs the sysctl or the capability.
fn by_call() -> io::Result<OwnedFd> {
    // SAFETY: makes a file descriptor.
    let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | libc::O_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, so it is nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Needs the file's permissions (Linux 6.1).
fn by_device() -> io::Result<OwnedFd> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_CLOEXEC);
    options.open("/dev/userfaultfd").map(OwnedFd::from)
}

fn refused(call: &io::Error, device: &io::Error) -> (String, String) {
    let found = format!("userfaultfd(2): {call}; /dev/userfaultfd: {device}");
    let mend = match call.raw_os_error() {
        Some(libc::EPERM | libc::ENOSYS) if machine::is_filtered() => {
            machine::open_call("userfaultfd")
        }
        Some(libc::ENOSYS) => "boot a kernel built with CONFIG_USERFAULTFD=y".to_owned(),
        _ => "one of: setfacl -m u:$USER:rw /dev/userfaultfd; sysctl -w vm.unprivileged_userfaultfd=1; CAP_SYS_PTRACE"
            .to_owned(),
    };
    (found, mend)
}
