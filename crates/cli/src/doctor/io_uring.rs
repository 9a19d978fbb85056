//! io_uring: an engine's rings are made, and a read goes through one.

use super::check::{Check, Tried, Whereabouts};
use super::machine;
use super::place::{PAGE, Place, contents};
use io_uring::{IoUring, opcode, types};
use softfault::store::{QueueKind, Rings};
use std::io;
use std::os::fd::AsRawFd;

pub const CHECK: Check = Check {
    name: "io_uring",
    costs: "no second way to read ahead: where io_submit is used up, or a file needs the page cache, there is none",
    run: |place| {
        let rings = Rings::of(QueueKind::Uring)
            .map(drop)
            .map_err(|closed| io::Error::from_raw_os_error(closed.errno));
        match rings.and_then(|()| read(place)) {
            Ok(()) => Tried::ok(format!(
                "an engine's rings made, a read submitted{}",
                sysctl()
            )),
            Err(e) => Tried::missing(format!("refused: {e}{}", sysctl()), mend(&e)),
        }
    },
    whereabouts: Whereabouts::Child,
};

fn disabled() -> Option<String> {
    machine::sysctl("kernel.io_uring_disabled")
}

fn sysctl() -> String {
    disabled().map_or_else(String::new, |value| {
        format!("; kernel.io_uring_disabled = {value}")
    })
}

fn mend(error: &io::Error) -> String {
    let disabled = disabled().is_some_and(|value| value != "0");
    match error.raw_os_error() {
        Some(libc::EPERM) if disabled => "sysctl -w kernel.io_uring_disabled=0".to_owned(),
        Some(libc::EPERM | libc::EACCES | libc::ENOSYS) if machine::is_filtered() => {
            machine::open_call("io_uring_setup, io_uring_enter and io_uring_register")
        }
        Some(libc::ENOSYS) => "boot a kernel built with CONFIG_IO_URING=y".to_owned(),
        // Before 5.12 rings count as locked memory.
        Some(libc::ENOMEM) => "ulimit -l unlimited".to_owned(),
        Some(libc::EMFILE) => "ulimit -n 65536".to_owned(),
        Some(libc::EOPNOTSUPP | libc::EINVAL) => machine::newer_kernel(5, 11),
        _ => "let the security module allow it".to_owned(),
    }
}

/// Reads the first page of a file through a ring of its own.
fn read(place: &Place) -> io::Result<()> {
    let file = place.file()?;
    let mut page = vec![0u8; PAGE];
    let mut ring = IoUring::new(1)?;
    let fd = types::Fd(file.as_raw_fd());
    let read = opcode::Read::new(fd, page.as_mut_ptr(), PAGE as u32).build();
    // SAFETY: the buffer lives until the read's completion, which is waited for; the process ends with
    // the ring if that fails.
    unsafe { ring.submission().push(&read) }.expect("the ring is empty");
    ring.submit_and_wait(1)?;
    let answer = ring.completion().next().map_or(0, |done| done.result());
    match answer == PAGE as i32 && page == contents()[..PAGE] {
        true => Ok(()),
        false => Err(io::Error::other(format!("a read answered {answer}"))),
    }
}
