//! A program's calls on descriptors that it does not know, with our page tables among
//! them: every byte is right afterwards. Each case runs in a child of its own.

#[path = "../child/mod.rs"]
mod child;
mod denied;
#[path = "../files/mod.rs"]
mod files;
#[path = "../filter/mod.rs"]
mod filter;
mod forks;
#[path = "../nobody/mod.rs"]
mod nobody;
mod numbers;
mod scene;
mod threads;

use scene::Scene;

/// Runs `case` in a child, which has to come to its end.
#[track_caller]
fn alone(case: impl FnOnce()) {
    let status = child::forked(|| {
        case();
        0
    });
    assert_eq!(status, 0, "wait status {status:#x}");
}

/// `closefrom(first)`.
fn close_from(first: u32) {
    // SAFETY: a call that a program may make.
    let answer = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) };
    assert_eq!(answer, 0);
}

/// Our numbers in this process, and their kinds.
fn ours() -> Vec<(i32, String)> {
    let names = ["userfaultfd", "pidfd", "pagemap", "io_uring"];
    let known = |(_, name): &(i32, String)| names.iter().any(|of| name.contains(of));
    open().into_iter().filter(known).collect()
}

/// The descriptors that are open in this process.
fn open() -> Vec<(i32, String)> {
    let all = std::fs::read_dir("/proc/self/fd").unwrap();
    all.filter_map(|entry| {
        let path = entry.unwrap().path();
        let fd = path.file_name()?.to_str()?.parse().ok()?;
        let target = std::fs::read_link(&path).ok()?;
        Some((fd, target.to_string_lossy().into_owned()))
    })
    .collect()
}

#[test]
fn closing_all_that_is_open_loses_no_byte() {
    alone(|| {
        let scene = Scene::new();
        assert!(scene.engine.stats().guarded_descriptors);
        scene.check(1);
        for _ in 0..3 {
            close_from(3);
            scene.check(1);
        }
        // New windows, and old ones that go.
        close_from(3);
        let more = Scene::new();
        close_from(3);
        more.check(1);
        drop(scene);
        more.check(3);
        close_from(0);
        more.check(1);
        let is_ours = |fd: i32| ours().iter().any(|(ours, _)| *ours == fd);
        assert!((0..3).all(|fd| !is_ours(fd)));
    });
}

#[test]
fn numbers_are_taken_once_and_not_each_time() {
    alone(|| {
        let scene = Scene::new();
        close_from(3);
        scene.check(1);
        let before = ours();
        scene.check(1);
        assert_eq!(ours(), before);
    });
}
