//! Other files at our numbers, and no numbers left.

use crate::scene::Scene;
use crate::{alone, close_from, open, ours};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};

fn userfaultfd() -> OwnedFd {
    // SAFETY: makes a descriptor, and says what it is for.
    unsafe {
        let fd = libc::syscall(
            libc::SYS_userfaultfd,
            libc::O_CLOEXEC | libc::O_NONBLOCK | 1,
        );
        assert!(fd >= 0);
        let mut api = [0xAA_u64, 0, 0];
        assert_eq!(libc::ioctl(fd as i32, 0xc018_aa3f, &mut api), 0);
        OwnedFd::from_raw_fd(fd as i32)
    }
}

/// Files that a program has.
fn others() -> Vec<(&'static str, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: make descriptors.
    let (regular, reading, writing, event, process) = unsafe {
        libc::pipe(ends.as_mut_ptr());
        (
            libc::memfd_create(c"regular".as_ptr(), 0),
            ends[0],
            ends[1],
            libc::eventfd(0, 0),
            libc::syscall(libc::SYS_pidfd_open, libc::getppid(), 0) as i32,
        )
    };
    let null = std::fs::File::open("/dev/null").unwrap().into_raw_fd();
    let pagemap = std::fs::File::open(format!(
        "/proc/{}/pagemap",
        std::os::unix::process::parent_id()
    ));
    let mut others = vec![("another userfaultfd", userfaultfd())];
    let numbers = [
        ("a regular file", regular),
        ("a pipe", reading),
        ("a pipe's other end", writing),
        ("/dev/null", null),
        ("an eventfd", event),
        ("another process", process),
    ];
    for (name, fd) in numbers {
        assert!(fd >= 0, "{name}");
        // SAFETY: just made.
        others.push((name, unsafe { OwnedFd::from_raw_fd(fd) }));
    }
    others.extend(pagemap.ok().map(|file| ("another's pagemap", file.into())));
    others
}

#[test]
fn another_file_at_each_of_our_numbers() {
    alone(|| {
        let scene = Scene::new();
        let others = others();
        for (name, other) in &others {
            let before = ours();
            assert!(before.len() >= 2, "{before:?}");
            let is_other = |fd: i32| others.iter().any(|(_, other)| other.as_raw_fd() == fd);
            let taken: Vec<_> = (before.iter().map(|(fd, _)| *fd))
                .filter(|fd| !is_other(*fd))
                .collect();
            for fd in &taken {
                // SAFETY: the numbers are open.
                assert_eq!(unsafe { libc::dup2(other.as_raw_fd(), *fd) }, *fd);
            }
            scene.check(5);
            // The program's files are where it has put them, and have what it wrote.
            for fd in taken {
                let there = std::fs::read_link(format!("/proc/self/fd/{fd}")).unwrap();
                let own = std::fs::read_link(format!("/proc/self/fd/{}", other.as_raw_fd()));
                assert_eq!(there, own.unwrap(), "{name} at {fd}");
                // SAFETY: only asks.
                let bytes = unsafe { libc::lseek(fd, 0, libc::SEEK_END) };
                assert!(bytes <= 0, "{name}: {bytes} bytes");
                // SAFETY: the program's own.
                unsafe { libc::close(fd) };
            }
        }
        drop(scene);
        for (name, other) in others {
            let fd = other.into_raw_fd();
            // SAFETY: the program's own, and still open.
            assert_eq!(unsafe { libc::close(fd) }, 0, "{name}");
        }
    });
}

#[test]
fn windows_are_made_while_another_userfaultfd_is_there() {
    alone(|| {
        let first = Scene::new();
        let other = userfaultfd();
        for (fd, _) in ours() {
            if fd != other.as_raw_fd() {
                // SAFETY: the numbers are open.
                unsafe { libc::dup2(other.as_raw_fd(), fd) };
            }
        }
        let second = Scene::new();
        close_from(3);
        first.check(1);
        second.check(1);
        std::mem::forget(other);
    });
}

fn limit_to(numbers: u64) {
    let limit = libc::rlimit {
        rlim_cur: numbers,
        rlim_max: numbers,
    };
    // SAFETY: a limit of this process.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
}

#[test]
fn no_number_is_left() {
    for limit in [0, 3] {
        alone(|| {
            let scene = Scene::new();
            limit_to(limit);
            scene.check(2);
            close_from(3);
            scene.check(2);
            // A window more, by what is open.
            let more = scene.engine.map_anon(1 << 20).unwrap();
            assert!(more.iter().all(|&byte| byte == 0));
        });
    }
    alone(|| {
        let scene = Scene::new();
        limit_to(open().len() as u64);
        scene.check(2);
        close_from(3);
        scene.check(2);
    });
}

#[test]
fn exec_leaves_none_of_them() {
    let status = crate::child::forked(|| {
        let scene = Scene::new();
        close_from(3);
        scene.check(1);
        // SAFETY: replaces the process.
        unsafe {
            let shell = c"/bin/sh".as_ptr();
            let script =
                c"ls -l /proc/self/fd | grep -c -e userfaultfd -e pidfd -e pagemap -e memfd; \
                           ls /proc/self/task | wc -l | grep -q 1";
            let end = core::ptr::null::<u8>();
            libc::execl(shell, shell, c"-c".as_ptr(), script.as_ptr(), end);
        }
        99
    });
    assert_eq!(status, 0);
}
