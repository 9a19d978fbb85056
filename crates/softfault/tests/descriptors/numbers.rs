//! Other files at our numbers, and no numbers left.

use crate::files;
use crate::scene::{PAGE, Scene};
use crate::{alone, close_from, open, ours};
use softfault::{AsyncReads, Engine, HugeBacking, HugeMemory};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};

fn userfaultfd() -> OwnedFd {
    // SAFETY: makes a descriptor, and names its use.
    unsafe {
        let fd = libc::syscall(
            libc::SYS_userfaultfd,
            libc::O_CLOEXEC | libc::O_NONBLOCK | 1,
        );
        assert!(fd >= 0);
        let mut api = [0xAA_u64, 0, 0];
        assert_eq!(
            libc::ioctl(fd as i32, 0xc018_aa3f_u32 as libc::Ioctl, &mut api),
            0
        );
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
            // The program's files are where it has put them, and have its bytes.
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
            // One window more, with the descriptors that are open.
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
                c"! ls -l /proc/self/fd | grep -e userfaultfd -e pidfd -e pagemap -e memfd";
            let end = core::ptr::null::<u8>();
            libc::execl(shell, shell, c"-c".as_ptr(), script.as_ptr(), end);
        }
        99
    });
    assert_eq!(status, 0);
}

#[test]
fn exec_leaves_no_huge_memory() {
    let status = crate::child::forked(|| {
        let builder = HugeMemory::builder().backing(HugeBacking::BasePages);
        let memory = builder.create(4 << 20).unwrap();
        let map = memory.map().unwrap();
        map.populate(..).unwrap();
        // SAFETY: replaces the process.
        unsafe {
            let shell = c"/bin/sh".as_ptr();
            let script = c"! ls -l /proc/self/fd | grep -e memfd -e userfaultfd";
            let end = core::ptr::null::<u8>();
            libc::execl(shell, shell, c"-c".as_ptr(), script.as_ptr(), end);
        }
        99
    });
    assert_eq!(status, 0);
}

#[test]
fn another_file_at_a_rings_number() {
    alone(|| {
        let file = files::made_file("ring", 32 << 20);
        let engine = Engine::builder()
            .allow_kernel_maps(false)
            .memory(8 << 20)
            .async_reads(AsyncReads::IoUring);
        let Ok(engine) = engine.build() else {
            return softfault_skip::skipped("kernel", "there is no io_uring");
        };
        // SAFETY: nobody writes to the file.
        let map = unsafe { engine.map(&file) }.unwrap();
        let null = std::fs::File::open("/dev/null").unwrap();
        let rings = || {
            ours()
                .into_iter()
                .filter(|(_, name)| name.contains("io_uring"))
        };
        let mut taken: Vec<i32> = Vec::new();
        for (at, page) in (0..map.len()).step_by(PAGE).enumerate() {
            if at % 1000 == 500 {
                for (fd, _) in rings() {
                    // SAFETY: the number is open.
                    unsafe { libc::dup2(null.as_raw_fd(), fd) };
                    taken.push(fd);
                }
            }
            files::check(&map, page + at % PAGE);
        }
        assert!(taken.len() >= 4 && engine.stats().readahead_used > 4000);
        drop((map, engine));
        assert_eq!(rings().count(), 0);
        for fd in taken {
            // SAFETY: the program's own, and still open.
            assert_eq!(unsafe { libc::close(fd) }, 0, "{fd}");
        }
    });
}

#[test]
fn huge_memory_whose_number_is_anothers() {
    alone(|| {
        let memory = HugeMemory::builder().backing(HugeBacking::BasePages);
        let memory = memory.create(8 << 20).unwrap();
        let map = memory.map().unwrap();
        map.write_at(&[7; 16], 0).unwrap();
        let number = std::os::fd::AsFd::as_fd(&memory).as_raw_fd();
        // SAFETY: a file of the program's, put over ours.
        let other = unsafe { libc::memfd_create(c"other".as_ptr(), 0) };
        // SAFETY: both are open.
        unsafe { libc::dup2(other, number) };
        // SAFETY: a length of the program's own file.
        assert_eq!(unsafe { libc::ftruncate(other, 4 << 20) }, 0);
        assert!(memory.truncate(0).is_err() && memory.punch_hole(0..2 << 20).is_err());
        assert!(memory.map().is_err() && memory.bytes().is_err());
        let mut bytes = [0; 16];
        map.read_at(&mut bytes, 0).unwrap();
        assert_eq!(bytes, [7; 16]);
        // Missing pages come by the map itself, and are not asked of the other file, as long as that may be.
        map.populate(2 << 20..4 << 20).unwrap();
        map.populate(4 << 20..8 << 20).unwrap();
        drop((map, memory));
        // SAFETY: only ask; both are still the program's.
        unsafe {
            let mut stat: libc::stat = core::mem::zeroed();
            assert_eq!(libc::fstat(number, &mut stat), 0);
            assert_eq!((stat.st_size, stat.st_blocks), (4 << 20, 0));
        }
    });
}

/// Failed before: the first touch of each missing page was SIGBUS, since a number that the program had closed was asked for the file's blocks.
#[test]
fn huge_memory_that_is_touched_first_after_all_was_closed() {
    alone(|| {
        let memory = HugeMemory::builder().backing(HugeBacking::BasePages);
        let map = memory.create(8 << 20).unwrap().map().unwrap();
        // SAFETY: what this process has open is not used any more.
        let closed = unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
        assert_eq!(closed, 0);
        // SAFETY: nobody else has the memory.
        unsafe { map.as_mut_slice()[5] = 7 };
        // SAFETY: as above.
        assert_eq!(unsafe { &map.as_slice()[..8] }, [0, 0, 0, 0, 0, 7, 0, 0]);
        let mut byte = [1];
        map.read_at(&mut byte, 4 << 20).unwrap();
        assert_eq!(byte, [0]);
        map.populate(..).unwrap();
    });
}
