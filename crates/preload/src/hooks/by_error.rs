//! Calls that return the number of an error, and do not set errno, where faults are signals. Those that read a time are given a
//! copy of it on the thread's stack: the thread's own read of the original brings that in.

use super::again::{Reads, again_by_error};
use super::next::hooks;
use super::readable::is_readable;
use super::receive::{BounceBuffer, size};
use crate::{marked, mode};
use libc::{
    c_char, c_int, c_void, clockid_t, cpu_set_t, pthread_t, sched_param, sigset_t, size_t, timespec,
};

/// A call that sleeps for a time, and says how much of it is left if it was interrupted: `was_left` says whether it did.
///
/// # Safety
/// `left` is null, or may be written to.
unsafe fn sleep(
    time: *const timespec,
    left: *mut timespec,
    was_left: impl FnOnce(c_int) -> bool,
    call: impl FnOnce(*const timespec, *mut timespec) -> c_int,
) -> c_int {
    const BYTES: usize = size_of::<timespec>();
    let time_is_taken = mode::is_signals() && marked::may_be_taken(time as usize, BYTES);
    let aside = BounceBuffer::of(left.cast(), BYTES, false);
    if !time_is_taken && !aside.is_aside() || !is_readable(time.cast(), BYTES) {
        return call(time, left);
    }
    // SAFETY: the time is there.
    let own = unsafe { *time };
    let answer = call(&own, aside.place().cast());
    if !was_left(answer) || aside.end(BYTES) == BYTES {
        return answer;
    }
    match answer {
        // Of thrd_sleep(3): any error but that it was interrupted.
        -1 => -2,
        _ => libc::EFAULT,
    }
}

hooks! {
    /// clock_nanosleep(2).
    fn clock_nanosleep(clock: clockid_t, flags: c_int, time: *const timespec, left: *mut timespec) -> c_int = |next| {
        let was_left = |answer| answer == libc::EINTR && flags & libc::TIMER_ABSTIME == 0;
        sleep(time, left, was_left, |time, left| next(clock, flags, time, left))
    };

    /// thrd_sleep(3).
    fn thrd_sleep(time: *const timespec, left: *mut timespec) -> c_int = |next| {
        sleep(time, left, |answer| answer == -1, |time, left| next(time, left))
    };

    /// sigwait(3): the C library puts the number there itself.
    fn sigwait(set: *const sigset_t, number: *mut c_int) -> c_int = |next| {
        again_by_error(&[Reads::Bytes(set.cast(), size(set))], || next(set, number))
    };

    /// ttyname_r(3).
    fn ttyname_r(fd: c_int, to: *mut c_char, bytes: size_t) -> c_int = |next| {
        again_by_error(&[Reads::Into(to.cast(), bytes)], || next(fd, to, bytes))
    };

    /// pthread_setaffinity_np(3).
    fn pthread_setaffinity_np(thread: pthread_t, bytes: size_t, set: *const cpu_set_t) -> c_int = |next| {
        again_by_error(&[Reads::Bytes(set.cast(), bytes)], || next(thread, bytes, set))
    };

    /// pthread_getaffinity_np(3).
    fn pthread_getaffinity_np(thread: pthread_t, bytes: size_t, to: *mut cpu_set_t) -> c_int = |next| {
        again_by_error(&[Reads::Into(to.cast(), bytes)], || next(thread, bytes, to))
    };

    /// pthread_setschedparam(3).
    fn pthread_setschedparam(thread: pthread_t, policy: c_int, with: *const sched_param) -> c_int = |next| {
        again_by_error(&[Reads::Bytes(with.cast(), size(with))], || next(thread, policy, with))
    };

    /// pthread_getname_np(3).
    fn pthread_getname_np(thread: pthread_t, to: *mut c_char, bytes: size_t) -> c_int = |next| {
        let into: *mut c_void = to.cast();
        again_by_error(&[Reads::Into(into, bytes)], || next(thread, to, bytes))
    };
}
