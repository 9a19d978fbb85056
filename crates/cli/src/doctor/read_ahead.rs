//! Reads that nobody waits for: the two ways to submit them. As many queues as an engine has are made, and a read goes
//! through one.

use super::check::{Check, Tried, Whereabouts};
use super::machine;
use super::place::{PAGE, Place, contents};
use io_uring::{IoUring, opcode, types};
use softfault::store::{QueueKind, Rings};
use std::io;
use std::os::fd::AsRawFd;
use std::ptr;

/// io_submit(2): a queue as large as an engine's is made, and a read goes through it.
pub const IO_SUBMIT: Check = Check {
    name: "io_submit",
    costs: "reads ahead go through io_uring, whose completions interrupt epoll_wait; without both there are none",
    run: |place| {
        if let Err(closed) = Rings::of(QueueKind::Aio) {
            let error = io::Error::from_raw_os_error(closed.errno);
            return Tried::missing(
                format!("io_setup: {error}{}", used()),
                mend_aio(closed.errno),
            );
        }
        match read_by_aio(place) {
            Ok(()) => Tried::ok(format!(
                "an engine's queues made, a read submitted{}",
                used()
            )),
            Err(e) => Tried::missing(e.to_string(), mend_aio(e.raw_os_error().unwrap_or(0))),
        }
    },
    whereabouts: Whereabouts::Child,
};

fn used() -> String {
    match (
        machine::sysctl("fs.aio-nr"),
        machine::sysctl("fs.aio-max-nr"),
    ) {
        (Some(used), Some(most)) => format!("; fs.aio-nr {used} of fs.aio-max-nr {most}"),
        _ => String::new(),
    }
}

fn mend_aio(errno: i32) -> String {
    match errno {
        // The limit is used up, by all processes of the machine together.
        libc::EAGAIN => "sysctl -w fs.aio-max-nr=1048576".to_owned(),
        libc::EPERM | libc::ENOSYS if machine::is_filtered() => machine::open_call("io_setup"),
        libc::ENOSYS => "boot a kernel built with CONFIG_AIO=y".to_owned(),
        _ => "free memory for the kernel".to_owned(),
    }
}

/// `struct iocb` and `struct io_event` of <linux/aio_abi.h>, as words.
type Iocb = [u64; 8];
type Event = [u64; 4];
const PREAD: u64 = 0;

fn check(answer: libc::c_long) -> io::Result<libc::c_long> {
    match answer {
        0.. => Ok(answer),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Reads the first page of a file through a queue of its own.
fn read_by_aio(place: &Place) -> io::Result<()> {
    let file = place.file()?;
    let mut page = vec![0u8; PAGE];
    let mut context: libc::c_ulong = 0;
    // data, key and flags, opcode with the descriptor in the upper half, buffer, bytes, offset.
    let opcode = PREAD | (file.as_raw_fd() as u64) << 32;
    let mut iocb: Iocb = [7, 0, opcode, page.as_mut_ptr() as u64, PAGE as u64, 0, 0, 0];
    let mut list = [&raw mut iocb];
    let mut event: Event = [0; 4];
    // SAFETY: the context is zero before; the request's buffer lives until its completion, which is
    // waited for, or until the context is destroyed, which waits too.
    unsafe {
        check(libc::syscall(libc::SYS_io_setup, 1, &raw mut context))?;
        let done = check(libc::syscall(
            libc::SYS_io_submit,
            context,
            1,
            list.as_mut_ptr(),
        ))
        .and_then(|_| {
            let no_limit = ptr::null_mut::<libc::timespec>();
            check(libc::syscall(
                libc::SYS_io_getevents,
                context,
                1,
                1,
                &raw mut event,
                no_limit,
            ))
        });
        libc::syscall(libc::SYS_io_destroy, context);
        done?;
    }
    match event[2] as i64 == PAGE as i64 && page == contents()[..PAGE] {
        true => Ok(()),
        false => Err(io::Error::other(format!(
            "a read answered {}",
            event[2] as i64
        ))),
    }
}

/// io_uring: an engine's rings are made, and a read goes through one.
pub const IO_URING: Check = Check {
    name: "io_uring",
    costs: "no second way to read ahead: where io_submit is used up, or a file needs the page cache, there is none",
    run: |place| {
        let rings = Rings::of(QueueKind::Uring)
            .map(drop)
            .map_err(|closed| io::Error::from_raw_os_error(closed.errno));
        match rings.and_then(|()| read_by_uring(place)) {
            Ok(()) => Tried::ok(format!(
                "an engine's rings made, a read submitted{}",
                sysctl()
            )),
            Err(e) => Tried::missing(format!("refused: {e}{}", sysctl()), mend_uring(&e)),
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

fn mend_uring(error: &io::Error) -> String {
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
fn read_by_uring(place: &Place) -> io::Result<()> {
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
