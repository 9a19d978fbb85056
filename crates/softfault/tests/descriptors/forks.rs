//! Children of fork that close descriptors they do not know.

use crate::scene::{self, Scene, shared};
use crate::{alone, child, close_from, open, ours};
use std::sync::atomic::{AtomicU32, Ordering};

/// A word that children share: a wait for it needs no descriptor.
fn word() -> &'static AtomicU32 {
    // SAFETY: mapped for ever, of zeros.
    unsafe { &*(shared(4096) as *const AtomicU32) }
}

fn inode(fd: i32) -> u64 {
    // SAFETY: fills the structure.
    unsafe {
        let mut stat: libc::stat = core::mem::zeroed();
        assert_eq!(libc::fstat(fd, &mut stat), 0);
        stat.st_ino
    }
}

fn wait_for(word: &AtomicU32, value: u32) {
    while word.load(Ordering::Acquire) != value {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

#[test]
fn a_child_that_closes_all_has_its_parents_bytes() {
    alone(|| {
        let mut scene = Scene::new();
        let turn = word();
        let child = child::start(|| {
            scene.all_fits();
            close_from(3);
            turn.store(1, Ordering::Release);
            wait_for(turn, 2);
            scene::check(&scene.private, 1, 1);
            close_from(0);
            scene::check(&scene.private, 1, 1);
            0
        });
        wait_for(turn, 1);
        // Slots that the child reads are not given out again, although it has closed all.
        for round in 2..5 {
            scene::write(&mut scene.private, round);
        }
        scene::check(&scene.private, 4, 1);
        turn.store(2, Ordering::Release);
        assert_eq!(child::wait(child), 0);
        // Now they are.
        let used = || scene.engine.stats().swap.unwrap().slots_used;
        let before = used();
        scene::write(&mut scene.private, 5);
        assert!(used() < before, "{before} slots, then {}", used());
        scene.check_map(1);
        scene::check(&scene.private, 5, 1);
    });
}

#[test]
fn fork_after_all_was_closed() {
    alone(|| {
        let scene = Scene::new();
        close_from(3);
        let status = child::forked(|| {
            scene.all_fits();
            scene::check(&scene.private, 1, 1);
            let grandchild = child::forked(|| {
                close_from(3);
                scene::check(&scene.private, 1, 1);
                0
            });
            assert_eq!(grandchild, 0);
            0
        });
        assert_eq!(status, 0);
        scene.check(1);
    });
}

#[test]
fn a_number_that_a_child_inherits_is_not_used() {
    alone(|| {
        let scene = Scene::new();
        scene.check(1);
        // Each userfaultfd and pidfd has an inode of its own.
        let files = || ours().into_iter().map(|(fd, name)| (inode(fd), name));
        let parents: Vec<_> = files().collect();
        assert!(parents.len() >= 3, "{parents:?}");
        let status = child::forked(|| {
            scene.all_fits();
            scene::check(&scene.private, 1, 2);
            for file in files() {
                assert!(!parents.contains(&file), "{file:?} is the parent's");
            }
            0
        });
        assert_eq!(status, 0);
        scene.check(1);
    });
}

#[test]
fn a_number_of_the_programs_is_left_alone_in_a_child() {
    alone(|| {
        let scene = Scene::new();
        scene.check(1);
        let numbers: Vec<i32> = ours().into_iter().map(|(fd, _)| fd).collect();
        let null = std::fs::File::open("/dev/null").unwrap();
        for fd in &numbers {
            // SAFETY: the numbers are open.
            unsafe { libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&null), *fd) };
        }
        let status = child::forked(|| {
            let here = open();
            for fd in &numbers {
                let still = |(number, name): &(i32, String)| number == fd && name == "/dev/null";
                assert!(here.iter().any(still), "{fd}: {here:?}");
            }
            0
        });
        assert_eq!(status, 0);
        scene.check(1);
    });
}
