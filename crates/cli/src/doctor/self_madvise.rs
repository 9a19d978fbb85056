//! process_madvise(2) with MADV_DONTNEED on ourselves (Linux 6.13): many ranges in one call.

use super::check::{Check, Tried, Whereabouts};
use super::machine;
use super::memory::Memory;
use super::place::PAGE;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

pub const CHECK: Check = Check {
    name: "self-madvise",
    costs: "evicted pages are unmapped one range a call, each with a TLB shootdown of its own",
    run: |_| match try_it() {
        Ok(()) => Tried::ok("two ranges unmapped by one process_madvise on ourselves"),
        Err(e) => Tried::slower(format!("process_madvise: {e}"), mend(&e)),
    },
    whereabouts: Whereabouts::Child,
};

fn mend(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::ENOSYS) if machine::is_filtered() => {
            machine::open_call("pidfd_open and process_madvise")
        }
        _ => machine::newer_kernel(6, 13),
    }
}

/// Unmaps the first and the third of four pages, and sees that these are gone and the others are not.
pub fn try_it() -> io::Result<()> {
    // SAFETY: makes a file descriptor.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, so it is nobody else's.
    let ourselves = unsafe { OwnedFd::from_raw_fd(fd as i32) };
    let memory = Memory::map(4 * PAGE)?;
    (0..4).for_each(|page| memory.write(page * PAGE, 1));
    let ranges = [0, 2 * PAGE].map(|offset| libc::iovec {
        iov_base: memory.at(offset) as *mut libc::c_void,
        iov_len: PAGE,
    });
    // SAFETY: both ranges are of our mapping, whose bytes nobody has a reference to.
    let done = unsafe {
        let (fd, advice) = (ourselves.as_raw_fd(), libc::MADV_DONTNEED);
        libc::syscall(
            libc::SYS_process_madvise,
            fd,
            ranges.as_ptr(),
            ranges.len(),
            advice,
            0,
        )
    };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    match memory.present()? == [false, true, false, true] {
        true => Ok(()),
        false => Err(io::Error::other("it unmapped something else")),
    }
}
