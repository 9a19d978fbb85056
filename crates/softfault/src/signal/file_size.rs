//! SIGXFSZ: the kernel sends it to a thread whose write would exceed RLIMIT_FSIZE. The
//! program did not write: it touched memory, and gets an error for that if need be.

use libc::c_int;

/// A set of the kernel's.
type Set = u64;
const XFSZ: Set = 1 << (libc::SIGXFSZ - 1);

/// Makes a system call that lets a file grow; if that is too large, without the signal. Of two
/// that are pending the kernel hands out first the one that is for the thread alone: ours.
pub fn without_file_size_signal<T>(call: impl FnOnce() -> Result<T, c_int>) -> Result<T, c_int> {
    let before = change(libc::SIG_BLOCK, XFSZ);
    let answer = call();
    if matches!(answer, Err(libc::EFBIG)) {
        let no_wait = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let (set, info) = (
            &raw const XFSZ_SET,
            core::ptr::null_mut::<libc::siginfo_t>(),
        );
        // SAFETY: takes a pending signal of the set, if there is one.
        unsafe {
            sync::system_call!(
                libc::SYS_rt_sigtimedwait,
                set,
                info,
                &no_wait,
                size_of::<Set>(),
            )
        };
    }
    change(libc::SIG_SETMASK, before);
    answer
}

static XFSZ_SET: Set = XFSZ;

/// Changes the mask of this thread, and returns the old one. Not by the C library, which takes
/// the signals that it keeps to itself out of every mask: the handler has one of them in its.
fn change(how: c_int, set: Set) -> Set {
    let mut before: Set = 0;
    let bytes = size_of::<Set>();
    // SAFETY: sets of the kernel's size; changes this thread's mask.
    unsafe { sync::system_call!(libc::SYS_rt_sigprocmask, how, &set, &mut before, bytes) };
    before
}
