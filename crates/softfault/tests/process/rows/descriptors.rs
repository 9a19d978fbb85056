//! Descriptors that the program does not know, and limits on them.

use crate::call::answer;
use crate::row::{Row, Verdict};
use crate::scene::{Kind, Scene, file};
use std::fs::File;
use std::os::fd::AsRawFd;

pub const ROWS: &[Row] = &[
    Row {
        name: "closefrom",
        does: "`closefrom(3)`, `close_range`, a loop of `close` over all descriptors",
        kinds: Kind::ALL,
        verdict: Verdict::Right,
        then: "",
        play: |kind| {
            let scene = Scene::new(kind);
            (0..100).for_each(|page| scene.check(page));
            close_all();
            scene
        },
    },
    Row {
        name: "closefrom-then-map",
        does: "the same, and then new engines and maps",
        kinds: Kind::ALL,
        verdict: Verdict::Right,
        then: "",
        play: |kind| {
            let before = Scene::new(kind);
            close_all();
            let after = Scene::new(kind);
            before.check_all();
            after
        },
    },
    Row {
        name: "dup2-other-file",
        does: "`dup2` of another file over every number that the program does not know",
        kinds: Kind::ALL,
        verdict: Verdict::Right,
        then: "",
        play: |kind| {
            let scene = Scene::new(kind);
            (0..100).for_each(|page| scene.check(page));
            let other = crate::files::made_file("other", 1 << 20);
            other.set_len(64 << 20).expect("a long file");
            replace_all(&other);
            scene
        },
    },
    Row {
        name: "dup2-null",
        does: "`dup2` of `/dev/null` over every number that the program does not know",
        kinds: Kind::ALL,
        verdict: Verdict::Right,
        then: "",
        play: |kind| {
            let scene = Scene::new(kind);
            replace_all(
                &File::options()
                    .read(true)
                    .write(true)
                    .open("/dev/null")
                    .expect("null"),
            );
            scene
        },
    },
    Row {
        name: "unshare-files",
        does: "`unshare(CLONE_FILES)` in a thread that touches, and then closes all there",
        kinds: Kind::ALL,
        verdict: Verdict::Right,
        then: "",
        play: |kind| {
            let scene = Scene::new(kind);
            std::thread::scope(|scope| {
                let scene = &scene;
                scope.spawn(move || {
                    // SAFETY: this thread alone.
                    assert_eq!(unsafe { libc::unshare(libc::CLONE_FILES) }, 0);
                    scene.check_all();
                    close_all();
                    scene.check_all();
                });
            });
            scene
        },
    },
    Row {
        name: "fcntl",
        does: "`fcntl` on every descriptor: F_SETFL without O_DIRECT, with O_NONBLOCK; F_SETFD without FD_CLOEXEC",
        kinds: Kind::ALL,
        verdict: Verdict::Right,
        then: "",
        play: |kind| {
            let scene = Scene::new(kind);
            for fd in 3..1000 {
                // SAFETY: changes flags of descriptions.
                unsafe {
                    libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK);
                    libc::fcntl(fd, libc::F_SETFD, 0);
                }
            }
            scene
        },
    },
    Row {
        name: "no-descriptors",
        does: "RLIMIT_NOFILE of 0 after the maps, or no number left",
        kinds: Kind::ALL,
        verdict: Verdict::Right,
        then: "maps go on; new ones are an error",
        play: |kind| {
            let scene = Scene::new(kind);
            let file = file();
            let limit = libc::rlimit {
                rlim_cur: 0,
                rlim_max: 20_000,
            };
            // SAFETY: sets a limit of this process.
            answer(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }).expect("a limit");
            scene.check_all();
            if kind == Kind::File {
                // SAFETY: nobody writes to the file; of another size, so another window.
                let map = unsafe {
                    softfault::MmapOptions::new()
                        .len(12345)
                        .map_in(scene.engine(), &file)
                };
                println!("a map: {:?}", map.map(|map| map.len()));
            }
            scene
        },
    },
];

/// As programs do that start others.
fn close_all() {
    // SAFETY: closes descriptors that this row's process does not use.
    unsafe {
        (3..2000).for_each(|fd| _ = libc::close(fd));
        libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0);
    }
}

fn replace_all(other: &File) {
    for fd in (3..200).filter(|&fd| fd != other.as_raw_fd()) {
        // SAFETY: numbers that this row's process does not use.
        unsafe { libc::dup2(other.as_raw_fd(), fd) };
    }
}
