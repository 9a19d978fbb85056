//! The monotonic clock, which all processes share, and a thread's processor time.

/// Nanoseconds of CLOCK_MONOTONIC.
pub fn now_ns() -> u64 {
    nanoseconds(libc::CLOCK_MONOTONIC)
}

/// User and system time of the calling thread, in nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    nanoseconds(libc::CLOCK_THREAD_CPUTIME_ID)
}

#[inline]
fn nanoseconds(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: fills the structure; every Linux has these clocks.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
