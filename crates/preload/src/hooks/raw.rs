//! syscall(2): system calls by their numbers. Those that read memory are made again where faults are signals
//! (`again.rs`), those that fork are forks, and those that change mappings are seen as by their names.

use super::again::{Reads, again};
use super::many::many_messages;
use super::memory::spliced;
use super::next::hooks;
use super::polled::polled;
use super::random::random_into;
use super::readable::is_readable;
use super::receive::{bytes_from, message_into, vectors_into};
use super::writes::{Destination, with_bytes, with_message, with_two_vectors, with_vectors};
use super::{asked, direct, limits, mapping, moving, rights, signals, uffd};
use crate::{fork, inside, marked, mode};
use libc::{c_char, c_int, c_long, c_void};

/// A call's arguments.
type Arguments = [c_long; 6];

const NOTHING: Reads = Reads::Bytes(core::ptr::null(), 0);

fn bytes(start: c_long, len: c_long) -> Reads {
    Reads::Bytes(start as *const c_void, len as usize)
}

fn into(start: c_long, len: usize) -> Reads {
    Reads::Into(start as *mut c_void, len)
}

/// A structure that a call writes.
fn object_into<T>(start: c_long) -> Reads {
    into(start, size_of::<T>())
}

/// So many structures of a kind that a call reads; of nothing none.
fn objects<T>(start: c_long, count: usize) -> Reads {
    let bytes = if start == 0 {
        0
    } else {
        count * size_of::<T>()
    };
    Reads::Bytes(start as *const c_void, bytes)
}

fn text(start: c_long) -> Reads {
    Reads::Text(start as *const c_char)
}

fn texts(start: c_long) -> Reads {
    Reads::Texts(start as *const *const c_char)
}

/// The events of epoll_wait(2), at most so many.
fn events_into(start: c_long, most: c_long) -> Reads {
    let most = usize::try_from(most as c_int).unwrap_or(0);
    into(start, most.saturating_mul(size_of::<libc::epoll_event>()))
}

/// The memory that a call reads which fails with EFAULT.
#[cold]
fn reads_of(number: c_long, [a, b, c, d, e, _]: Arguments) -> [Reads; 3] {
    let by_path = by_path(number, [a, b, c, d, e, 0]);
    if let Some(reads) = by_path {
        return reads;
    }
    let one = |reads| [reads, NOTHING, NOTHING];
    match number {
        libc::SYS_sendmmsg => one(Reads::Messages(b as *const libc::mmsghdr, c as usize)),
        libc::SYS_bind | libc::SYS_connect => one(bytes(b, c)),
        libc::SYS_setsockopt => one(bytes(d, e)),
        libc::SYS_execve => [text(a), texts(b), texts(c)],
        libc::SYS_execveat => [text(b), texts(c), texts(d)],
        libc::SYS_epoll_ctl => one(bytes(d, size_of::<libc::epoll_event>() as c_long)),
        libc::SYS_sched_setaffinity => one(bytes(c, b)),
        libc::SYS_mq_timedsend => [bytes(b, c), objects::<libc::timespec>(e, 1), NOTHING],
        libc::SYS_msgsnd => one(bytes(b, c + 8)),
        libc::SYS_memfd_create => one(text(a)),
        libc::SYS_futex => one(bytes(a, 4)),
        libc::SYS_fstat => one(object_into::<libc::stat>(b)),
        libc::SYS_fstatfs => one(object_into::<libc::statfs>(b)),
        libc::SYS_getdents64 => one(into(b, c as usize)),
        libc::SYS_getcwd => one(into(a, b as usize)),
        libc::SYS_clock_gettime => one(object_into::<libc::timespec>(b)),
        libc::SYS_sched_getaffinity => one(into(c, b as usize)),
        libc::SYS_epoll_pwait => one(events_into(b, c)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_epoll_wait => one(events_into(b, c)),
        _ => one(NOTHING),
    }
}

/// The same of calls with paths.
fn by_path(number: c_long, [a, b, c, d, e, _]: Arguments) -> Option<[Reads; 3]> {
    let one = |reads| Some([reads, NOTHING, NOTHING]);
    match number {
        libc::SYS_newfstatat => Some([text(b), object_into::<libc::stat>(c), NOTHING]),
        libc::SYS_statx => Some([text(b), object_into::<libc::statx>(e), NOTHING]),
        libc::SYS_readlinkat => Some([text(b), into(c, d as usize), NOTHING]),
        libc::SYS_openat
        | libc::SYS_faccessat
        | libc::SYS_faccessat2
        | libc::SYS_unlinkat
        | libc::SYS_mkdirat
        | libc::SYS_mknodat
        | libc::SYS_fchmodat
        | libc::SYS_fchownat
        | libc::SYS_inotify_add_watch => one(text(b)),
        libc::SYS_utimensat => Some([text(b), objects::<libc::timespec>(c, 2), NOTHING]),
        libc::SYS_openat2 => Some([text(b), bytes(c, d), NOTHING]),
        libc::SYS_renameat | libc::SYS_renameat2 | libc::SYS_linkat => {
            Some([text(b), text(d), NOTHING])
        }
        libc::SYS_symlinkat => Some([text(a), text(c), NOTHING]),
        libc::SYS_truncate | libc::SYS_chdir | libc::SYS_chroot => one(text(a)),
        libc::SYS_statfs => Some([text(a), object_into::<libc::statfs>(b), NOTHING]),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_stat | libc::SYS_lstat => Some([text(a), object_into::<libc::stat>(b), NOTHING]),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_readlink => Some([text(a), into(b, c as usize), NOTHING]),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_open
        | libc::SYS_creat
        | libc::SYS_access
        | libc::SYS_unlink
        | libc::SYS_mkdir
        | libc::SYS_rmdir
        | libc::SYS_chmod
        | libc::SYS_chown
        | libc::SYS_lchown => one(text(a)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_rename | libc::SYS_link | libc::SYS_symlink => Some([text(a), text(b), NOTHING]),
        _ => None,
    }
}

/// A call that changes mappings, or may do so, by the hook of its name.
///
/// # Safety
/// As of the call.
unsafe fn on_mappings(number: c_long, [a, b, c, d, e, f]: Arguments) -> Option<c_long> {
    let (addr, bytes) = (a as *mut c_void, b as usize);
    // SAFETY: the caller's promise.
    Some(unsafe {
        match number {
            libc::SYS_mmap => {
                mapping::mmap(addr, bytes, c as c_int, d as c_int, e as c_int, f) as c_long
            }
            libc::SYS_munmap => mapping::munmap(addr, bytes).into(),
            libc::SYS_mremap => {
                moving::mremap(addr, bytes, c as usize, d as c_int, e as *mut c_void) as c_long
            }
            libc::SYS_mprotect => mapping::mprotect(addr, bytes, c as c_int).into(),
            libc::SYS_pkey_mprotect => {
                mapping::pkey_mprotect(addr, bytes, c as c_int, d as c_int).into()
            }
            libc::SYS_madvise => mapping::madvise(addr, bytes, c as c_int).into(),
            libc::SYS_mlock => mapping::mlock(addr, bytes).into(),
            mapping::SYS_MSEAL => mapping::sealed(addr, bytes, c as usize).into(),
            libc::SYS_ioctl => uffd::ioctl(a as c_int, b as libc::c_ulong, c as *mut c_void).into(),
            libc::SYS_mlock2 => mapping::mlock2(addr, bytes, c as c_int).into(),
            libc::SYS_remap_file_pages => {
                let (page, flags) = (d as usize, e as c_int);
                mapping::remap_file_pages(addr, bytes, c as c_int, page, flags).into()
            }
            libc::SYS_msync => asked::msync(addr, bytes, c as c_int).into(),
            libc::SYS_munlock => asked::munlock(addr, bytes).into(),
            libc::SYS_mincore => asked::mincore(addr, bytes, c as *mut libc::c_uchar).into(),
            libc::SYS_shmat => moving::shmat(a as c_int, b as *const c_void, c as c_int) as c_long,
            _ => return None,
        }
    })
}

/// True if a call makes a child with memory and descriptors of its own, that goes on where its parent does.
fn is_fork(number: c_long, [a, b, ..]: Arguments) -> bool {
    match number {
        #[cfg(target_arch = "x86_64")]
        libc::SYS_fork => true,
        libc::SYS_clone => b == 0 && super::process::is_fork(a as c_int),
        // SAFETY: the structure is there: the flags are in front, the stack is its sixth word.
        libc::SYS_clone3 if b >= 64 && is_readable(a as *const c_void, 64) => unsafe {
            let about = a as *const u64;
            *about.add(5) == 0 && super::process::is_fork(*about as c_int)
        },
        _ => false,
    }
}

hooks! {
    /// syscall(2). In C it has as many arguments as the call: the others are not looked at.
    fn syscall(number: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long) -> c_long = |next| {
        if inside::is_inside() {
            return next(number, a, b, c, d, e, f);
        }
        if let Some(answer) = on_mappings(number, [a, b, c, d, e, f]) {
            return answer;
        }
        let start = b as *const c_void;
        match number {
            libc::SYS_write => with_bytes(Destination::of(a as c_int), (start, c as usize), &[], |_, from, len| {
                next(number, a, from as c_long, len as c_long, d, e, f) as isize
            }) as c_long,
            libc::SYS_pwrite64 => with_bytes(Destination::of(a as c_int), (start, c as usize), &[], |done, from, len| {
                next(number, a, from as c_long, len as c_long, d + done as c_long, e, f) as isize
            }) as c_long,
            libc::SYS_sendto => {
                let to = Destination { fd: a as c_int, flags: d as c_int };
                with_bytes(to, (start, c as usize), &[bytes(e, f as u32 as c_long)], |_, from, len| {
                    next(number, a, from as c_long, len as c_long, d, e, f) as isize
                }) as c_long
            }
            libc::SYS_sendmsg => {
                let to = Destination { fd: a as c_int, flags: c as c_int };
                with_message(to, b as *const libc::msghdr, |message| {
                    next(number, a, message as c_long, c, d, e, f) as isize
                }) as c_long
            }
            libc::SYS_vmsplice => spliced(a as c_int, (b as *const libc::iovec, c as usize), |vectors, count| {
                next(number, a, vectors as c_long, count as c_long, d, e, f) as isize
            }) as c_long,
            libc::SYS_writev => {
                let vectors = (b as *const libc::iovec, c as usize);
                with_vectors(Destination::of(a as c_int), vectors, &[], |_, vectors, count| {
                    next(number, a, vectors as c_long, count as c_long, d, e, f) as isize
                }) as c_long
            }
            libc::SYS_pwritev | libc::SYS_pwritev2 => {
                let vectors = (b as *const libc::iovec, c as usize);
                with_vectors(Destination::of(a as c_int), vectors, &[], |done, vectors, count| {
                    next(number, a, vectors as c_long, count as c_long, direct::behind(d, done), e, f) as isize
                }) as c_long
            }
            libc::SYS_read => direct::bytes_at_position(a as c_int, (b as *mut c_void, c as usize), |to, bytes| {
                next(number, a, to as c_long, bytes as c_long, d, e, f) as isize
            }) as c_long,
            libc::SYS_pread64 => direct::bytes_by(a as c_int, (b as *mut c_void, c as usize), |to, bytes, done| {
                next(number, a, to as c_long, bytes as c_long, d + done as c_long, e, f) as isize
            }) as c_long,
            // -1: where the file is.
            libc::SYS_readv | libc::SYS_preadv2 if number == libc::SYS_readv || d == -1 && f == 0 => {
                let vectors = (b as *const libc::iovec, c_int::try_from(c).unwrap_or(-1));
                direct::vectors_at_position(a as c_int, vectors, |vectors, count| {
                    next(number, a, vectors as c_long, c_long::from(count), d, e, f) as isize
                }) as c_long
            }
            libc::SYS_preadv | libc::SYS_preadv2 => {
                let count = c_int::try_from(c).unwrap_or(-1);
                let vectors = (b as *const libc::iovec, count);
                direct::vectors_by(a as c_int, vectors, |vectors, count, done| {
                    let at = direct::behind(d, done);
                    next(number, a, vectors as c_long, c_long::from(count), at, e, f) as isize
                }) as c_long
            }
            libc::SYS_process_vm_writev => {
                let (from, to) = ((b as *const libc::iovec, c as usize), (d as *const libc::iovec, e as usize));
                with_two_vectors(from, to, |from, count, to, to_count| {
                    next(number, a, from as c_long, count as c_long, to as c_long, to_count as c_long, f) as isize
                }) as c_long
            }
            libc::SYS_process_vm_readv => {
                vectors_into(b as *const libc::iovec, c as usize, |vectors, count| {
                    next(number, a, vectors as c_long, count as c_long, d, e, f) as isize
                }) as c_long
            }
            libc::SYS_recvfrom => bytes_from((b as *mut c_void, c as usize), d as c_int, (e as *mut _, f as *mut _), |to, from, len| {
                next(number, a, to as c_long, c, d, from as c_long, len as c_long) as isize
            }) as c_long,
            libc::SYS_recvmsg => message_into(b as *mut libc::msghdr, c as c_int, |message| {
                next(number, a, message as c_long, c, d, e, f) as isize
            }) as c_long,
            libc::SYS_recvmmsg if mode::is_signals() && marked::is_any() => {
                let messages = (b as *mut libc::mmsghdr, c as libc::c_uint);
                many_messages(messages, d as c_int, e as *mut libc::timespec, |message, flags| {
                    message_into(message, flags, |message| {
                        next(libc::SYS_recvmsg, a, message as c_long, c_long::from(flags), 0, 0, 0) as isize
                    })
                }).into()
            }
            libc::SYS_setrlimit => limits::set(a as libc::c_uint, b as *const libc::rlimit, |to| {
                next(number, a, to as c_long, c, d, e, f) as c_int
            }).into(),
            libc::SYS_prlimit64 => {
                let limit = (b as libc::c_uint, c as *const libc::rlimit);
                limits::exchange(a as c_int, limit, d as *mut libc::rlimit, |to, before| {
                    next(number, a, b, to as c_long, before as c_long, e, f) as c_int
                }).into()
            }
            libc::SYS_ppoll => polled(a as *mut libc::pollfd, b as libc::nfds_t, |all| {
                let mut place = 0;
                let set = signals::without_in_kernel_set(d as *const u64, &mut place) as c_long;
                let until = [bytes(c, size_of::<libc::timespec>() as c_long * c_long::from(c != 0))];
                again(&until, || next(number, all as c_long, b, c, set, e, f) as c_int)
            }).into(),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_poll => polled(a as *mut libc::pollfd, b as libc::nfds_t, |all| {
                next(number, all as c_long, b, c, d, e, f) as c_int
            }).into(),
            libc::SYS_rt_sigprocmask => signals::change_kernel_mask(a as c_int, b as *const u64, c as *mut u64, |set, before| {
                next(number, a, set as c_long, before as c_long, d, e, f) as c_int
            }).into(),
            libc::SYS_getrandom => random_into(a as *mut c_void, b as usize, |to, bytes| {
                next(number, to as c_long, bytes as c_long, c, d, e, f) as isize
            }) as c_long,
            _ if rights::is_change(number) => {
                rights::of_one(next(number, a, b, c, d, e, f) as c_int).into()
            }
            _ if is_fork(number, [a, b, c, d, e, f]) => {
                let forking = fork::before();
                let child = next(number, a, b, c, d, e, f);
                match child {
                    0 => forking.in_child(),
                    _ => forking.in_parent(),
                }
                child
            }
            _ => {
                let answer = next(number, a, b, c, d, e, f);
                if answer != -1 || crate::call::errno() != libc::EFAULT {
                    return answer;
                }
                let mut first = Some(answer);
                let reads = reads_of(number, [a, b, c, d, e, f]);
                again(&reads, || first.take().unwrap_or_else(|| next(number, a, b, c, d, e, f)) as isize) as c_long
            }
        }
    };
}
