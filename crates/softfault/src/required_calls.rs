//! System calls that a touch cannot do without, tried where an engine is built, a huge map is made, or swap
//! opened: a call that a filter denies (seccomp) is an error there, with its name, and no signal later.
//!
//! Each is tried with arguments that cannot be right, which the kernel refuses with an errno that is known. Any other
//! answer is that of somebody in between.

use core::mem::MaybeUninit;
use core::ptr::{null, null_mut};
use libc::c_int;
use std::io;

/// No descriptor has this number. (A negative one is refused by the C library, without a call.)
const NONE: c_int = c_int::MAX;
/// Bytes of the kernel's signal sets.
const SET: usize = size_of::<u64>();
/// No page begins here.
const ODD: usize = 1;

/// A call, the errno that it has to answer, and the trial.
type Trial = (&'static str, c_int, fn() -> libc::c_long);

/// The system calls that serve faults.
const FAULTS: &[Trial] = &[
    ("rt_sigprocmask", libc::EINVAL, || {
        let (set, nothing) = (0u64, null::<libc::c_void>());
        // SAFETY: the set is valid; the requested change of it is not.
        unsafe { sync::system_call!(libc::SYS_rt_sigprocmask, NONE, &raw const set, nothing, SET) }
    }),
    ("rt_sigaction", libc::EINVAL, || {
        let nothing = null::<libc::c_void>();
        // SAFETY: no signal has this number. The C library would refuse it without a call.
        unsafe { sync::system_call!(libc::SYS_rt_sigaction, 0, nothing, nothing, SET) }
    }),
    ("madvise", libc::EINVAL, || {
        // SAFETY: no range begins there.
        unsafe { sync::kernel_calls::madvise(ODD as *mut _, ODD, libc::MADV_DONTNEED).into() }
    }),
    ("mprotect", libc::EINVAL, || {
        // SAFETY: as above.
        unsafe { sync::kernel_calls::mprotect(ODD as *mut _, ODD, libc::PROT_READ).into() }
    }),
    ("pread64", libc::EBADF, || {
        // SAFETY: nothing is read.
        unsafe { libc::pread(NONE, null_mut(), 0, 0) as libc::c_long }
    }),
    ("fstat", libc::EBADF, || {
        let mut stat = MaybeUninit::<libc::stat>::uninit();
        // SAFETY: room for the structure that it would fill.
        unsafe { libc::fstat(NONE, stat.as_mut_ptr()).into() }
    }),
];

/// The calls that write to swap.
const SWAP: &[Trial] = &[("pwritev", libc::EBADF, || {
    // SAFETY: nothing is written.
    unsafe { libc::pwritev(NONE, null(), 0, 0) as libc::c_long }
})];

/// Fails if a call is denied that serves faults.
pub(crate) fn for_faults() -> io::Result<()> {
    all(FAULTS, "page faults cannot be served without it")
}

/// Fails if a call is denied that writes to swap.
pub(crate) fn for_swap() -> io::Result<()> {
    all(SWAP, "nothing can go to swap without it")
}

fn all(trials: &[Trial], why: &str) -> io::Result<()> {
    for (call, expected, trial) in trials {
        let answered = trial();
        let errno = crate::errno::errno();
        if answered >= 0 || errno != *expected {
            let denied = io::Error::from_raw_os_error(if answered < 0 { errno } else { 0 });
            let message = format!("{call} is denied to this process ({denied}): {why}");
            return Err(io::Error::new(io::ErrorKind::Unsupported, message));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_denied_here() {
        for_faults().unwrap();
        for_swap().unwrap();
        let trial: Trial = ("none", libc::EPERM, || {
            // SAFETY: no descriptor has this number.
            unsafe { libc::close(NONE).into() }
        });
        let denied = all(&[trial], "so").unwrap_err().to_string();
        assert!(
            denied.starts_with("none is denied to this process"),
            "{denied}"
        );
    }
}
