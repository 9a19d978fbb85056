//! Numbers for children of fork, where threads have tables of their own, or hold a lock.

use super::super::open::{Wanted, open};
use super::Descriptor;
use crate::table::in_child::{check, forked};
use std::fs::File;
use std::os::fd::{AsFd, FromRawFd};
use std::sync::Barrier;

fn opened() -> Descriptor {
    // SAFETY: the name is a string that ends in zero; the descriptor is new.
    let file = unsafe {
        let fd = libc::memfd_create(c"descriptor".as_ptr(), libc::MFD_CLOEXEC);
        File::from_raw_fd(fd)
    };
    file.set_len(1 << 16).expect("longer");
    open(file.as_fd(), Wanted::Buffered).expect("opened").file
}

fn close_all() {
    // SAFETY: a call that a program may make.
    unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
}

fn open_here() -> usize {
    let numbers = std::fs::read_dir("/proc/thread-self/fd");
    numbers.expect("a directory").count()
}

/// Another thread takes a number while its process forks. Failed before: the child's fork waited for it for ever.
#[test]
fn a_childs_fork_waits_for_no_thread_of_its_parent() {
    forked(|| {
        let ours = opened();
        ours.before_fork();
        let _taking = ours.in_table().expect("a table").taking.lock();
        // The child's own, and one that has its parent's.
        for is_own in [true, false] {
            forked(|| {
                // SAFETY: a child that hangs is killed.
                unsafe { libc::alarm(60) };
                if is_own {
                    ours.after_fork();
                }
                close_all();
                ours.before_fork();
                check!(ours.lent().is_some() == is_own);
                // SAFETY: ends the child, and nothing of its parent's is dropped.
                unsafe { libc::_exit(0) }
            });
        }
        0
    });
}

/// Failed before: each fork took a number, and the one before stayed open.
#[test]
fn forks_beside_a_thread_with_its_own_table_take_one_number() {
    forked(|| {
        let ours = opened();
        ours.before_fork();
        let (before, lent) = (open_here(), ours.lent());
        let turn = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // SAFETY: this thread's table is its own from here on.
                unsafe { libc::unshare(libc::CLONE_FILES) };
                close_all();
                for _ in 0..20 {
                    turn.wait();
                    for number in [ours.number(), ours.number()].into_iter().flatten() {
                        if !ours.is_still(number) {
                            ours.forget(number);
                        }
                    }
                    turn.wait();
                }
            });
            for _ in 0..20 {
                turn.wait();
                turn.wait();
                ours.before_fork();
            }
        });
        check!(ours.lent() == lent && open_here() == before);
        drop(ours);
        check!(open_here() == before - 1);
        0
    });
}
