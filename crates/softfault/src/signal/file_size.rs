//! SIGXFSZ: the kernel sends it to a thread whose write would exceed RLIMIT_FSIZE; and SIGPIPE, where nobody
//! reads any more. The program did not write: it touched memory, and gets an error for that if need be.

use libc::c_int;

/// A set of the kernel's.
type Set = u64;
const XFSZ: Set = 1 << (libc::SIGXFSZ - 1);
const PIPE: Set = 1 << (libc::SIGPIPE - 1);

/// Makes a system call that lets a file grow; if that is too large, without the signal.
pub fn without_file_size_signal<T>(call: impl FnOnce() -> Result<T, c_int>) -> Result<T, c_int> {
    without(XFSZ, call)
}

/// Makes a system call that writes to a file or a pipe that is not softfault's own; if it fails, without a signal.
pub fn without_write_signals<T>(call: impl FnOnce() -> Result<T, c_int>) -> Result<T, c_int> {
    without(XFSZ | PIPE, call)
}

/// Makes the call with these signals blocked, and takes the one that it has raised. One that the thread had blocked, and that was pending
/// before, is the program's: it stays, and ours with it.
fn without<T>(signals: Set, call: impl FnOnce() -> Result<T, c_int>) -> Result<T, c_int> {
    let before = change(libc::SIG_BLOCK, signals);
    let own = match before & signals {
        0 => 0,
        blocked => pending() & blocked,
    };
    let answer = call();
    let raised = match answer {
        Err(libc::EFBIG) => signals & XFSZ,
        Err(libc::EPIPE) => signals & PIPE,
        _ => 0,
    } & !own;
    if raised != 0 {
        take(raised);
    }
    change(libc::SIG_SETMASK, before);
    answer
}

/// Takes a pending signal of the set, if there is one.
fn take(signals: Set) {
    let no_wait = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let (set, info) = (&raw const signals, core::ptr::null_mut::<libc::siginfo_t>());
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

/// The signals that are pending for this thread.
fn pending() -> Set {
    let mut pending: Set = 0;
    let bytes = size_of::<Set>();
    // SAFETY: fills a set of the kernel's size.
    unsafe { sync::system_call!(libc::SYS_rt_sigpending, &mut pending, bytes) };
    pending
}

/// Changes the mask of this thread, and returns the old one. Not by the C library, which takes
/// the signals that it keeps to itself out of every mask: the handler has one of them in its.
fn change(how: c_int, set: Set) -> Set {
    let mut before: Set = 0;
    let bytes = size_of::<Set>();
    // SAFETY: sets of the kernel's size; changes this thread's mask.
    unsafe { sync::system_call!(libc::SYS_rt_sigprocmask, how, &set, &mut before, bytes) };
    before
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Failed before: the program's was taken with ours, or in its place.
    #[test]
    fn a_signal_that_was_pending_stays() {
        let before = change(libc::SIG_BLOCK, XFSZ);
        let fails = || without_file_size_signal(|| Err::<(), _>(libc::EFBIG));
        let raise = || {
            // SAFETY: it is blocked.
            unsafe { libc::raise(libc::SIGXFSZ) };
        };
        raise();
        assert_eq!(fails(), Err(libc::EFBIG));
        assert_eq!(pending() & XFSZ, XFSZ);
        take(XFSZ);
        // One of the call's own goes.
        let raised = || {
            raise();
            Err::<(), _>(libc::EFBIG)
        };
        assert_eq!(without_file_size_signal(raised), Err(libc::EFBIG));
        assert_eq!(pending() & XFSZ, 0);
        change(libc::SIG_SETMASK, before);
    }
}
