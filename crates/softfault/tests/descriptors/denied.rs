//! Where numbers cannot be taken, or there is no table at all.

use crate::filter::deny;
use crate::nobody::{NOBODY, become_nobody};
use crate::scene::Scene;
use crate::{alone, close_from};

fn forbid_dumps() {
    // SAFETY: changes others' access to this process.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) }, 0);
}

#[test]
fn an_ordinary_user_that_nobody_may_look_at() {
    // Before, and after the engine is built.
    alone(|| {
        become_nobody();
        forbid_dumps();
        let scene = Scene::new();
        close_from(3);
        scene.check(1);
    });
    alone(|| {
        let scene = Scene::new();
        become_nobody();
        forbid_dumps();
        close_from(3);
        scene.check(1);
        let again = Scene::new();
        close_from(3);
        again.check(2);
        // No thread of ours keeps a user, a group or a capability that the program has given up.
        for task in std::fs::read_dir("/proc/self/task").unwrap() {
            let status = std::fs::read_to_string(task.unwrap().path().join("status")).unwrap();
            let line = |name: &str| {
                let line = status.lines().find_map(|line| line.strip_prefix(name));
                line.unwrap()
                    .split_whitespace()
                    .collect::<Vec<_>>()
                    .join(" ")
            };
            // SAFETY: only asks.
            let [user, group] = unsafe { [libc::getuid(), libc::getgid()] };
            assert_eq!(line("Uid:"), [user; 4].map(|id| id.to_string()).join(" "));
            assert_eq!(line("Gid:"), [group; 4].map(|id| id.to_string()).join(" "));
            assert_eq!(line("CapEff:"), "0000000000000000", "{status}");
            assert!(user != NOBODY || line("Groups:").is_empty());
        }
    });
}

#[test]
fn no_process_may_be_looked_up() {
    let calls = [libc::SYS_pidfd_open, libc::SYS_pidfd_getfd];
    for refused in [&calls[..], &calls[..1], &calls[1..]] {
        alone(|| {
            deny(refused, libc::EPERM);
            let scene = Scene::new();
            close_from(3);
            scene.check(3);
        });
        alone(|| {
            let scene = Scene::new();
            deny(refused, libc::EPERM);
            close_from(3);
            scene.check(3);
        });
    }
}

#[test]
fn without_a_table_all_works_until_something_is_closed() {
    // libc's own threads come by clone3.
    for refused in [libc::SYS_clone, libc::SYS_close_range] {
        alone(|| {
            deny(&[refused], libc::EPERM);
            let scene = Scene::new();
            assert!(!scene.engine.stats().guarded_descriptors);
            scene.check(1);
        });
    }
    alone(|| {
        become_nobody();
        let none = libc::rlimit {
            rlim_cur: 1,
            rlim_max: 1,
        };
        // SAFETY: a limit of this process.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NPROC, &none) }, 0);
        let scene = Scene::new();
        scene.check(1);
    });
}
