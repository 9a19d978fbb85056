//! Whether `softfault run` can take the kernel's faults too, as messages, for this user. Its library asks in the same way.

use super::check::{Check, State, Tried, Whereabouts};
use super::child::try_in_child;
use super::machine;
use super::place::PAGE;
use super::userfaultfd;
use softfault::{Engine, Faults, MIN_MEMORY};
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

pub const CHECK: Check = Check {
    name: NAME,
    costs: "softfault run serves faults by signals: system calls on memory that is not there work by the C library alone, \
            and a Go program is declined",
    run: |_| messages(),
    whereabouts: Whereabouts::Child,
};

/// The check that decides whether there are messages.
pub const NAME: &str = "run-messages";

/// Why there are no messages, and how to allow them; `None`: there are.
pub fn no_messages() -> Option<(String, String)> {
    let tried = try_in_child(messages);
    (tried.state != State::Ok).then(|| (tried.found, tried.mend.unwrap_or_default()))
}

/// The permission that allows messages; or the reason why there are none, and the remedy. One of three is enough, and
/// `/proc/self/mem`, by which an engine looks at pages.
fn messages() -> Tried {
    // The device first, as the library: a filter may kill the caller of userfaultfd(2).
    let found = match by_device() {
        Ok(_) => "/dev/userfaultfd may be opened",
        Err(device) => match by_call() {
            Ok(_) if is_for_all() => "userfaultfd(2) is for all: vm.unprivileged_userfaultfd = 1",
            Ok(_) => "userfaultfd(2) may be called for the kernel's faults: CAP_SYS_PTRACE",
            Err(call) => return refused(&call, &device),
        },
    };
    if let Err(why) = File::open("/proc/self/mem") {
        return Tried::slower(format!("/proc/self/mem: {why}"), machine::MOUNT_PROC);
    }
    match serve() {
        Ok(()) => Tried::ok(found),
        Err(why) => {
            let mend = match why.kind() {
                // No thread for it: the error names the limits.
                io::ErrorKind::WouldBlock => "raise the limit",
                _ => "see served-fault; if that is ok, report a bug",
            };
            Tried::slower(format!("{found}, and yet no fault is served: {why}"), mend)
        }
    }
}

/// Has an engine serve a fault of the kernel's.
fn serve() -> io::Result<()> {
    // SAFETY: ends this process, a child, if nobody serves the fault.
    unsafe { libc::alarm(SECONDS) };
    let engine = Engine::builder()
        .memory(MIN_MEMORY)
        .allow_kernel_maps(false);
    let engine = engine.faults(Faults::Messages).build()?;
    let mut memory = engine.map_anon(16 * PAGE)?;
    File::open("/dev/zero")?.read_exact(&mut memory)?;
    match engine.stats().faults {
        0 => Err(io::Error::other("the pages came without a fault of ours")),
        _ => Ok(()),
    }
}

/// Until a fault counts as not served.
const SECONDS: u32 = 10;

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

/// `USERFAULTFD_IOC_NEW`: `_IO(0xAA, 0x00)`.
const NEW: libc::Ioctl = 0xAA00;

/// Needs the file's permissions (Linux 6.1).
fn by_device() -> io::Result<OwnedFd> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_CLOEXEC);
    let device = options.open("/dev/userfaultfd")?;
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
    // SAFETY: makes a file descriptor.
    match unsafe { libc::ioctl(device.as_raw_fd(), NEW, flags) } {
        ..0 => Err(io::Error::last_os_error()),
        // SAFETY: the descriptor is new, so it is nobody else's.
        fd => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
    }
}

/// The permission for the kernel's faults: in a container the device and the capability are its own, the sysctl the machine's.
const PERMISSION: &str = "one of: setfacl -m u:$USER:rw /dev/userfaultfd (a container has it by --device /dev/userfaultfd); \
                          sysctl -w vm.unprivileged_userfaultfd=1; CAP_SYS_PTRACE";

fn refused(call: &io::Error, device: &io::Error) -> Tried {
    let found = format!("userfaultfd(2): {call}; /dev/userfaultfd: {device}");
    let mend = match call.raw_os_error() {
        // A filter does not look at the flags: where it lets the call pass for faults of user mode, the kernel refuses.
        Some(libc::EPERM | libc::ENOSYS)
            if machine::is_filtered() && !userfaultfd::is_allowed() =>
        {
            let call = machine::open_call("userfaultfd");
            format!("{call}; then {PERMISSION}")
        }
        Some(libc::ENOSYS) => "boot a kernel built with CONFIG_USERFAULTFD=y".to_owned(),
        _ => PERMISSION.to_owned(),
    };
    Tried::slower(found, mend)
}
