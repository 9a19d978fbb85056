//! Calls that hand a structure to the kernel, or are handed one, where faults are signals (`again.rs`).

use super::again::reading;
use super::readable::is_readable;
use libc::{
    c_char, c_int, c_long, c_uint, c_ulong, c_void, clock_t, clockid_t, cpu_set_t, epoll_event,
    gid_t, iovec, itimerspec, itimerval, pid_t, rlimit, rusage, sched_param, sembuf, sigset_t,
    size_t, sockaddr, socklen_t, ssize_t, stat, statfs, sysinfo as Sysinfo, timespec, tms, utsname,
};

/// Bytes of the address of a socket, at most.
const NAME: usize = size_of::<libc::sockaddr_storage>();
/// Bytes of the argument of an ioctl(2) whose number does not say: a terminal's settings are the longest.
const UNKNOWN: usize = 64;

/// Bytes of a time zone.
const ZONE: usize = 2 * size_of::<c_int>();
/// Bytes of the header of capget(2), and of its data.
const CAP_HEAD: usize = 2 * size_of::<c_int>();
const CAP_DATA: usize = 6 * size_of::<c_int>();

/// Bytes that an ioctl(2) reads or writes, by its number, as most are made.
pub fn ioctl_bytes(request: c_ulong) -> usize {
    match (request >> 30 & 3, request >> 16 & 0x3FFF) {
        (1.., bytes) if bytes > 0 => bytes as usize,
        _ => UNKNOWN,
    }
}

/// Bytes that fcntl(2) reads or writes.
fn fcntl_bytes(how: c_int) -> usize {
    match how {
        libc::F_GETLK | libc::F_SETLK | libc::F_SETLKW => size_of::<libc::flock>(),
        libc::F_OFD_GETLK | libc::F_OFD_SETLK | libc::F_OFD_SETLKW => size_of::<libc::flock>(),
        F_SETOWN_EX | F_GETOWN_EX => 2 * size_of::<c_int>(),
        F_GET_RW_HINT..=F_SET_FILE_RW_HINT => size_of::<u64>(),
        _ => 0,
    }
}

/// Numbers of linux/fcntl.h that the crate of the C library has not.
const F_SETOWN_EX: c_int = 15;
const F_GETOWN_EX: c_int = 16;
const F_GET_RW_HINT: c_int = 1035;
const F_SET_FILE_RW_HINT: c_int = 1038;

/// Bytes that prctl(2) reads or writes at its second argument.
fn prctl_bytes(option: c_int) -> usize {
    match option {
        libc::PR_SET_NAME | libc::PR_GET_NAME => 16,
        libc::PR_GET_PDEATHSIG | libc::PR_GET_CHILD_SUBREAPER | libc::PR_GET_TSC => 4,
        _ => 0,
    }
}

/// Bytes of the names that prctl(2) gives to memory, at most.
fn vma_name_bytes(option: c_int) -> usize {
    if option == libc::PR_SET_VMA { 80 } else { 0 }
}

/// Bytes that semctl(2) reads or writes: numbers of all semaphores of a set, or its state.
fn semctl_bytes(how: c_int) -> usize {
    const GETALL: c_int = 13;
    const SETALL: c_int = 17;
    match how {
        GETALL | SETALL => 64 << 10,
        libc::IPC_STAT | libc::IPC_SET => size_of::<libc::semid_ds>(),
        _ => 0,
    }
}

/// Bytes that ptrace(2) reads or writes at its last argument.
fn ptrace_bytes(what: c_uint) -> usize {
    const GETEVENTMSG: c_uint = 0x4201;
    const GETREGSET: c_uint = 0x4204;
    const SETREGSET: c_uint = 0x4205;
    match what {
        // Registers, of the general kind or of floating point.
        12..=15 => 512,
        GETEVENTMSG => size_of::<c_ulong>(),
        libc::PTRACE_GETSIGINFO | libc::PTRACE_SETSIGINFO => size_of::<libc::siginfo_t>(),
        GETREGSET | SETREGSET => size_of::<iovec>(),
        _ => 0,
    }
}

/// The buffer that the last argument of ptrace(2) names.
///
/// # Safety
/// As of ptrace(2).
unsafe fn ptrace_buffer(what: c_uint, with: *mut c_void) -> iovec {
    match ptrace_bytes(what) == size_of::<iovec>() && is_readable(with, size_of::<iovec>()) {
        // SAFETY: it is there.
        true => unsafe { with.cast::<iovec>().read() },
        false => iovec {
            iov_base: core::ptr::null_mut(),
            iov_len: 0,
        },
    }
}

/// Bytes that quotactl(2) reads or writes, if it is not told a path.
const QUOTA: usize = 72;
/// Its operation that is.
const QUOTA_ON: c_uint = 0x80_0002;

/// The path that quotactl(2) is told, and bytes that it reads or writes.
fn quota(what: c_uint, with: *mut c_void) -> (*const c_char, usize) {
    match what >> 8 {
        QUOTA_ON => (with.cast_const().cast(), 0),
        _ => (core::ptr::null(), QUOTA),
    }
}

/// Bytes that arch_prctl(2) writes.
fn arch_bytes(what: c_int) -> usize {
    /// Those that ask for a register's base, or for features.
    const ASKS: [c_int; 4] = [0x1003, 0x1004, 0x1021, 0x1022];
    if ASKS.contains(&what) {
        size_of::<c_ulong>()
    } else {
        0
    }
}

/// The text, and the bytes, that fsconfig(2) reads as a value.
fn fsconfig_value(what: c_uint, value: *const c_void, more: c_int) -> (*const c_char, usize) {
    match what {
        // A string, and two kinds of a path.
        1 | 3 | 4 => (value.cast(), 0),
        2 => (core::ptr::null(), more.max(0) as usize),
        _ => (core::ptr::null(), 0),
    }
}

reading! {
    /// ptrace(2). In C it has as many arguments as the operation.
    fn ptrace(what: c_uint, process: pid_t, addr: *mut c_void, with: *mut c_void) -> c_long => Bytes(with, ptrace_bytes(what)), Into(with, ptrace_bytes(what)), Into(ptrace_buffer(what, with).iov_base, ptrace_buffer(what, with).iov_len);
    /// quotactl(2).
    fn quotactl(what: c_uint, of: *const c_char, id: c_int, with: *mut c_void) -> c_int => Text(of), Text(quota(what, with).0), Bytes(with, quota(what, with).1), Into(with, quota(what, with).1);
    /// arch_prctl(2).
    fn arch_prctl(what: c_int, addr: *mut c_void) -> c_int => Into(addr, arch_bytes(what));
    /// arch_prctl(2), by its other name.
    fn __arch_prctl(what: c_int, addr: *mut c_void) -> c_int => Into(addr, arch_bytes(what));
    /// modify_ldt(2).
    fn modify_ldt(what: c_int, with: *mut c_void, bytes: c_ulong) -> c_int => Bytes(with, bytes as usize), Into(with, bytes as usize);
    /// init_module(2).
    fn init_module(image: *const c_void, bytes: c_ulong, with: *const c_char) -> c_int => Bytes(image, bytes as usize), Text(with);
    /// delete_module(2).
    fn delete_module(name: *const c_char, flags: c_uint) -> c_int => Text(name);
    /// fsconfig(2).
    fn fsconfig(fd: c_int, what: c_uint, key: *const c_char, value: *const c_void, more: c_int) -> c_int => Text(key), Text(fsconfig_value(what, value, more).0), Bytes(value, fsconfig_value(what, value, more).1);
    /// pidfd_send_signal(2).
    fn pidfd_send_signal(process: c_int, signal: c_int, about: *const libc::siginfo_t, flags: c_uint) -> c_int => Bytes(about.cast(), super::receive::size(about));
    /// mq_notify(3).
    fn mq_notify(queue: c_int, about: *const libc::sigevent) -> c_int => Bytes(about.cast(), super::receive::size(about));
    /// adjtimex(2), by its other name.
    fn __adjtimex(with: *mut libc::timex) -> c_int => Bytes(with.cast(), size_of::<libc::timex>()), Into(with.cast(), size_of::<libc::timex>());
    /// sched_getparam(2), by its other name.
    fn __sched_getparam(process: pid_t, to: *mut sched_param) -> c_int => Into(to.cast(), size_of::<sched_param>());
    /// sched_setscheduler(2), by its other name.
    fn __sched_setscheduler(process: pid_t, policy: c_int, with: *const sched_param) -> c_int => Bytes(with.cast(), size_of::<sched_param>());
    /// gettimeofday(2), by its other name.
    fn __gettimeofday(to: *mut libc::timeval, zone: *mut c_void) -> c_int => Into(to.cast(), size_of::<libc::timeval>()), Into(zone, ZONE);
    /// bind(2).
    fn bind(fd: c_int, to: *const sockaddr, bytes: socklen_t) -> c_int => Bytes(to.cast(), bytes as usize);
    /// connect(2).
    fn connect(fd: c_int, to: *const sockaddr, bytes: socklen_t) -> c_int => Bytes(to.cast(), bytes as usize);
    /// setsockopt(2).
    fn setsockopt(fd: c_int, level: c_int, name: c_int, from: *const c_void, bytes: socklen_t) -> c_int => Bytes(from, bytes as usize);
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
    /// semtimedop(2).
    fn semtimedop(set: c_int, what: *mut sembuf, count: size_t, until: *const timespec) -> c_int => Bytes(what.cast(), count * size_of::<sembuf>()), Bytes(until.cast(), size_of::<timespec>());
    /// semctl(2). In C its last argument may be missing: then it is not looked at.
    fn semctl(set: c_int, number: c_int, how: c_int, with: *mut c_void) -> c_int => Bytes(with, semctl_bytes(how)), Into(with, semctl_bytes(how));
    /// shmctl(2).
    fn shmctl(of: c_int, how: c_int, with: *mut libc::shmid_ds) -> c_int => Bytes(with.cast(), size_of::<libc::shmid_ds>()), Into(with.cast(), size_of::<libc::shmid_ds>());
    /// msgctl(2).
    fn msgctl(of: c_int, how: c_int, with: *mut libc::msqid_ds) -> c_int => Bytes(with.cast(), size_of::<libc::msqid_ds>()), Into(with.cast(), size_of::<libc::msqid_ds>());
    /// fcntl(2). In C its last argument may be missing, or a number: then it is not looked at.
    fn fcntl(fd: c_int, how: c_int, with: *mut c_void) -> c_int => Bytes(with, fcntl_bytes(how)), Into(with, fcntl_bytes(how));
    /// fcntl(2), by its other name.
    fn fcntl64(fd: c_int, how: c_int, with: *mut c_void) -> c_int => Bytes(with, fcntl_bytes(how)), Into(with, fcntl_bytes(how));
    /// prctl(2). In C it has as many arguments as the operation.
    fn prctl(what: c_int, a: *mut c_void, b: c_ulong, c: c_ulong, d: *const c_void) -> c_int => Bytes(a, prctl_bytes(what)), Into(a, prctl_bytes(what)), Bytes(d, vma_name_bytes(what));
    /// signalfd(2).
    fn signalfd(fd: c_int, set: *const sigset_t, flags: c_int) -> c_int => Bytes(set.cast(), size_of::<sigset_t>());
    /// process_madvise(2): its range is another process's.
    fn process_madvise(process: c_int, of: *const iovec, count: size_t, advice: c_int, flags: c_uint) -> ssize_t => Bytes(of.cast(), count * size_of::<iovec>());
    /// mq_getattr(3).
    fn mq_getattr(queue: c_int, to: *mut libc::mq_attr) -> c_int => Into(to.cast(), size_of::<libc::mq_attr>());
    /// mq_setattr(3).
    fn mq_setattr(queue: c_int, to: *const libc::mq_attr, before: *mut libc::mq_attr) -> c_int => Bytes(to.cast(), size_of::<libc::mq_attr>()), Into(before.cast(), size_of::<libc::mq_attr>());
    /// sched_setparam(2).
    fn sched_setparam(process: pid_t, to: *const sched_param) -> c_int => Bytes(to.cast(), size_of::<sched_param>());
    /// sched_setscheduler(2).
    fn sched_setscheduler(process: pid_t, policy: c_int, with: *const sched_param) -> c_int => Bytes(with.cast(), size_of::<sched_param>());
    /// setdomainname(2).
    fn setdomainname(name: *const c_char, bytes: size_t) -> c_int => Bytes(name.cast(), bytes);
    /// settimeofday(2).
    fn settimeofday(to: *const libc::timeval, zone: *const c_void) -> c_int => Bytes(to.cast(), size_of::<libc::timeval>()), Bytes(zone, ZONE);
    /// gettimeofday(2): some clocks are the kernel's to read.
    fn gettimeofday(to: *mut libc::timeval, zone: *mut c_void) -> c_int => Into(to.cast(), size_of::<libc::timeval>()), Into(zone, ZONE);
    /// clock_settime(2).
    fn clock_settime(clock: clockid_t, to: *const timespec) -> c_int => Bytes(to.cast(), size_of::<timespec>());
    /// clock_adjtime(2).
    fn clock_adjtime(clock: clockid_t, with: *mut libc::timex) -> c_int => Bytes(with.cast(), size_of::<libc::timex>()), Into(with.cast(), size_of::<libc::timex>());
    /// adjtimex(2).
    fn adjtimex(with: *mut libc::timex) -> c_int => Bytes(with.cast(), size_of::<libc::timex>()), Into(with.cast(), size_of::<libc::timex>());
    /// adjtimex(2), by its other name.
    fn ntp_adjtime(with: *mut libc::timex) -> c_int => Bytes(with.cast(), size_of::<libc::timex>()), Into(with.cast(), size_of::<libc::timex>());
    /// klogctl(3).
    fn klogctl(what: c_int, to: *mut c_char, bytes: c_int) -> c_int => Into(to.cast(), bytes.max(0) as usize);
    /// capget(2).
    fn capget(head: *mut c_void, to: *mut c_void) -> c_int => Bytes(head, CAP_HEAD), Into(head, CAP_HEAD), Into(to, CAP_DATA);
    /// sched_setaffinity(2).
    fn sched_setaffinity(process: pid_t, bytes: size_t, set: *const cpu_set_t) -> c_int => Bytes(set.cast(), bytes);
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
