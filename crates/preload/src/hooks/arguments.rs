//! Calls that hand a structure to the kernel, where faults are signals (`again.rs`).

use super::again::reading;
use libc::{
    c_int, c_long, c_uint, c_ulong, c_void, cpu_set_t, epoll_event, gid_t, iovec, itimerspec,
    itimerval, pid_t, rlimit, sembuf, size_t, sockaddr, socklen_t, ssize_t, timespec,
};

/// Bytes of what an ioctl(2) reads whose number does not say: a terminal's settings are the longest.
const UNKNOWN: usize = 64;

/// Bytes that an ioctl(2) reads, by its number, as most are made.
fn ioctl_bytes(request: c_ulong) -> usize {
    let (from_program, bytes) = (request >> 30 & 1, request >> 16 & 0x3FFF);
    match (from_program, bytes) {
        (1, bytes) if bytes > 0 => bytes as usize,
        _ => UNKNOWN,
    }
}

reading! {
    /// bind(2).
    fn bind(fd: c_int, to: *const sockaddr, bytes: socklen_t) -> c_int => Bytes(to.cast(), bytes as usize);
    /// connect(2).
    fn connect(fd: c_int, to: *const sockaddr, bytes: socklen_t) -> c_int => Bytes(to.cast(), bytes as usize);
    /// setsockopt(2).
    fn setsockopt(fd: c_int, level: c_int, name: c_int, from: *const c_void, bytes: socklen_t) -> c_int => Bytes(from, bytes as usize);
    /// ioctl(2). In C its last argument may be missing: then it is not looked at.
    fn ioctl(fd: c_int, request: c_ulong, with: *mut c_void) -> c_int => Bytes(with, ioctl_bytes(request));
    /// process_vm_writev(2): what it writes to is another process's.
    fn process_vm_writev(process: pid_t, from: *const iovec, count: c_ulong, to: *const iovec, to_count: c_ulong, flags: c_ulong) -> ssize_t => Vectors(from, count as usize);
    /// epoll_ctl(2).
    fn epoll_ctl(fd: c_int, how: c_int, of: c_int, event: *mut epoll_event) -> c_int => Bytes(event.cast(), size_of::<epoll_event>());
    /// mq_send(3).
    fn mq_send(queue: c_int, from: *const libc::c_char, bytes: size_t, priority: c_uint) -> c_int => Bytes(from.cast(), bytes);
    /// mq_timedsend(3).
    fn mq_timedsend(queue: c_int, from: *const libc::c_char, bytes: size_t, priority: c_uint, until: *const timespec) -> c_int => Bytes(from.cast(), bytes), Bytes(until.cast(), size_of::<timespec>());
    /// msgsnd(2): a number is in front of the message.
    fn msgsnd(queue: c_int, from: *const c_void, bytes: size_t, flags: c_int) -> c_int => Bytes(from, bytes + size_of::<c_long>());
    /// semop(2).
    fn semop(set: c_int, what: *mut sembuf, count: size_t) -> c_int => Bytes(what.cast(), count * size_of::<sembuf>());
    /// sched_setaffinity(2).
    fn sched_setaffinity(process: pid_t, bytes: size_t, set: *const cpu_set_t) -> c_int => Bytes(set.cast(), bytes);
    /// setgroups(2).
    fn setgroups(count: size_t, groups: *const gid_t) -> c_int => Bytes(groups.cast(), count * size_of::<gid_t>());
    /// setrlimit(2).
    fn setrlimit(what: c_uint, to: *const rlimit) -> c_int => Bytes(to.cast(), size_of::<rlimit>());
    /// setrlimit(2), by its other name.
    fn setrlimit64(what: c_uint, to: *const rlimit) -> c_int => Bytes(to.cast(), size_of::<rlimit>());
    /// setitimer(2).
    fn setitimer(which: c_int, to: *const itimerval, before: *mut itimerval) -> c_int => Bytes(to.cast(), size_of::<itimerval>());
    /// timerfd_settime(2).
    fn timerfd_settime(fd: c_int, flags: c_int, to: *const itimerspec, before: *mut itimerspec) -> c_int => Bytes(to.cast(), size_of::<itimerspec>());
    /// nanosleep(2).
    fn nanosleep(time: *const timespec, left: *mut timespec) -> c_int => Bytes(time.cast(), size_of::<timespec>());
    /// write(2) of a whole message to the kernel's log, and the like, are elsewhere; this is sethostname(2).
    fn sethostname(name: *const libc::c_char, bytes: size_t) -> c_int => Bytes(name.cast(), bytes);
}
