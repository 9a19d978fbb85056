//! Children that run no fork handlers, and those that exec at once.

use crate::child::{alone, assert_exit, forked, wait};
use crate::scene::{PAGE, PAGES, assert_segv, check_scene, engine, scene, write};
use softfault::MmapMut;

/// Forks without anybody knowing.
fn forked_raw(child: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child makes async-signal-safe calls only, and ends.
    let pid = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    assert!(pid >= 0, "clone");
    if pid == 0 {
        let code = child();
        // SAFETY: ends the child.
        unsafe { libc::_exit(code) };
    }
    wait(pid as libc::pid_t)
}

fn touch(map: &MmapMut, page: usize) -> i32 {
    // SAFETY: within the map.
    i32::from(unsafe { map.as_ptr().add(page * PAGE).read_volatile() })
}

#[test]
fn a_bare_clone_dies_of_sigsegv_and_never_reads_zeros() {
    alone(
        "raw::a_bare_clone_dies_of_sigsegv_and_never_reads_zeros",
        || {
            let engine = engine();
            let mut map = scene(&engine);
            // Resident, evicted, zeros.
            for page in [PAGES - 2, 0, 3] {
                assert_segv(forked_raw(|| touch(&map, page)));
            }
            // It is the same after a fork has lent the memory and taken it back, and in the
            // child of one.
            let status = forked(|| {
                for page in [PAGES - 2, 0, 3] {
                    assert_segv(forked_raw(|| touch(&map, page)));
                }
                check_scene(&map, "child");
                0
            });
            assert_exit(status, 0);
            assert_segv(forked_raw(|| touch(&map, 0)));
            check_scene(&map, "parent");
            (0..PAGES).for_each(|page| write(&mut map, page, 2));
        },
    );
}

#[test]
fn commands_are_spawned_and_execed() {
    let engine = engine();
    let map = scene(&engine);
    for _ in 0..20 {
        let output = std::process::Command::new("echo").arg("here").output();
        assert_eq!(output.unwrap().stdout, b"here\n");
    }
    let status = forked(|| {
        // SAFETY: replaces the child, which has none of our descriptors then.
        unsafe {
            let shell = c"/bin/sh".as_ptr();
            let script =
                c"ls -l /proc/self/fd | grep -c -e userfaultfd -e pidfd -e pagemap -e deleted";
            let end = core::ptr::null::<u8>();
            libc::execl(shell, shell, c"-c".as_ptr(), script.as_ptr(), end);
        }
        99
    });
    // grep found none.
    assert_exit(status, 1);
    check_scene(&map, "parent");
}
