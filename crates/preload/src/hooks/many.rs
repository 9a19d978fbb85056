//! recvmmsg(2) into private memory that was taken, where faults are signals: one message after the other.

use super::readable::is_readable;
use crate::call;
use libc::{c_int, c_long, c_uint, mmsghdr, msghdr, ssize_t, timespec};

/// A call that receives many messages, one after the other. As the kernel does, it looks at the time when a message has
/// come, not while it waits for one. An error after the first message is not said, where the kernel keeps it for the next call.
///
/// # Safety
/// As of recvmmsg(2).
pub unsafe fn many_messages(
    (messages, count): (*mut mmsghdr, c_uint),
    flags: c_int,
    time: *mut timespec,
    mut receive: impl FnMut(*mut msghdr, c_int) -> ssize_t,
) -> c_int {
    let fails = |why| {
        call::set_errno(why);
        -1
    };
    if !time.is_null() && !is_readable(time.cast(), size_of::<timespec>()) {
        return fails(libc::EFAULT);
    }
    // SAFETY: the caller's promise, here and below.
    let until = match unsafe { time.as_ref() } {
        Some(time) if time.tv_sec < 0 || !(0..SECOND).contains(&time.tv_nsec) => {
            return fails(libc::EINVAL);
        }
        Some(time) => Some(now() + nanoseconds(time)),
        None => None,
    };
    let waits_for_one = flags & libc::MSG_WAITFORONE != 0;
    let mut flags = flags & !libc::MSG_WAITFORONE;
    let mut done = 0;
    while done < count {
        let message = messages.wrapping_add(done as usize);
        if !is_readable(message.cast(), size_of::<mmsghdr>()) {
            return match done {
                0 => fails(libc::EFAULT),
                some => some as c_int,
            };
        }
        // SAFETY: as above.
        let message = unsafe { &mut *message };
        let got = receive(&mut message.msg_hdr, flags);
        if got < 0 {
            return if done > 0 { done as c_int } else { -1 };
        }
        message.msg_len = got as c_uint;
        done += 1;
        if waits_for_one {
            flags |= libc::MSG_DONTWAIT;
        }
        if let Some(until) = until {
            let left = (until - now()).max(0);
            // SAFETY: as above.
            unsafe {
                *time = timespec {
                    tv_sec: (left / i128::from(SECOND)) as libc::time_t,
                    tv_nsec: (left % i128::from(SECOND)) as c_long,
                };
            }
            if left == 0 {
                break;
            }
        }
        if message.msg_hdr.msg_flags & libc::MSG_OOB != 0 {
            break;
        }
    }
    done as c_int
}

const SECOND: c_long = 1_000_000_000;

/// A time in nanoseconds, of any number of seconds.
fn nanoseconds(time: &timespec) -> i128 {
    i128::from(time.tv_sec) * i128::from(SECOND) + i128::from(time.tv_nsec)
}

/// The time that the kernel looks at.
fn now() -> i128 {
    let mut now = core::mem::MaybeUninit::<timespec>::zeroed();
    let at = now.as_mut_ptr();
    // SAFETY: fills the structure; zeros are a valid one.
    unsafe {
        softfault::system_call!(libc::SYS_clock_gettime, libc::CLOCK_MONOTONIC, at);
        nanoseconds(now.assume_init_ref())
    }
}
