//! Calls that hand a structure to the kernel, or are handed one, where faults are signals (`again.rs`).

use super::again::reading;
use libc::{
    c_char, c_int, c_long, c_uint, c_ulong, c_void, clock_t, clockid_t, cpu_set_t, epoll_event,
    gid_t, iovec, itimerspec, itimerval, nfds_t, pid_t, pollfd, rlimit, rusage, sched_param,
    sembuf, sigset_t, size_t, sockaddr, socklen_t, ssize_t, stat, statfs, sysinfo as Sysinfo,
    timespec, tms, utsname,
};

/// Bytes of the address of a socket, at most.
const NAME: usize = size_of::<libc::sockaddr_storage>();
/// Bytes of what an ioctl(2) has whose number does not say: a terminal's settings are the longest.
const UNKNOWN: usize = 64;

/// Bytes that an ioctl(2) reads or writes, by its number, as most are made.
fn ioctl_bytes(request: c_ulong) -> usize {
    match (request >> 30 & 3, request >> 16 & 0x3FFF) {
        (1.., bytes) if bytes > 0 => bytes as usize,
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
    fn ioctl(fd: c_int, request: c_ulong, with: *mut c_void) -> c_int => Bytes(with, ioctl_bytes(request)), Into(with, ioctl_bytes(request));
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
    /// write(2) of a whole message to the kernel's log, and the like, are elsewhere; this is sethostname(2).
    fn sethostname(name: *const libc::c_char, bytes: size_t) -> c_int => Bytes(name.cast(), bytes);
    /// fstat(2).
    fn fstat(fd: c_int, to: *mut stat) -> c_int => Into(to.cast(), size_of::<stat>());
    /// fstat(2).
    fn fstat64(fd: c_int, to: *mut stat) -> c_int => Into(to.cast(), size_of::<stat>());
    /// fstat(2), as programs for glibc before 2.33 call it.
    fn __fxstat(version: c_int, fd: c_int, to: *mut stat) -> c_int => Into(to.cast(), size_of::<stat>());
    /// The same.
    fn __fxstat64(version: c_int, fd: c_int, to: *mut stat) -> c_int => Into(to.cast(), size_of::<stat>());
    /// fstatfs(2).
    fn fstatfs(fd: c_int, to: *mut statfs) -> c_int => Into(to.cast(), size_of::<statfs>());
    /// fstatfs(2).
    fn fstatfs64(fd: c_int, to: *mut statfs) -> c_int => Into(to.cast(), size_of::<statfs>());
    /// flistxattr(2).
    fn flistxattr(fd: c_int, to: *mut c_char, bytes: size_t) -> ssize_t => Into(to.cast(), bytes);
    /// getsockname(2).
    fn getsockname(fd: c_int, to: *mut sockaddr, bytes: *mut socklen_t) -> c_int => Into(to.cast(), NAME), Into(bytes.cast(), size_of::<socklen_t>());
    /// getpeername(2).
    fn getpeername(fd: c_int, to: *mut sockaddr, bytes: *mut socklen_t) -> c_int => Into(to.cast(), NAME), Into(bytes.cast(), size_of::<socklen_t>());
    /// pipe(2).
    fn pipe(to: *mut c_int) -> c_int => Into(to.cast(), 2 * size_of::<c_int>());
    /// pipe2(2).
    fn pipe2(to: *mut c_int, flags: c_int) -> c_int => Into(to.cast(), 2 * size_of::<c_int>());
    /// socketpair(2).
    fn socketpair(domain: c_int, kind: c_int, protocol: c_int, to: *mut c_int) -> c_int => Into(to.cast(), 2 * size_of::<c_int>());
    /// poll(2).
    fn poll(all: *mut pollfd, count: nfds_t, until: c_int) -> c_int => Into(all.cast(), count as usize * size_of::<pollfd>());
    /// epoll_wait(2).
    fn epoll_wait(fd: c_int, to: *mut epoll_event, most: c_int, until: c_int) -> c_int => Into(to.cast(), most.max(0) as usize * size_of::<epoll_event>());
    /// getrusage(2).
    fn getrusage(of: c_int, to: *mut rusage) -> c_int => Into(to.cast(), size_of::<rusage>());
    /// getrlimit(2).
    fn getrlimit(what: c_uint, to: *mut rlimit) -> c_int => Into(to.cast(), size_of::<rlimit>());
    /// getrlimit(2), by its other name.
    fn getrlimit64(what: c_uint, to: *mut rlimit) -> c_int => Into(to.cast(), size_of::<rlimit>());
    /// times(2).
    fn times(to: *mut tms) -> clock_t => Into(to.cast(), size_of::<tms>());
    /// uname(2).
    fn uname(to: *mut utsname) -> c_int => Into(to.cast(), size_of::<utsname>());
    /// sysinfo(2).
    fn sysinfo(to: *mut Sysinfo) -> c_int => Into(to.cast(), size_of::<Sysinfo>());
    /// getgroups(2).
    fn getgroups(most: c_int, to: *mut gid_t) -> c_int => Into(to.cast(), most.max(0) as usize * size_of::<gid_t>());
    /// getresuid(2).
    fn getresuid(real: *mut gid_t, effective: *mut gid_t, saved: *mut gid_t) -> c_int => Into(real.cast(), 4), Into(effective.cast(), 4), Into(saved.cast(), 4);
    /// getresgid(2).
    fn getresgid(real: *mut gid_t, effective: *mut gid_t, saved: *mut gid_t) -> c_int => Into(real.cast(), 4), Into(effective.cast(), 4), Into(saved.cast(), 4);
    /// sched_getaffinity(2).
    fn sched_getaffinity(process: pid_t, bytes: size_t, to: *mut cpu_set_t) -> c_int => Into(to.cast(), bytes);
    /// sched_getparam(2).
    fn sched_getparam(process: pid_t, to: *mut sched_param) -> c_int => Into(to.cast(), size_of::<sched_param>());
    /// sched_rr_get_interval(2).
    fn sched_rr_get_interval(process: pid_t, to: *mut timespec) -> c_int => Into(to.cast(), size_of::<timespec>());
    /// getitimer(2).
    fn getitimer(which: c_int, to: *mut itimerval) -> c_int => Into(to.cast(), size_of::<itimerval>());
    /// timer_gettime(2).
    fn timer_gettime(timer: *mut c_void, to: *mut itimerspec) -> c_int => Into(to.cast(), size_of::<itimerspec>());
    /// timerfd_gettime(2).
    fn timerfd_gettime(fd: c_int, to: *mut itimerspec) -> c_int => Into(to.cast(), size_of::<itimerspec>());
    /// sigpending(2).
    fn sigpending(to: *mut sigset_t) -> c_int => Into(to.cast(), size_of::<sigset_t>());
    /// clock_gettime(2): some clocks are the kernel's to read.
    fn clock_gettime(clock: clockid_t, to: *mut timespec) -> c_int => Into(to.cast(), size_of::<timespec>());
    /// clock_getres(2).
    fn clock_getres(clock: clockid_t, to: *mut timespec) -> c_int => Into(to.cast(), size_of::<timespec>());
}
