//! Changes that the program may make to numbers, each time in a process of its own.

use super::identity::identity_of;
use super::in_child::{self, check, forked};
use super::{Guarded, Working, filter, sent};
use core::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

fn memfd() -> [usize; 6] {
    [c"table".as_ptr() as usize, 1, 0, 0, 0, 0]
}

fn guarded() -> Guarded {
    // SAFETY: makes a descriptor.
    unsafe { Guarded::open(libc::SYS_memfd_create, memfd()) }.unwrap()
}

fn working() -> Working {
    // SAFETY: makes a descriptor.
    unsafe { Working::open(libc::SYS_memfd_create, memfd()) }.unwrap()
}

fn write(of: &Working, byte: u8) -> Result<usize, i32> {
    let bytes = [byte; 8];
    // SAFETY: bytes to be written, at 0.
    unsafe { of.call_checked(libc::SYS_pwrite64, [bytes.as_ptr() as usize, 8, 0, 0, 0]) }
}

fn read(of: &Working) -> Result<u8, i32> {
    let mut byte = 0_u8;
    let args = [core::ptr::from_mut(&mut byte) as usize, 1, 0, 0, 0];
    // SAFETY: room for a byte.
    unsafe { of.call_checked(libc::SYS_pread64, args) }.map(|_| byte)
}

/// A read of bytes that have to be its own.
fn proven(of: &Working) -> Result<u8, i32> {
    let mut byte = 0_u8;
    let args = [(&raw mut byte) as usize, 1, 0, 0, 0];
    // SAFETY: fills the byte.
    unsafe { of.call_checked_twice(libc::SYS_pread64, args) }.map(|_| byte)
}

fn close_all() {
    // SAFETY: a call that a program may make.
    unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
}

fn open_now() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn guarded_descriptors_outlive_every_close() {
    forked(|| {
        let guarded = guarded();
        let working = working();
        check!(working.is_guarded() && write(&working, 7) == Ok(8));
        for _ in 0..3 {
            close_all();
            check!(read(&working) == Ok(7));
        }
        close_all();
        check!(guarded.borrow_number().is_ok());
        // It keeps the number that it gets.
        check!(read(&working) == Ok(7));
        let before = open_now();
        check!((0..100).all(|_| read(&working) == Ok(7)));
        check!(open_now() == before);
        0
    });
}

#[test]
fn the_server_sends_a_file_and_leaves_nothing_open() {
    forked(|| {
        let guarded = guarded();
        let identity = guarded.identity().expect("a file");
        let before = open_now();
        let sent = guarded.sent_number_of(identity).expect("a number");
        check!(identity_of(sent) == Ok(identity) && open_now() == before + 1);
        // The same open file, and not the same file opened anew.
        let at = [sent as usize, 5, libc::SEEK_SET as usize, 0, 0, 0];
        // SAFETY: moves a position.
        check!(unsafe { crate::table::call(libc::SYS_lseek, &at) } == Ok(5));
        let ask = [0, libc::SEEK_CUR as usize, 0, 0, 0];
        // SAFETY: asks for it.
        check!(unsafe { guarded.call(libc::SYS_lseek, ask) } == Ok(5));
        // A number of another file than that is not ours: it stays.
        check!(guarded.sent_number_of(super::Identity::NONE).is_err());
        check!(open_now() == before + 2);
        0
    });
}

/// A file on which this process has a POSIX lock.
static LOCKED: AtomicI32 = AtomicI32::new(-1);

/// Sends it to a socket of this name, so many times at most.
fn send_locked(to: &sent::Name, times: u32) {
    #[repr(C)]
    struct File(libc::cmsghdr, i32);
    // SAFETY: zeros are valid ones.
    let (mut file, mut message) = unsafe {
        let head: libc::cmsghdr = core::mem::zeroed();
        let message: libc::msghdr = core::mem::zeroed();
        (File(head, LOCKED.load(Relaxed)), message)
    };
    file.0.cmsg_len = 20;
    (file.0.cmsg_level, file.0.cmsg_type) = (libc::SOL_SOCKET, libc::SCM_RIGHTS);
    // Of another type in musl.
    (message.msg_control, message.msg_controllen) =
        ((&raw mut file).cast(), size_of::<File>() as _);
    message.msg_name = core::ptr::from_ref(&to.0).cast_mut().cast();
    message.msg_namelen = to.1;
    // SAFETY: the message and all that it names is here.
    unsafe {
        let socket = libc::socket(libc::AF_UNIX, libc::SOCK_DGRAM, 0);
        let send = |_: &u32| libc::sendmsg(socket, &message, libc::MSG_DONTWAIT) >= 0;
        (0..times).take_while(send).count();
        libc::close(socket);
    }
}

/// Failed before: the file was closed, and the lock was lost; and a full queue left no room for the server's file.
#[test]
fn nobody_but_the_server_sends_a_file() {
    forked(|| {
        let guarded = guarded();
        let identity = guarded.identity().expect("a file");
        // SAFETY: makes a file, opens it once more, and locks it.
        let probe = unsafe {
            let locked = libc::memfd_create(c"locked".as_ptr(), 0);
            LOCKED.store(locked, Relaxed);
            let mut lock: libc::flock = core::mem::zeroed();
            lock.l_type = libc::F_WRLCK as i16;
            check!(libc::fcntl(locked, libc::F_SETLK, &raw const lock) == 0);
            std::fs::File::open(format!("/proc/self/fd/{locked}")).expect("opened")
        };
        let before = open_now();
        let others: [fn(&sent::Name); 2] = [|to| send_locked(to, 1), |to| send_locked(to, 10_000)];
        for other in others {
            sent::BEFORE.set(other);
            let fd = guarded.sent_number_of(identity);
            check!(fd.is_ok_and(|fd| identity_of(fd) == Ok(identity)));
        }
        check!(open_now() == before + 2);
        // SAFETY: fills the structure.
        let holder = unsafe {
            let mut lock: libc::flock = core::mem::zeroed();
            lock.l_type = libc::F_WRLCK as i16;
            check!(libc::fcntl(probe.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) == 0);
            lock.l_type
        };
        check!(holder == libc::F_WRLCK as i16);
        0
    });
}

/// The heap may be memory whose faults are served here: it is used while SIGBUS can come, as an assertion in `take_credentials` has it.
#[test]
fn the_heap_is_not_used_while_signals_are_blocked() {
    let guarded = guarded();
    let identity = guarded.identity().expect("a file");
    let sent = guarded.sent_number_of(identity).expect("a number");
    super::close_if(sent, identity);
}

/// A filter of the program's may end a server.
#[test]
fn a_server_that_has_ended_is_asked_for_nothing() {
    forked(|| {
        let guarded = guarded();
        super::want_several();
        check!(guarded.borrow_number().is_ok());
        for _ in 1..super::server::SERVERS {
            // SAFETY: the thread ends and answers no more.
            check!(unsafe { guarded.run(libc::SYS_exit, [0; 6]) } == Err(libc::ESRCH));
            check!(guarded.identity().is_ok());
            check!(guarded.borrow_number().is_ok());
        }
        // SAFETY: as above.
        check!(unsafe { guarded.run(libc::SYS_exit, [0; 6]) } == Err(libc::ESRCH));
        check!(guarded.identity() == Err(libc::ESRCH));
        0
    });
}

/// Failed before: a caller that waited for a server which ended meanwhile asked no other.
#[test]
fn a_caller_that_waits_for_a_server_that_ends_asks_another() {
    forked(|| {
        let guarded = guarded();
        super::want_several();
        for _ in 2..super::server::SERVERS {
            // SAFETY: the thread ends and answers no more.
            check!(unsafe { guarded.run(libc::SYS_exit, [0; 6]) } == Err(libc::ESRCH));
        }
        let [ends, lives] = [(); 2].map(|()| std::io::pipe().expect("a pipe"));
        let [to_end, to_live] = [&ends, &lives].map(|(end, _)| Guarded::adopt(end.as_fd()));
        let (to_end, to_live) = (to_end.expect("adopted"), to_live.expect("adopted"));
        let (one, other, asked) = (AtomicI32::new(0), AtomicI32::new(0), AtomicI32::new(0));
        let note = |id: &AtomicI32| {
            // SAFETY: only asks.
            id.store(unsafe { libc::gettid() }, Relaxed);
        };
        let mut byte = [0_u8; 2];
        let [first, second] = byte
            .each_mut()
            .map(|byte| core::ptr::from_mut(byte) as usize);
        let answer = std::thread::scope(|scope| {
            let ended = scope.spawn(|| {
                note(&one);
                let calls = [
                    (libc::SYS_read, [first, 1, 0, 0, 0]),
                    (libc::SYS_exit, [0; 5]),
                ];
                // SAFETY: room for a byte; the thread ends and answers no more.
                unsafe { to_end.call_each(calls) }
            });
            until_it_sleeps(&one);
            let lived = scope.spawn(|| {
                note(&other);
                // SAFETY: room for a byte.
                unsafe { to_live.call(libc::SYS_read, [second, 1, 0, 0, 0]) }
            });
            until_it_sleeps(&other);
            // All are busy: the one to wait for is the first.
            let waits = scope.spawn(|| {
                note(&asked);
                guarded.identity()
            });
            until_it_sleeps(&asked);
            (&ends.1).write_all(&[1]).expect("written");
            let ended = ended.join().expect("no panic");
            (&lives.1).write_all(&[1]).expect("written");
            let lived = lived.join().expect("no panic");
            (ended, lived, waits.join().expect("no panic"))
        });
        check!(answer.0 == [Err(libc::ESRCH); 2]);
        check!(answer.1 == Ok(1));
        check!(answer.2.is_ok());
        0
    });
}

/// Waits until a thread that has told its number sleeps.
fn until_it_sleeps(id: &AtomicI32) {
    loop {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{}/stat", id.load(Relaxed)));
        if stat.is_ok_and(|stat| stat.contains(") S ")) {
            return;
        }
        std::thread::yield_now();
    }
}

/// How often a server of this process has slept.
fn sleeps() -> u64 {
    let mut tasks = std::fs::read_dir("/proc/self/task").expect("tasks");
    let status = tasks.find_map(|task| {
        let status = std::fs::read_to_string(task.ok()?.path().join("status")).ok()?;
        status.starts_with("Name:\tsoftfault\n").then_some(status)
    });
    let status = status.expect("a server");
    let line = |line: &str| {
        line.strip_prefix("voluntary_ctxt_switches:\t")?
            .parse()
            .ok()
    };
    status.lines().find_map(line).expect("a number")
}

/// Failed before: a server that was at work when a filter began to refuse futex(2) looked for the next request without a pause, for ever.
#[test]
fn a_server_that_may_not_wait_sleeps() {
    forked(|| {
        let mut pair = [0; 2];
        // SAFETY: makes two sockets.
        let made =
            unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM, 0, pair.as_mut_ptr()) };
        check!(made == 0);
        let [ours, servers] = pair;
        // SAFETY: open.
        let guarded = Guarded::adopt(unsafe { BorrowedFd::borrow_raw(servers) });
        let guarded: &'static Guarded = Box::leak(Box::new(guarded.expect("a number")));
        std::thread::spawn(|| {
            let mut byte = 0_u8;
            let args = [core::ptr::from_mut(&mut byte) as usize, 1, 0, 0, 0];
            // SAFETY: room for a byte.
            unsafe { guarded.call_each([(libc::SYS_write, args), (libc::SYS_read, args)]) }
        });
        let mut byte = 0_u8;
        // SAFETY: room for a byte.
        check!(unsafe { libc::read(ours, (&raw mut byte).cast(), 1) } == 1);
        // The server is at work, and has this request to end.
        filter::deny(&[libc::SYS_futex], libc::EPERM);
        // SAFETY: a byte that is there.
        check!(unsafe { libc::write(ours, (&raw const byte).cast(), 1) } == 1);
        let done = sleeps();
        // The first may be in the read; the others are of a server that has nothing to do.
        while sleeps() < done + 5 {
            // SAFETY: only waits.
            unsafe { libc::usleep(1000) };
        }
        0
    });
}

#[test]
fn another_file_at_the_number_is_not_touched() {
    forked(|| {
        let working = working();
        check!(write(&working, 7) == Ok(8));
        for _ in 0..3 {
            let Some(number) = working.number() else {
                return 1;
            };
            // SAFETY: makes a file, and puts it over ours.
            let other = unsafe {
                let other = libc::memfd_create(c"other".as_ptr(), 0);
                libc::dup2(other, number);
                OwnedFd::from_raw_fd(other)
            };
            check!(proven(&working) == Ok(7));
            check!(write(&working, 8) == Ok(8) && read(&working) == Ok(8));
            check!(write(&working, 7) == Ok(8));
            // SAFETY: only asks.
            let bytes = unsafe { libc::lseek(other.as_raw_fd(), 0, libc::SEEK_END) };
            check!(bytes == 0);
            // Dropping ours leaves the program's number alone.
            drop(other);
            check!(identity_of(number).is_ok());
        }
        let taken = working.number();
        drop(working);
        check!(taken.is_some_and(|fd| identity_of(fd).is_err()));
        0
    });
}

#[test]
fn without_a_number_left_the_table_serves() {
    forked(|| {
        let working = working();
        check!(write(&working, 7) == Ok(8));
        close_all();
        let none = libc::rlimit {
            rlim_cur: 3,
            rlim_max: 3,
        };
        // SAFETY: the limit of a child that ends.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &none) };
        check!(working.number().is_none());
        check!(read(&working) == Ok(7) && write(&working, 9) == Ok(8));
        check!(read(&working) == Ok(9) && proven(&working) == Ok(9));
        0
    });
}

#[test]
fn a_child_has_nothing_of_its_parents() {
    forked(|| {
        let working = working();
        let guarded = guarded();
        check!(write(&working, 7) == Ok(8));
        let number = working.number();
        forked(|| {
            super::fork_child();
            working.close();
            check!(number.is_some_and(|fd| identity_of(fd).is_err()));
            check!(read(&working) == Err(libc::EBADF));
            check!(guarded.borrow_number().is_err());
            // Its own table, in which numbers begin anew.
            let own = self::working();
            check!(write(&own, 1) == Ok(8));
            // SAFETY: not used again in this process.
            unsafe {
                drop(core::ptr::read(&guarded));
                drop(core::ptr::read(&working));
            }
            close_all();
            check!(read(&own) == Ok(1));
            0
        });
        check!(read(&working) == Ok(7));
        0
    });
}

#[test]
fn a_child_without_handlers_takes_numbers_from_its_own_table() {
    forked(|| {
        // The parent's table is full of other files at the numbers that the child's gets.
        let parents: Vec<_> = (0..8).map(|_| guarded()).collect();
        check!(
            parents
                .iter()
                .all(|guarded| guarded.borrow_number().is_ok())
        );
        forked(|| {
            for _ in 0..4 {
                let own = guarded();
                let identity = own.identity();
                check!(own.borrow_number().and_then(identity_of) == identity);
                core::mem::forget(own);
            }
            0
        });
        0
    });
}

#[test]
fn several_servers_serve_at_a_time() {
    forked(|| {
        let guarded = guarded();
        super::want_several();
        static IDS: [AtomicI32; 3] = [const { AtomicI32::new(0) }; 3];
        let blocked: Vec<_> = (IDS.iter())
            .map(|id| {
                std::thread::spawn(move || {
                    // SAFETY: sleeps: a pipe that nobody writes to, in the table.
                    let pipe = unsafe { Guarded::open(libc::SYS_eventfd2, [0; 6]) }.unwrap();
                    // SAFETY: only asks.
                    id.store(unsafe { libc::gettid() }, Relaxed);
                    let mut word = 0_u64;
                    let args = [core::ptr::from_mut(&mut word) as usize, 8, 0, 0, 0];
                    // SAFETY: room for eight bytes.
                    let _ = unsafe { pipe.call(libc::SYS_read, args) };
                })
            })
            .collect();
        IDS.iter().for_each(until_it_sleeps);
        check!((0..1000).all(|_| guarded.identity().is_ok()));
        check!(blocked.iter().all(|thread| !thread.is_finished()));
        0
    });
}

/// Failed before: a thread that found all servers busy waited for one of them, also for one whose call hangs.
#[test]
fn a_call_that_hangs_holds_up_no_call_but_itself() {
    const CALLERS: usize = 2 * super::server::SERVERS;
    forked(|| {
        // SAFETY: ends this child if it hangs.
        unsafe { libc::alarm(100) };
        let guarded = guarded();
        super::want_several();
        let pipes = [(); super::server::SERVERS].map(|()| std::io::pipe().expect("a pipe"));
        let adopted = pipes
            .each_ref()
            .map(|(end, _)| Guarded::adopt(end.as_fd()).expect("adopted"));
        let [busy, asked] = [super::server::SERVERS, CALLERS]
            .map(|count| (0..count).map(|_| AtomicI32::new(0)).collect::<Vec<_>>());
        let note = |id: &AtomicI32| {
            // SAFETY: only asks.
            id.store(unsafe { libc::gettid() }, Relaxed);
        };
        std::thread::scope(|scope| {
            for (pipe, id) in adopted.iter().zip(&busy) {
                scope.spawn(move || {
                    note(id);
                    let mut byte = 0_u8;
                    let args = [core::ptr::from_mut(&mut byte) as usize, 1, 0, 0, 0];
                    // SAFETY: room for a byte.
                    unsafe { pipe.call(libc::SYS_read, args) }.expect("read");
                });
                until_it_sleeps(id);
            }
            let callers: Vec<_> = (asked.iter())
                .map(|id| {
                    let guarded = &guarded;
                    scope.spawn(move || {
                        note(id);
                        guarded.identity().is_ok()
                    })
                })
                .collect();
            asked.iter().for_each(until_it_sleeps);
            let mut ends = pipes.iter().map(|(_, end)| end);
            let mut one = ends.next_back().expect("the last");
            one.write_all(&[1]).expect("written");
            check!(
                callers
                    .into_iter()
                    .all(|caller| caller.join().expect("no panic"))
            );
            ends.for_each(|mut end| end.write_all(&[1]).expect("written"));
            0
        })
    });
}

#[test]
fn a_thread_with_its_own_table_has_its_own_number() {
    forked(|| {
        let working = working();
        check!(write(&working, 7) == Ok(8));
        let fine = std::thread::scope(|scope| {
            let there = scope.spawn(|| {
                // SAFETY: this thread's table is its own from here on.
                unsafe { libc::unshare(libc::CLONE_FILES) };
                close_all();
                let taken = read(&working);
                let open = open_here();
                let again = (0..100).all(|_| read(&working) == Ok(7));
                taken == Ok(7) && again && open == open_here()
            });
            there.join().unwrap()
        });
        check!(fine);
        let before = open_now();
        check!((0..100).all(|_| read(&working) == Ok(7)));
        check!(open_now() == before);
        0
    });
}

fn open_here() -> usize {
    std::fs::read_dir("/proc/thread-self/fd").unwrap().count()
}

/// Failed before: the number of each descriptor that could not be looked at stayed open.
#[test]
fn a_descriptor_that_cannot_be_looked_at_is_closed() {
    forked(|| {
        let before = open_now();
        // SAFETY: makes a descriptor.
        let make = || unsafe { Working::open(libc::SYS_memfd_create, memfd()) };
        check!(make().is_ok());
        filter::deny(&[libc::SYS_fstat], libc::EPERM);
        let others = open_now();
        check!((0..10).all(|_| make().is_err()));
        check!(open_now() == others && others <= before + 2);
        0
    });
}

/// Failed before: each start that the kernel refused left a stack behind.
#[test]
fn a_server_that_cannot_be_started_leaves_nothing() {
    // In a process without engines: children of one with engines of other tests start threads and maps of their own, also the table.
    const ALONE: &str = "SOFTFAULT_TEST_NO_SERVER";
    if std::env::var_os(ALONE).is_none() {
        let name = "table::tests::a_server_that_cannot_be_started_leaves_nothing";
        in_child::run_alone(name, ALONE, "");
        return;
    }
    let mapped = || {
        let numbers = std::fs::read_to_string("/proc/self/statm").unwrap();
        numbers.split(' ').next().unwrap().parse::<usize>().unwrap()
    };
    for errno in [libc::EAGAIN, libc::EPERM] {
        forked(|| {
            check!(super::refused().is_none());
            // In the child's own child there is none yet.
            forked(|| {
                filter::deny(&[libc::SYS_clone], errno);
                check!(super::refused() == Some(errno));
                let before = mapped();
                (0..100).for_each(|_| assert_eq!(super::refused(), Some(errno)));
                check!(mapped() == before);
                0
            });
            filter::deny(&[libc::SYS_clone], errno);
            let before = mapped();
            (0..100).for_each(|_| super::want_several());
            check!(mapped() == before);
            0
        });
    }
}
